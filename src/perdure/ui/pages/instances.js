// All instances: filter by text, chips or facets; bookmarks and columns; select rows, or all that match, for a bulk.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { get, part, root, send } from "../lib/api.js";
import { ago, command, figure, moment, quoted, visible } from "../lib/format.js";
import { href, set } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Menu, Request, Status, Trouble, operates, useLoaded, useTick } from "../lib/parts.js";
import { BulkDialog, VERBS } from "../lib/bulk.js";
import { Chips, words } from "../lib/filter.js";
import { Dialog } from "../lib/dialog.js";
import { offer } from "../lib/palette.js";
import { calm, watch } from "../lib/stream.js";
import { useWindow } from "../lib/window.js";

const STATUSES = ["running", "waiting", "stuck", "completed", "failed", "cancelled"];
const PAGE = 200;
const COLUMNS = {
  version: ["version", (each) => html`<span class="mono">${visible(each.version)}</span>`],
  started_at: ["started", (each) => html`<span title=${each.started_at}>${moment(each.started_at)}</span>`],
  changed_at: ["changed", (each) => html`<span title=${String(each.changed_at)}>${ago(each.changed_at)}</span>`],
  ended_at: ["ended", (each) => (each.ended_at ? moment(each.ended_at) : "")],
  instance: ["number", (each) => html`<span class="mono">@${each.instance}</span>`],
};
const USUAL = ["started_at", "changed_at"];

export default function Instances({ query, setLive, me }) {
  const q = query.get("q") ?? "";
  const order = query.get("order") === "started" ? "started" : "-started";
  const columns = query.has("cols") ? query.get("cols").split(",").filter(Boolean) : USUAL;
  const [text, setText] = useState(q);
  const [more, setMore] = useState([]);
  const [moved, setMoved] = useState({});
  const [fresh, setFresh] = useState(0);
  const [picked, setPicked] = useState({ ids: new Set(), all: false });
  const [dialog, setDialog] = useState(null);
  useEffect(() => { setText(q); setMore([]); setFresh(0); setMoved({}); setPicked({ ids: new Set(), all: false }); }, [q, order]);
  const { value, error, again } = useLoaded(async () => {
    const [list, count, facets, workflows] = await Promise.all([get("/instances", { q, order, limit: PAGE }), get("/instances/count", { q }), get("/instances/facets"), get("/workflows")]);
    return { q: `${order}${q}`, list, count: count.count, facets: facets.items, nouns: Object.fromEntries(workflows.items.map((each) => [each.name, each.noun])) };
  }, [q, order]);
  const reload = () => { setMore([]); setFresh(0); setMoved({}); again(); };
  const known = useRef(new Set());
  const items = value ? [value.list, ...more].flatMap((page) => page.items).map((each) => (moved[each.instance] ? { ...each, ...moved[each.instance] } : each)) : [];
  useEffect(() => { known.current = new Set(items.map((each) => each.instance)); }, [value, more]);
  const ready = value?.q === `${order}${q}`;
  useEffect(() => {
    if (!ready) return undefined;
    return watch([`list:${q}`], (name, data) => {
      if (name === "gap") reload();
      else if (known.current.has(data.instance)) setMoved((old) => ({ ...old, [data.instance]: { status: data.status, reason: data.reason, changed_at: data.changed_at } }));
      else if (data.fits) { known.current.add(data.instance); setFresh((n) => n + 1); }
    }, setLive, value.list.at);
  }, [q, order, ready]);
  useTick(10000);
  const next = more.length ? more.at(-1).next : value?.list.next;
  const asking = useRef(false);
  const further = async () => {
    if (!next || asking.current) return;
    asking.current = true;
    try { const page = await get("/instances", { q, order, limit: PAGE, cursor: next }); setMore((old) => [...old, page]); } finally { asking.current = false; }
  };
  const pick = (id) => { const ids = new Set(picked.ids); if (!ids.delete(id)) ids.add(id); setPicked({ ids, all: false }); };
  const clear = () => setPicked({ ids: new Set(), all: false });
  const size = picked.all ? value?.count : picked.ids.size;
  const acts = operates(me) && !me.read_only;
  useEffect(() => offer(size ? Object.entries(VERBS).map(([verb, { label, icon }]) => ({ text: `${label.replace("…", "")} ${figure(size)} selected`, icon, run: () => setDialog({ verb }) })) : []), [size]);
  const tags = [...new Set(items.slice(0, 300).flatMap((each) => Object.keys(each.tags)))].sort();
  return html`
<div class="head"><h1>Instances</h1>${value && html`<span class="muted">${figure(value.count)} match${q ? `, of ${figure(value.facets.reduce((sum, each) => sum + each.count, 0))}` : ""}</span>`}
  <div class="end">${operates(me) && html`<a class="btn quiet" href=${href("/bulk")}>Bulks</a>`}<${Menu} label="Export">${["csv", "jsonl"].map((format) => html`<a href=${exported(q, format, columns)} download>${format === "csv" ? "As CSV" : "As JSON lines"}</a>`)}<//>
  ${acts && html`<a class="btn" href=${href("/workflows")}><${Icon} name="plus" />Start…</a>`}</div></div>
<div class="stack near">
<${Bookmarks} q=${q} columns=${columns} usual=${!query.has("cols")} me=${me} />
<form class="query" role="search" onSubmit=${(event) => { event.preventDefault(); set({ q: text }); }}>
  <div class="box"><${Icon} name="search" /><input class="field mono" type="search" aria-label="Filter" data-filter value=${text} onInput=${(e) => setText(e.target.value)}
    placeholder="status:stuck tag.customer:c-7 started>2026-11-01 -workflow:probe*" spellcheck="false" autocomplete="off" /></div>
  <button class="btn first" type="submit">Filter</button>${q && html`<button class="btn quiet" type="button" onClick=${() => set({ q: "" })}>Clear</button>`}
  <${Menu} label="Columns">${[...Object.entries(COLUMNS).map(([name, [label]]) => [name, label]), ...tags.map((name) => [`tag.${name}`, `tag ${name}`])].map(([name, label]) => html`<label><input type="checkbox" checked=${columns.includes(name)} onChange=${() => set({ cols: (columns.includes(name) ? columns.filter((each) => each !== name) : [...columns, name]).join(",") || "," })} />${visible(label)}</label>`)}<//>
</form>
<${Chips} q=${q} change=${(changed) => set({ q: changed })} /></div>
${error && html`<${Trouble} error=${error} again=${reload} />`}
${!value && !error && html`<${Bones} />`}
${value && !error && html`<div class="list">
<aside class="wide-only" aria-label="Facets"><${Facets} q=${q} facets=${value.facets} nouns=${value.nouns} /></aside>
<section class="sect" aria-label="Instances">
  ${size > 0 && html`<div class="pick" role="status"><b class="strong">${figure(size)} selected</b>${!picked.all && (value.count > picked.ids.size || typeof value.count === "string") && html`<button class="plain link" type="button" onClick=${() => setPicked({ ids: new Set(), all: true })}>Select all ${figure(value.count)} that match</button>`}
    <span class="end">${Object.entries(VERBS).map(([verb, { label, icon, risk }]) => html`<button class=${`btn small${risk ? " risk" : ""}`} type="button" onClick=${() => setDialog({ verb })}><${Icon} name=${icon} />${label}</button>`)}<button class="btn quiet small" type="button" data-key="Escape" onClick=${clear}>Clear <kbd>Esc</kbd></button></span></div>`}
  <div class="sheet">${fresh > 0 && html`<button class="new" type="button" onClick=${reload}>${fresh} new</button>`}
  ${items.length === 0 ? html`<${None} q=${q} />` : html`<${Rows} items=${items} columns=${columns} count=${value.count} acts=${acts} picked=${picked} pick=${pick} page=${(all) => setPicked({ ids: new Set(all ? items.map((each) => `@${each.instance}`) : []), all: false })} further=${further} order=${order} />`}
  ${next && html`<div class="more"><button class="btn small" type="button" onClick=${further}>${value.list.partial ? "Search on" : `${PAGE} more`}</button></div>`}
</div>
<div class="wide-only">${told(q)}</div></section></div>`}
${dialog && html`<${BulkDialog} verb=${dialog.verb} selection=${picked.all ? { q: q || "started>1970-01-01" } : { ids: [...picked.ids] }} size=${size} close=${() => setDialog(null)} />`}`;
}

const exported = (q, format, columns) => {
  const query = new URLSearchParams({ q, format });
  if (format === "csv") query.set("columns", ["id", "status", "reason", ...columns].join(","));
  return `${root}/api/v1/instances/export?${query}`;
};

function Rows({ items, columns, count, acts, picked, pick, page, further, order }) {
  const { box, first, last, above, below } = useWindow(items.length, 32, { whole: true });
  useEffect(() => { if (last > items.length - 60) further(); }, [last, items.length]);
  const all = picked.all || items.every((each) => picked.ids.has(`@${each.instance}`));
  const wide = 3 + columns.length + (acts ? 1 : 0);
  const has = (name) => columns.includes(name);
  return html`<table class="ledger inst" ref=${box} aria-rowcount=${typeof count === "number" ? count : -1}>
  <thead><tr>${acts && html`<th class="c-x"><input type="checkbox" checked=${all} aria-label="Select the rows that are here" onChange=${() => page(!all)} /></th>`}<th class="c-st">status</th><th class="c-id">instance</th><th>why</th>${columns.map((name) => (name === "started_at" ? html`<th class="c-t num" aria-sort=${order === "started" ? "ascending" : "descending"}><button class="plain" type="button" title=${order === "started" ? "Newest first" : "Oldest first"} onClick=${() => set({ order: order === "started" ? "" : "started" })}>started <span class="arrow" aria-hidden="true">${order === "started" ? "↑" : "↓"}</span></button></th>` : html`<th class=${name.startsWith("tag.") ? "c-tag" : "c-t num"}>${visible(COLUMNS[name]?.[0] ?? name.replace("tag.", ""))}</th>`))}</tr></thead>
  <tbody>${above > 0 && html`<tr aria-hidden="true" class="gap"><td colspan=${wide} style=${{ height: `${above}px` }}></td></tr>`}
  ${items.slice(first, last).map((each, n) => { const id = `@${each.instance}`; const chosen = picked.all || picked.ids.has(id); const tags = Object.entries(each.tags).filter(([name]) => !has(`tag.${name}`)); return html`<tr key=${each.instance} aria-rowindex=${first + n + 2} aria-selected=${chosen ? "true" : null}>
    ${acts && html`<td class="c-x"><input type="checkbox" checked=${chosen} aria-label=${`Select ${each.id}`} onChange=${() => pick(id)} /></td>`}<td class="c-st"><${Status} of=${each.status} /></td>
    <td class="c-id"><${Id} id=${each.id} of=${each.workflow} row=${true} />${each.generation > 1 && html` <span class="muted">generation ${each.generation}</span>`}</td>
    <td class="why"><span>${visible(each.reason.replace("child perdure.task", "a task"))}</span>${tags.length > 0 && html`<span class="tags">${tags.slice(0, 4).map(([name, value]) => html`<span class="tag">${visible(name)}:${visible(value)}</span>`)}</span>`}</td>
    ${columns.map((name) => (name.startsWith("tag.") ? html`<td class="c-tag mono">${visible(each.tags[name.slice(4)] ?? "")}</td>` : html`<td class="c-t num second">${COLUMNS[name]?.[1](each)}</td>`))}</tr>`; })}
  ${below > 0 && html`<tr aria-hidden="true" class="gap"><td colspan=${wide} style=${{ height: `${below}px` }}></td></tr>`}</tbody></table>`;
}

// Lists that were saved: own ones, and those that others share.
function Bookmarks({ q, columns, usual, me }) {
  const { value, again } = useLoaded(() => get("/bookmarks").catch(() => ({ items: [] })), []);
  const [saving, setSaving] = useState(false);
  const cols = usual ? [] : columns;
  const operator = operates(me);
  const here = value?.items.find((each) => each.q === q && each.columns.join() === cols.join());
  const shown = [...(value?.items ?? [])].sort((a, b) => b.pinned - a.pinned);
  if (!value || (!shown.length && !q && usual)) return null;
  const put = (given) => send("PUT", `/bookmarks/${part(given.name)}`, { q, columns: cols, shared: given.shared === "everyone", pinned: given.pinned === "yes" });
  return html`<nav class="tabs" aria-label="Bookmarks"><a href=${href("/instances")} aria-current=${!q && usual ? "true" : null}>All</a>
    ${shown.map((each) => html`<a href=${href("/instances", { q: each.q, cols: each.columns.join(",") })} aria-current=${each === here ? "true" : null} title=${each.q}>${visible(each.name)}${each.shared && html`<span class="n">shared</span>`}</a>`)}
    <span class="end">${here?.own ? html`<button class="btn quiet small" type="button" onClick=${() => send("DELETE", `/bookmarks/${part(here.name)}`).then(again)}>Delete ${visible(here.name)}</button>` : (q || !usual) && html`<button class="btn quiet small" type="button" onClick=${() => setSaving(true)}>Save as bookmark…</button>`}</span></nav>
  ${saving && html`<${Dialog} title="Save this list as a bookmark" label="Save" says=${`Its filter${q ? ` ${q}` : ""} and its columns.`} fields=${[{ name: "name", label: "Name" }, { name: "shared", label: "For", options: operator ? ["me", "everyone"] : ["me"], value: "me" }, { name: "pinned", label: "First in the row", options: ["no", "yes"], value: "no" }]}
    request=${(given) => ["PUT", `/bookmarks/${part(given.name || "NAME")}`, { q, columns: cols, shared: given.shared === "everyone", pinned: given.pinned === "yes" }]} run=${put} close=${() => { setSaving(false); again(); }} />`}`;
}

// The command line has options for single values of these fields; the rest is said by the request.
function told(q) {
  const all = words(q);
  const options = all.map((word) => {
    const [, field, value] = word.match(/^(workflow|status):([^*]+)$/) ?? [];
    const [, tag, text] = word.match(/^tag\.([^:<>]+):([^*]+)$/) ?? [];
    return field ? [`--${field}`, value] : tag ? ["--tag", `${tag}=${text}`] : null;
  });
  const single = new Set(all.map((word) => word.split(":")[0])).size === all.length;
  if (options.includes(null) || !single) return html`<${Request} of=${["GET", `/instances?q=${encodeURIComponent(q)}`]} />`;
  return html`<${Cmd} text=${command("ls", ...options.flat())} />`;
}

function None({ q }) {
  return q
    ? html`<${Empty} title="No instance matches"><p class="second">Instances with <code>${q}</code> would stand here.</p><div class="row-btns"><button class="btn" type="button" onClick=${() => set({ q: "" })}>Drop the filter</button></div><//>`
    : html`<${Empty} title="Nothing has run yet"><p class="second">Every started workflow is a line here. This starts one:</p><${Cmd} text=${`perdure start WORKFLOW --input '{}' --key first`} /><//>`;
}

// Counts are those of the whole book, narrowed by what the other facets choose.
function Facets({ q, facets, nouns }) {
  const all = words(q);
  const toggle = (word) => set({ q: (all.includes(word) ? all.filter((each) => each !== word) : [...all, word]).join(" ") });
  const chosen = (field) => all.filter((each) => each.startsWith(`${field}:`)).map((each) => each.slice(field.length + 1).replace(/^'(.*)'$/, "$1"));
  const [statuses, names] = [chosen("status"), chosen("workflow")];
  const sum = (test) => facets.filter(test).reduce((total, each) => total + each.count, 0);
  const known = [...new Set(facets.map((each) => each.workflow))].sort();
  const dialects = [...new Set(known.map((each) => nouns[each]).filter(Boolean))].sort();
  const box = (word, text, count, on = all.includes(word), change = () => toggle(word)) => html`<label key=${word}><input type="checkbox" checked=${on} onChange=${change} /><span class="t">${text}</span><span class="n">${figure(count)}</span></label>`;
  const of = (dialect) => known.filter((each) => nouns[each] === dialect).map((each) => `workflow:${quoted(each)}`);
  const turn = (list) => set({ q: (list.every((each) => all.includes(each)) ? all.filter((each) => !list.includes(each)) : [...new Set([...all, ...list])]).join(" ") });
  return html`<fieldset class="facet"><legend>status</legend>${STATUSES.map((each) => box(`status:${each}`, html`<${Status} of=${each} />`, sum((f) => f.status === each && (!names.length || names.includes(f.workflow)))))}</fieldset>
    <fieldset class="facet"><legend>workflow</legend>${known.slice(0, 30).map((each) => box(`workflow:${quoted(each)}`, html`<code>${each}</code>`, sum((f) => f.workflow === each && (!statuses.length || statuses.includes(f.status)))))}</fieldset>
    ${dialects.length > 1 && html`<fieldset class="facet"><legend>dialect</legend>${dialects.map((each) => box(each, each, sum((f) => nouns[f.workflow] === each && (!statuses.length || statuses.includes(f.status))), of(each).every((word) => all.includes(word)), () => turn(of(each))))}</fieldset>`}`;
}
