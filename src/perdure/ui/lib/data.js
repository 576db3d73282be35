// Recorded values as a tree, as JSON or as a table. Large ones come when they are asked for; a pointer can be copied.
import { html, useState } from "./html.js";
import { figure, json, visible } from "./format.js";
import { set } from "./router.js";
import { Copy, Icon, Json } from "./parts.js";

const FORMS = { tree: "Tree", json: "JSON", table: "Table" };
const SOME = 100;

const escaped = (name) => String(name).replaceAll("~", "~0").replaceAll("/", "~1");
const isObject = (value) => value !== null && typeof value === "object";
const cut = (value) => isObject(value) && "$cut" in value;
const kept = (value) => isObject(value) && ("$cut" in value || "$withheld" in value || "$bytes" in value);
const has = (value, name, find) => String(name).toLowerCase().includes(find) || (isObject(value) ? Object.entries(value).some(([key, each]) => has(each, key, find)) : String(value).toLowerCase().includes(find));

// `values`: `[{ name, note, value }]`. `whole(name)` loads the one that was too large.
export function Data({ values, query, whole }) {
  const form = FORMS[query.get("form")] ? query.get("form") : "tree";
  const find = (query.get("look") ?? "").toLowerCase();
  const [text, setText] = useState(query.get("look") ?? "");
  const [loaded, setLoaded] = useState({});
  const load = async (name) => { const value = await whole(name); setLoaded((old) => ({ ...old, [name]: value })); };
  const shown = values.map((each) => (each.name in loaded ? { ...each, value: loaded[each.name] } : each)).filter((each) => !find || has(each.value, each.name, find));
  return html`<div class="journal-bar"><span class="seg">${Object.entries(FORMS).map(([name, label]) => html`<button type="button" aria-pressed=${form === name} onClick=${() => set({ form: name === "tree" ? "" : name })}>${label}</button>`)}</span>
    <form onSubmit=${(event) => { event.preventDefault(); set({ look: text }); }}><input class="field" type="search" aria-label="Search the data" placeholder="name or value" value=${text} onInput=${(event) => { setText(event.target.value); if (!event.target.value) set({ look: "" }); }} /></form>
    ${find && html`<span class="muted">${shown.length} of ${values.length} have it</span>`}</div>
  <div class="data-grid">${shown.map((each) => html`<section class="sheet card" key=${each.name}><header><h3>${visible(each.name)}</h3><span class="end muted">${each.note}</span></header><div class="part value">
    ${cut(each.value) ? html`<p class="muted">${figure(each.value.bytes)} bytes. It begins:</p><pre class="json">${visible(each.value.$cut)}…</pre><button class="btn small" type="button" onClick=${() => load(each.name)}>Show it whole</button>`
      : kept(each.value) || form === "json" || !isObject(each.value) ? html`<${Json} value=${each.value} />`
      : form === "table" ? html`<${Table} value=${each.value} />` : html`<ul class="data-tree"><${Leaves} value=${each.value} pointer="" find=${find} /></ul>`}</div></section>`)}</div>`;
}

function Leaves({ value, pointer, find }) {
  const [all, setAll] = useState(false);
  const entries = Object.entries(value).filter(([name, each]) => !find || has(each, name, find));
  const shown = all ? entries : entries.slice(0, SOME);
  return html`${shown.map(([name, each]) => html`<${Leaf} key=${name} name=${name} value=${each} pointer=${`${pointer}/${escaped(name)}`} find=${find} of=${value} />`)}
    ${entries.length > shown.length && html`<li><button class="btn small" type="button" onClick=${() => setAll(true)}>${figure(entries.length - shown.length)} more</button></li>`}
    ${entries.length === 0 && html`<li class="muted">${Array.isArray(value) ? "an empty list" : "an empty object"}</li>`}`;
}

function Leaf({ name, value, pointer, find, of }) {
  const [open, setOpen] = useState(pointer.split("/").length < 4);
  const key = html`<span class=${Array.isArray(of) ? "x" : "k"}>${visible(name)}</span>`;
  const copy = html`<${Copy} text=${pointer} label=${`Copy the pointer ${pointer}`} />`;
  if (!isObject(value) || kept(value)) return html`<li><span class="row">${key}<span class=${`v ${kind(value)}`}>${said(value)}</span>${copy}</span></li>`;
  const seen = open || Boolean(find);
  const size = Array.isArray(value) ? `${value.length} in a list` : `${Object.keys(value).length} fields`;
  return html`<li><span class="row"><button class="plain twist" type="button" aria-expanded=${seen} onClick=${() => setOpen(!seen)}><${Icon} name=${seen ? "down" : "right"} />${key}</button><span class="x">${size}</span>${copy}</span>${seen && html`<ul><${Leaves} value=${value} pointer=${pointer} find=${find} /></ul>`}</li>`;
}

const kind = (value) => (typeof value === "string" ? (value.startsWith("secret:") ? "secret" : "s") : typeof value === "number" ? "n" : "x");
const said = (value) => visible(typeof value === "string" ? (value.startsWith("secret:") ? value : json(value)) : json(value));

function Table({ value }) {
  const list = Array.isArray(value) ? value : null;
  const flat = list?.length && list.every((each) => isObject(each) && !Array.isArray(each));
  const columns = flat ? [...new Set(list.flatMap((each) => Object.keys(each)))].slice(0, 20) : [];
  const cell = (each) => (each === undefined ? "" : html`<span class=${kind(each)}>${visible(typeof each === "string" ? each : json(each))}</span>`);
  const number = (name) => list.every((each) => each[name] === undefined || typeof each[name] === "number");
  return html`<div class="scroll"><table class="ledger flush">${flat
    ? html`<thead><tr>${columns.map((name) => html`<th class=${number(name) ? "num" : null}>${visible(name)}</th>`)}</tr></thead><tbody>${list.slice(0, 500).map((each) => html`<tr>${columns.map((name) => html`<td class=${number(name) ? "num" : null}>${cell(each[name])}</td>`)}</tr>`)}</tbody>`
    : html`<thead><tr><th>name</th><th>value</th></tr></thead><tbody>${Object.entries(value).slice(0, 500).map(([name, each]) => html`<tr><td class="mono">${visible(name)}</td><td>${isObject(each) && !kept(each) && Object.keys(each).length ? html`<${Table} value=${each} />` : cell(each)}</td></tr>`)}</tbody>`}</table></div>`;
}
