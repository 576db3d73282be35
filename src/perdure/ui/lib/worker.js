// One stream for all tabs of a browser: HTTP/1.1 allows six connections. Tabs say which channels they watch.
const NAMES = ["entry", "head", "task", "count", "frame", "gap", "live", "notice", "bye"];
const readers = new Map(); // by a name of its own: { port, channels, fresh, bad }
let source = null;
let opened = "";
let last = "";
let root = "";
let later = null;
let notice = ""; // of the stream that is open

const fits = ({ channels }, name, data) =>
  channels.some((each) => {
    if (name === "count") return each === "fleet";
    if (name === "frame") return each === `frames:${data.id}`;
    if (name === "task") return each === "tasks:mine";
    if (name === "head" && data.filter !== undefined) return each === `list:${data.filter}`;
    if (each.startsWith("bulk:")) return data.id === `perdure.bulk/${each.slice(5)}`;
    return each === `instance:${data.id}` || each.startsWith("instance:@");
  });

const tell = (reader, name, data) => reader.port.postMessage({ reader: reader.name, name, data });
const all = (name, data) => { for (const each of readers.values()) tell(each, name, data); };

function heard(name, event) {
  const data = JSON.parse(event.data);
  if (event.lastEventId) last = event.lastEventId;
  if (name === "notice") notice = data.text;
  if (name === "live") {
    notice = data.notice ?? "";
    for (const each of readers.values()) {
      tell(each, "live", { notice });
      if (each.fresh) tell(each, "gap", { at: last }); // it may have read before the stream began
      each.fresh = false;
    }
  } else if (name === "bye") again(data.retry);
  else if (name === "gap" || name === "notice") all(name, data);
  else for (const each of readers.values()) if (fits(each, name, data)) tell(each, name, data);
}

function again(milliseconds) {
  all("off", {});
  source?.close();
  source = null;
  opened = "";
  clearTimeout(later);
  later = setTimeout(() => { for (const each of readers.values()) each.bad = false; open(); }, milliseconds);
}

// What no stream can be opened with (an instance that is gone) must not end the streams of the other tabs.
function broken(live) {
  if (source.readyState !== EventSource.CLOSED) return all("off", {});
  const newest = [...readers.values()].filter((each) => !each.bad).at(-1);
  if (live || !newest || readers.size === 1) return again(3000);
  newest.bad = true;
  tell(newest, "off", {});
  return open();
}

function open() {
  const channels = [...new Set([...readers.values()].filter((each) => !each.bad).flatMap((each) => each.channels))].sort();
  const query = channels.map((each) => `channels=${encodeURIComponent(each)}`).join("&");
  if (query === opened && source) return;
  source?.close();
  source = null;
  opened = query;
  if (!channels.length) return;
  let live = false;
  const mine = new EventSource(`${root}/api/v1/stream?${query}${last ? `&last=${encodeURIComponent(last)}` : ""}`);
  source = mine;
  for (const name of NAMES) mine.addEventListener(name, (event) => { if (mine !== source) return; live = live || name === "live"; heard(name, event); });
  mine.onerror = () => { if (mine === source) broken(live); };
}

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data.stop) readers.delete(data.reader);
    else {
      root = data.root;
      const known = source && opened.split("&").map((each) => decodeURIComponent(each.slice(9)));
      readers.set(data.reader, { name: data.reader, port, channels: data.channels, fresh: data.fresh, bad: false });
      if (known && source.readyState === EventSource.OPEN && data.channels.every((each) => known.includes(each))) { // the stream has these channels already
        tell(readers.get(data.reader), "live", { notice });
        if (data.fresh) tell(readers.get(data.reader), "gap", { at: last });
        readers.get(data.reader).fresh = false;
      }
    }
    open();
  };
};
