// URL = state: page, filter, tab and selection. Back, reload and a pasted link show the same.
import { forget, root } from "./api.js";

const listeners = new Set();

export function place() {
  const path = decodeURI(location.pathname).slice(root.length) || "/";
  return { path, query: new URLSearchParams(location.search) };
}

export function href(path, query) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) if (value !== "" && value != null) found.set(name, value);
  const text = found.toString();
  return `${root}${path}${text && `?${text}`}`;
}

export function go(url, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  moved();
}

function moved() {
  forget();
  for (const each of listeners) each();
}

export function set(changes) {
  const now = Object.fromEntries(place().query);
  go(href(place().path, { ...now, ...changes }), { replace: true });
}

export function listen(call) {
  listeners.add(call);
  return () => listeners.delete(call);
}

addEventListener("popstate", moved);

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || link.hasAttribute("download") || link.target || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(url.pathname + url.search);
  scrollTo(0, 0);
});
