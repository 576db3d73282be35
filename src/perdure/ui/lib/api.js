// The public API, and nothing else. An error is a problem with code, detail and the request's number.
export const root = document.body.dataset.root;

export class Problem extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `HTTP ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

// A header has bytes and no line breaks: a reason in any language is sent as UTF-8.
const inBytes = (text) => String.fromCharCode(...new TextEncoder().encode(text.replace(/\s+/g, " ")));

// The positions of the journal at which the page has read. A stream that begins at none after them brings all that came
// since: the page need not be read once more.
const READ_MAX = 50;
const reading = new Set();
const read = new Set();
export const forget = () => read.clear();

export async function hasRead(at) {
  await Promise.allSettled(reading);
  return read.size > 0 && [...read].every((each) => covers(each, at));
}

const numbers = (position) => Object.fromEntries(position.split(".").map((each) => each.split("-")).map(([shard, n]) => [shard, parseInt(n, 16)]));
const covers = (read, at) => at === "" || (([mine, wanted]) => Object.entries(wanted).every(([shard, n]) => mine[shard] >= n))([numbers(read), numbers(at)]);

async function ask(method, path, { query, body, headers } = {}) {
  const url = new URL(`${location.origin}${root}/api/v1${path}`);
  for (const [name, value] of Object.entries(query ?? {}))
    for (const each of [value].flat()) if (each !== "" && each != null) url.searchParams.append(name, each);
  let answer;
  try {
    answer = await fetch(url, {
      method,
      headers: { "x-perdure": "1", ...(body === undefined ? {} : { "content-type": "application/json" }), ...Object.fromEntries(Object.entries(headers ?? {}).map(([name, text]) => [name, inBytes(text)])) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, { code: "not-reached", detail: "The server does not answer." });
  }
  if (method === "GET") read.add(read.size < READ_MAX ? answer.headers.get("x-perdure-at") ?? "-" : "-");
  const text = await answer.text();
  const value = text ? JSON.parse(text) : null;
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Problem(answer.status, value ?? {});
  return value;
}

// What two parts of a page ask for at once is asked for once, unless something has changed since.
const shared = new Map();
export const changed = () => shared.clear();
export const get = (path, query) => {
  const name = JSON.stringify([path, query]);
  const known = shared.get(name);
  if (known) return known;
  const asked = ask("GET", path, { query });
  shared.set(name, asked);
  reading.add(asked);
  const ended = () => { reading.delete(asked); if (shared.get(name) === asked) shared.delete(name); };
  asked.then(ended, ended);
  return asked;
};
export const send = (method, path, body, headers) => ask(method, path, { body: body ?? {}, headers }).finally(changed);

// A name may have slashes: each part is escaped, the slashes stay.
export const part = (id) => id.split("/").map(encodeURIComponent).join("/");
export const instancePath = (id, what = "") => `/instances/${part(id)}${what && `/-/${what}`}`;

export async function logout() {
  await fetch(`${root}/logout`, { method: "POST", headers: { "x-perdure": "1" } });
  location.assign(`${root}/login`);
}
