// Server-sent events. One stream serves all tabs of a browser, by a shared worker; without one, each page has its own.
import { changed, hasRead, root } from "./api.js";

const NAMES = ["entry", "head", "task", "count", "frame", "gap", "live", "notice"];

const notice = (text) => dispatchEvent(new CustomEvent("perdure-notice", { detail: text }));

let worker; // null: there is none
const readers = new Map();

function shared() {
  if (worker !== undefined) return worker;
  try { // the one script that the policy of the page lets a module name
    const url = new URL("./worker.js", import.meta.url).href;
    const trusted = globalThis.trustedTypes?.createPolicy("perdure-worker", { createScriptURL: () => url }).createScriptURL("") ?? url;
    worker = new SharedWorker(trusted, { type: "module", name: "perdure" }).port;
    worker.onmessage = ({ data }) => readers.get(data.reader)?.(data.name, data.data);
    addEventListener("pagehide", () => { for (const reader of readers.keys()) worker.postMessage({ stop: true, reader }); });
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  } catch {
    worker = null;
  }
  return worker;
}

// `last`: the position of what the page has read; what came since is told.
export function watch(channels, heard, told = () => {}, last = "") {
  const port = shared();
  if (!port) return alone(channels, heard, told, last);
  const reader = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  readers.set(reader, (name, data) => {
    if (name === "live") { told(true); notice(data.notice ?? ""); }
    else if (name === "off") told(false);
    else if (name === "notice") notice(data.text);
    else if (name === "gap" && data.at !== undefined) hasRead(data.at).then((yes) => yes || !readers.has(reader) || heard("gap", {}));
    else { changed(); heard(name, data); }
  });
  port.postMessage({ reader, channels, root, fresh: true });
  return () => {
    readers.delete(reader);
    port.postMessage({ stop: true, reader });
  };
}

function alone(channels, heard, told, last) {
  let source = null;
  let later = null;
  let ended = false;
  let again = last === "" ? null : false; // null: the page may have read before; true: it was opened again, and is read once more
  const open = () => {
    const query = channels.map((each) => `channels=${encodeURIComponent(each)}`).join("&");
    source = new EventSource(`${root}/api/v1/stream?${query}${last && !again ? `&last=${encodeURIComponent(last)}` : ""}`);
    for (const name of NAMES)
      source.addEventListener(name, (event) => {
        if (name === "live") { told(true); notice(JSON.parse(event.data).notice ?? ""); if (again) heard("gap", {}); else if (again === null) hasRead(event.lastEventId).then((yes) => yes || ended || heard("gap", {})); again = false; }
        else if (name === "notice") notice(JSON.parse(event.data).text);
        else { changed(); heard(name, JSON.parse(event.data)); }
      });
    source.addEventListener("bye", (event) => {
      source.close();
      told(false);
      again = true;
      if (!ended) later = setTimeout(open, JSON.parse(event.data).retry);
    });
    source.onerror = () => {
      told(false);
      if (source.readyState === EventSource.CLOSED && !ended) later = setTimeout(open, 3000);
    };
  };
  open();
  return () => {
    ended = true;
    clearTimeout(later);
    source.close();
  };
}

// Calls at most once in so many milliseconds, and once more at the end.
export function calm(call, milliseconds) {
  let waiting = null;
  let last = 0;
  return () => {
    if (waiting) return;
    const rest = Math.max(0, last + milliseconds - Date.now());
    waiting = setTimeout(() => {
      waiting = null;
      last = Date.now();
      call();
    }, rest);
  };
}
