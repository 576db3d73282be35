// Ctrl-K: any page, any verb of this page, any instance, by typing a part of its name.
import { html, useEffect, useRef, useState, useModal } from "./html.js";
import { get } from "./api.js";
import { visible } from "./format.js";
import { go, href } from "./router.js";
import { Icon, Status } from "./parts.js";

let offered = [];
// What the page that is open can do: `[{ text, icon, run }]`. The page takes it back when it goes.
export function offer(list) {
  offered = list;
  return () => { if (offered === list) offered = []; };
}

// Open it with this text: a page that has no better way to choose.
export const ask = (text) => dispatchEvent(new CustomEvent("perdure-ask", { detail: text }));

const instance = (id) => href(`/instances/${id.split("/").map(encodeURIComponent).join("/")}`);

const VERBS = { send: "send", ask: "ask", tag: "tag", wake: "wake", retry: "retry", settle: "settle", rewind: "rewind", fork: "fork", cancel: "cancel" };

// What a text may mean: a filter; a workflow, which may have slashes, and the begin of a key; the begin of a key, or of a workflow.
function meant(text) {
  if (/[:<>]/.test(text)) return [text];
  const parted = (cut) => (cut > 0 ? [`workflow:${text.slice(0, cut)} key_prefix:${text.slice(cut + 1)}`] : []);
  const keyed = text.includes("/") ? [...parted(text.indexOf("/")), ...parted(text.lastIndexOf("/"))] : [`key_prefix:${text}`];
  return [...new Set([...keyed, ...(/^[\w./-]+$/.test(text) ? [`workflow:${text}*`] : [])])];
}

// `o-17` finds instances; `cancel o-17` finds them and opens the dialog of the verb.
async function search(whole) {
  const [first, ...others] = whole.split(/\s+/);
  const verb = others.length ? VERBS[first.toLowerCase()] : undefined;
  const text = verb ? others.join(" ") : whole;
  if (text.length < 2) return [];
  let found = { items: [] };
  for (const q of meant(text)) if (!found.items.length) found = await get("/instances", { q, limit: 8 }).catch(() => found);
  if (verb) return found.items.map((each) => ({ text: `${verb[0].toUpperCase()}${verb.slice(1)} ${each.id}`, hint: html`<${Status} of=${each.status} />`, icon: verb, run: () => go(`${instance(each.id)}?do=${verb}`) }));
  return found.items.map((each) => ({ text: each.id, hint: html`<${Status} of=${each.status} />`, icon: "right", run: () => go(instance(each.id)), mono: true }));
}

export function Palette({ begin, pages, more, close }) {
  const [text, setText] = useState(begin);
  const [found, setFound] = useState({ of: "", items: [] });
  const [workflows, setWorkflows] = useState([]);
  const [at, setAt] = useState(0);
  const box = useRef(null);
  useModal(box);
  useEffect(() => { get("/workflows").then((answer) => setWorkflows(answer.items), () => {}); }, []);
  useEffect(() => {
    let gone = false;
    const later = setTimeout(() => search(text.trim()).then((items) => gone || setFound({ of: text.trim(), items })), 120);
    return () => { gone = true; clearTimeout(later); };
  }, [text]);
  const all = [
    ...offered.map((each) => ({ ...each, hint: "here" })),
    ...pages.map((each) => ({ text: `Go to ${each.name}`, icon: "right", hint: html`<kbd>g</kbd> <kbd>${each.key}</kbd>`, run: () => go(href(each.path)) })),
    ...workflows.filter((each) => !each.can_start).map((each) => ({ text: `Start ${each.name}…`, icon: "plus", hint: each.noun, run: () => go(href(`/workflows/${each.name}`, { start: 1 })) })),
    ...workflows.map((each) => ({ text: `Workflow ${each.name}`, icon: "right", hint: each.noun, run: () => go(href(`/workflows/${each.name}`)) })),
    ...more,
  ];
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = all.filter((each) => words.every((word) => each.text.toLowerCase().includes(word)));
  const filter = text.trim() ? [{ text: `Instances that match ${text.trim()}`, icon: "search", hint: "filter", run: () => go(href("/instances", { q: /[:<>]/.test(text) ? text.trim() : `key_prefix:${text.trim()}` })) }] : [];
  const near = found.of === text.trim() ? found.items : found.items.filter((each) => words.length && words.every((word) => each.text.toLowerCase().includes(word))); // until the next answer
  const shown = [...(words.length ? fits : fits.filter((each) => !each.text.startsWith("Workflow "))).slice(0, 9), ...near, ...filter];
  const now = Math.min(at, shown.length - 1);
  const run = (each) => { close(); each.run(); };
  const key = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); setAt((now + (event.key === "ArrowDown" ? 1 : shown.length - 1)) % Math.max(1, shown.length)); }
    else if (event.key === "Enter" && shown[now]) { event.preventDefault(); run(shown[now]); }
  };
  return html`<dialog class="dialog palette" ref=${box} aria-label="Find or do anything" onClose=${close} onClick=${(event) => event.target === box.current && close()}>
    <div class="ask"><${Icon} name="search" /><input id="palette" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${now >= 0 ? `palette-${now}` : null} aria-label="Find or do anything" placeholder="Find or do anything" value=${text} autocomplete="off" spellcheck="false" onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${key} /><kbd>Esc</kbd></div>
    <ul role="listbox" id="palette-list" aria-label="What was found">${shown.map((each, n) => html`<li role="option" id=${`palette-${n}`} aria-selected=${n === now} onClick=${() => run(each)} onPointerMove=${() => n !== now && setAt(n)}><${Icon} name=${each.icon ?? "right"} /><span class=${`t${each.mono ? " mono" : ""}`}>${visible(each.text)}</span><span class="muted">${each.hint}</span></li>`)}
      ${shown.length === 0 && html`<li role="option" aria-selected="false"><span class="t muted">Nothing has this name.</span></li>`}</ul></dialog>`;
}
