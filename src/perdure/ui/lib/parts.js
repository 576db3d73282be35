// Small parts that every page uses.
import { html, useState, useEffect, useRef } from "./html.js";
import { href } from "./router.js";
import { visible, json } from "./format.js";
import { Problem, root } from "./api.js";

export const Icon = ({ name }) => html`<svg class="ico" aria-hidden="true"><use href=${`#i-${name}`} /></svg>`;
export const Shape = ({ name }) => html`<svg class="sh" aria-hidden="true"><use href=${`#s-${name}`} /></svg>`;

// For screen readers: what changes by itself is said at most every five seconds.
export function Polite({ text }) {
  const [said, say] = useState("");
  const last = useRef(0);
  useEffect(() => {
    const timer = setTimeout(() => { last.current = Date.now(); say(text); }, Math.max(0, last.current + 5000 - Date.now()));
    return () => clearTimeout(timer);
  }, [text]);
  return html`<span class="sr" role="status">${said}</span>`;
}

const MARKS = {
  ok: ["completed", "completed"], error: ["failed", "failed"], timeout: ["failed", "expired"],
  unknown: ["stuck", "unknown"], "unknown outcome": ["stuck", "unknown"], cancelled: ["cancelled", "cancelled"], dropped: ["cancelled", "dropped"],
  "backing off": ["waiting", "expired"], held: ["running", "queued"], queued: ["running", "queued"], running: ["running", "running"],
  waiting: ["waiting", "waiting"], open: ["waiting", "open"], assigned: ["running", "assigned"],
  "not reached": ["cancelled", "none"], expired: ["failed", "expired"], overdue: ["stuck", "expired"], refused: ["failed", "failed"], recorded: ["waiting", "open"],
};

export function Status({ of, stamp = false }) {
  const [ink, shape] = MARKS[of] ?? [of, of];
  return html`<span class=${`st st-${ink}${stamp ? " stamp" : ""}`}><${Shape} name=${shape} />${of}</span>`;
}

// `1.0.0+add5bb35f780`: the version of the author, and the digest that the engine adds.
export function Version({ of }) {
  const [name, digest] = visible(of).split(/[+-](?=[0-9a-f]{12}$)/);
  return html`<span class="ver" title=${of}>${name}${digest && html`<span class="hash">+${digest.slice(0, 4)}</span>`}</span>`;
}

// The workflow and the head of a key may shrink, its last part never.
export function Id({ id, of = "", plain = false, link = true, row = false }) {
  const cut = of && id.startsWith(`${of}/`) ? of.length : id.indexOf("/");
  const workflow = cut < 0 ? "" : id.slice(0, cut + 1);
  const key = visible(id.slice(cut + 1));
  const at = key.length > 12 ? key.length - 6 : 0;
  const inner = html`<span class="wf">${visible(workflow)}</span>${at ? html`<span class="key">${key.slice(0, at)}</span>` : null}<span class="tail">${key.slice(at)}</span>`;
  if (plain || !link) return html`<span class="id" title=${id}>${inner}</span>`;
  return html`<a class="id" href=${href(`/instances/${id.split("/").map(encodeURIComponent).join("/")}`)} title=${id} data-row=${row ? "" : null}>${inner}</a>`;
}

export function Copy({ text, label }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<button class="copy" type="button" onClick=${copy} title=${label} aria-label=${copied ? "Copied" : label}>${copied ? html`<span class="muted">copied</span>` : html`<${Icon} name="copy" />`}</button>`;
}

// A line breaks before an option, never inside of it.
const whole = (text) => visible(text).split(/(--[a-z][a-z-]*)/).map((each, n) => (n % 2 ? html`<span class="nowrap">${each}</span>` : each));

export const Cmd = ({ text }) => html`<div class="cmd"><code>${whole(text)}</code><${Copy} text=${text} label="Copy the command" /></div>`;

// A request of the API, as a program would send it.
export function Request({ of }) {
  if (!of) return null;
  const [method, path, body] = of;
  const text = `${method} /api/v1${path}${body && Object.keys(body).length ? ` ${json(body)}` : ""}`;
  return html`<div class="cmd http"><code>${visible(text)}</code><${Copy} text=${text} label="Copy the request" /></div>`;
}

export function Json({ value }) {
  if (value && typeof value === "object" && value.$withheld) return html`<p class="muted">Withheld: your grant does not show values.</p>`;
  return html`<pre class="json">${value === undefined ? "" : visible(json(value, 2))}</pre>`;
}

// Words between backticks are code.
const coded = (text) => text.split("`").map((each, n) => (n % 2 ? html`<code>${visible(each)}</code>` : visible(each)));

// A problem: what was expected and found, the hint, the ways out and the number of the request.
export function Trouble({ error, again, children }) {
  const problem = error instanceof Problem ? error.problem : { code: "page-failed", detail: String(error) };
  const said = [problem.where && html`at <code>${visible(problem.where)}</code>`, problem.expected && html`expected <code>${visible(problem.expected)}</code>`, problem.found && html`found <code>${visible(problem.found)}</code>`].filter(Boolean);
  const [, title, rest] = (problem.detail || problem.title || "It failed.").match(/^(.*?)(?: \((there are.*|it has.*)\))?$/s);
  return html`<section class="sheet" role="alert"><div class="empty"><span class="st st-failed"><${Shape} name="failed" />${problem.code}</span>
    <h2>${coded(title[0].toUpperCase() + title.slice(1))}</h2>
    ${rest && html`<p class="second">${visible(rest[0].toUpperCase() + rest.slice(1))}.</p>`}
    ${said.length > 0 && html`<p class="second">${said.map((each, n) => html`${n > 0 && ", "}${each}`)}</p>`}
    ${problem.hint && html`<p class="second">${coded(problem.hint)}</p>`}
    <div class="row-btns">${children}${again && html`<button class=${`btn${children ? "" : " first"}`} type="button" onClick=${again}>Try again</button>`}${problem.type?.startsWith("/errors/") && html`<a class="btn quiet" target="_blank" href=${root + problem.type}>About ${problem.code}</a>`}</div>
    ${problem.request && html`<p class="muted mono">request ${problem.request}</p>`}</div></section>`;
}

// A menu of links or boxes below a button. Esc, or a press elsewhere, closes it.
export function Menu({ label, children }) {
  const box = useRef(null);
  useEffect(() => {
    const away = (event) => { if (box.current?.open && !box.current.contains(event.target)) box.current.open = false; };
    addEventListener("pointerdown", away);
    return () => removeEventListener("pointerdown", away);
  }, []);
  const key = (event) => { if (event.key === "Escape" && box.current.open) { box.current.open = false; box.current.firstElementChild.focus(); event.stopPropagation(); } };
  return html`<details class="menu" ref=${box} onKeyDown=${key}><summary class="btn">${label}<${Icon} name="down" /></summary><div class="list-menu">${children}</div></details>`;
}

// Rows of the final height, seen after 150 ms; their room is kept from the start.
export function Bones({ rows = 8 }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const waiting = setTimeout(() => setLate(true), 150);
    return () => clearTimeout(waiting);
  }, []);
  return html`<section class=${`sheet loading${late ? "" : " early"}`} aria-busy="true" aria-label="Loading"><table class="ledger"><tbody>
    ${Array.from({ length: rows }, (_, n) => html`<tr><td><span class=${`bone w${(n % 4) + 1}`}></span></td><td><span class=${`bone w${((n + 2) % 4) + 1}`}></span></td></tr>`)}
  </tbody></table></section>`;
}

export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

// Whether a login has a role above viewer on some workflow.
export const operates = (me) => me.grants.some((each) => each.role !== "viewer");

// Loads a value, again whenever one of its keys changes. Keeps the old value while the new one comes. `first`: one that is here already.
export function useLoaded(load, keys, first) {
  const [state, setState] = useState({ value: first, error: undefined });
  const [turn, setTurn] = useState(0);
  const here = useRef(first !== undefined);
  useEffect(() => {
    if (here.current) { here.current = false; return undefined; }
    let gone = false;
    load().then(
      (value) => gone || setState({ value, error: undefined }),
      (error) => gone || setState((old) => ({ value: old.value, error })),
    );
    return () => { gone = true; };
  }, [...keys, turn]);
  return { ...state, again: () => setTurn((n) => n + 1) };
}

export function useTick(milliseconds) {
  const [n, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => set((n) => n + 1), milliseconds);
    return () => clearInterval(timer);
  }, []);
  return n;
}
