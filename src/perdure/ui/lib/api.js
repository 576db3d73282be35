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
  const text = await answer.text();
  const value = text ? JSON.parse(text) : null;
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Problem(answer.status, value ?? {});
  return value;
}

export const get = (path, query) => ask("GET", path, { query });
export const send = (method, path, body, headers) => ask(method, path, { body: body ?? {}, headers });

// A name may have slashes: each part is escaped, the slashes stay.
export const part = (id) => id.split("/").map(encodeURIComponent).join("/");
export const instancePath = (id, what = "") => `/instances/${part(id)}${what && `/-/${what}`}`;

export async function logout() {
  await fetch(`${root}/logout`, { method: "POST", headers: { "x-perdure": "1" } });
  location.assign(`${root}/login`);
}
