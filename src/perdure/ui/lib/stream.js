// One stream of server-sent events a page. The browser resumes it by itself, from the id of the last event.
import { root } from "./api.js";

const NAMES = ["entry", "head", "task", "count", "gap", "live", "notice"];

const notice = (text) => dispatchEvent(new CustomEvent("perdure-notice", { detail: text }));

// `last`: the position of what the page has read; what came since is told.
export function watch(channels, heard, told = () => {}, last = "") {
  let source = null;
  let later = null;
  let ended = false;
  let again = last === "" ? null : false; // null: the page may have read before; true: it was opened again. Both: read once more
  const open = () => {
    const query = channels.map((each) => `channels=${encodeURIComponent(each)}`).join("&");
    source = new EventSource(`${root}/api/v1/stream?${query}${last && !again ? `&last=${encodeURIComponent(last)}` : ""}`);
    for (const name of NAMES)
      source.addEventListener(name, (event) => {
        if (name === "live") { told(true); notice(""); if (again !== false) heard("gap", {}); again = false; }
        else if (name === "notice") notice(JSON.parse(event.data).text);
        else heard(name, JSON.parse(event.data));
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
