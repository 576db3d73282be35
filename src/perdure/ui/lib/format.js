// Times and numbers in words. Durations like "2 h 14 min"; times with the day where it is not today.
const pad = (n) => String(n).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export function span(milliseconds) {
  const s = Math.abs(milliseconds) / 1000;
  if (s < 0.0995) return `${Math.round(s * 1000)} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${pad(minutes % 60)} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return days < 30 && hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

export const ago = (text, now = Date.now()) => {
  const past = now - Date.parse(text);
  return past < 1500 ? "now" : span(past);
};

// Times are those of this place, or UTC: the browser keeps which.
const KEPT = "perdure.zone";
export const zone = () => localStorage.getItem(KEPT) ?? "local";
export const keepZone = (name) => localStorage.setItem(KEPT, name);
export const zoneName = () => (zone() === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone);
const at_ = (text) => { const at = new Date(text); return zone() === "utc" ? new Date(at.getTime() + at.getTimezoneOffset() * 60000) : at; };

export function clock(text, exact = false) {
  const at = at_(text);
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return exact ? `${time}.${String(at.getMilliseconds()).padStart(3, "0")}` : time;
}

export const day = (text) => {
  const at = at_(text);
  return `${at.getDate()} ${MONTHS[at.getMonth()]}`;
};

// "Tue 17 Nov"
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
export const weekday = (text) => `${DAYS[at_(text).getDay()]} ${day(text)}`;

export function moment(text, now = new Date()) {
  return day(text) === day(now) ? clock(text) : `${day(text)} ${clock(text).slice(0, 5)}`;
}

// Without seconds.
export const shortly = (text) => (day(text) === day(new Date()) ? clock(text).slice(0, 5) : `${day(text)} ${clock(text).slice(0, 5)}`);

export const figure = (n) => (typeof n === "number" ? n.toLocaleString("en-US") : n);
export const json = (value, indent) => JSON.stringify(value, null, indent);

// Control characters, and signs that turn the direction of text, are shown as escapes.
export const visible = (text) =>
  String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

// A word for a shell.
export const quoted = (word) => (/^[\w./:@%+=,~-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
let database = "";
export const use = (name) => { database = name === "this database" ? "" : name; };
export const command = (...words) => ["perdure", ...words, ...(database ? ["--db", database] : [])].map((each) => quoted(String(each))).join(" ");
export const count = (n, noun) => `${figure(n)} ${noun}${n === 1 ? "" : "s"}`;
