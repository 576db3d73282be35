// All instances: filter by text, chips or facets; bookmarks and columns; select rows, or all that match, for a bulk.
import { html, steady, useEffect, useRef, useState } from "../lib/html.js";
import { get, part, root, send } from "../lib/api.js";
import { ago, command, figure, moment, quoted, visible } from "../lib/format.js";
import { href, set } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Menu, Polite, Status, Trouble, operates, useLoaded, useTick } from "../lib/parts.js";
import { BulkDialog, VERBS } from "../lib/bulk.js";
import { Chips, STATUSES, passes, words } from "../lib/filter.js";
import { Dialog } from "../lib/dialog.js";
import { ask, offer } from "../lib/palette.js";
import { Reason } from "../lib/reasons.js";
import { calm, watch } from "../lib/stream.js";
import { useWindow } from "../lib/window.js";

const PAGE = 200;
const COLUMNS = {
  version: ["version", (each) => html`<span class="mono" title=${each.version}>${visible(each.version)}</span>`],
  started_at: ["started", (each) => html`<span title=${each.started_at}>${moment(each.started_at)}</span>`],
  changed_at: ["changed", (each) => html`<span title=${String(each.changed_at)}>${ago(each.changed_at)}</span>`],
  ended_at: ["ended", (each) => (each.ended_at ? moment(each.ended_at) : "")],
  instance: ["number", (each) => html`<span class="mono">@${each.instance}</span>`],
};
const kind = (name) => (name.startsWith("tag.") ? "c-tag" : name === "version" ? "c-ver" : "c-t num");
const USUAL = ["started_at", "changed_at"];

const ORDERS = { "-started": "newest first", started: "oldest first", "-changed": "last changed first" };
// The order of changes is kept for those that wait for something or need a person.
const CHANGED = new Set(["waiting", "stuck", "failed"]);
const orders = (q) => { const statuses = words(q).filter((each) => each.startsWith("status:")).map((each) => each.slice(7)); return statuses.length && statuses.every((each) => CHANGED.has(each)) ? Object.keys(ORDERS) : ["-started", "started"]; };

export default function Instances({ query, setLive, me }) {
  const q = query.get("q") ?? "";
  const order = ORDERS[query.get("order")] && orders(q).includes(query.get("order")) ? query.get("order") : "-started";
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
  const tick = useTick(10000);
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
  ${acts && html`<button class="btn" type="button" onClick=${() => ask("Start ")}><${Icon} name="plus" />Start…</button>`}</div></div>
<div class="stack near">
<${Bookmarks} q=${q} columns=${columns} usual=${!query.has("cols")} order=${order === "-started" ? "" : order} me=${me} />
<form class="query" role="search" onSubmit=${(event) => { event.preventDefault(); set({ q: text }); }}>
  <div class="box"><${Icon} name="search" /><input class="field mono" type="search" aria-label="Filter" data-filter value=${text} onInput=${(e) => setText(e.target.value)}
    placeholder="status:stuck tag.customer:c-7 started>2026-11-01 -workflow:probe*" spellcheck="false" autocomplete="off" /></div>
  <button class="btn first" type="submit">Filter</button>${q && html`<button class="btn quiet" type="button" onClick=${() => set({ q: "" })}>Clear</button>`}
  <${Menu} label=${`Order: ${ORDERS[order]}`}>${Object.entries(ORDERS).map(([name, text]) => html`<label class=${orders(q).includes(name) ? null : "muted"} title=${orders(q).includes(name) ? null : "For status waiting, stuck or failed"}><input type="radio" name="order" checked=${order === name} disabled=${!orders(q).includes(name)} onChange=${() => set({ order: name === "-started" ? "" : name })} />${text}</label>`)}<//>
  <${Menu} label="Columns">${[...Object.entries(COLUMNS).map(([name, [label]]) => [name, label]), ...tags.map((name) => [`tag.${name}`, `tag ${name}`])].map(([name, label]) => html`<label><input type="checkbox" checked=${columns.includes(name)} onChange=${() => set({ cols: (columns.includes(name) ? columns.filter((each) => each !== name) : [...columns, name]).join(",") || "," })} />${visible(label)}</label>`)}<//>
</form>
<div class="told"><${Chips} q=${q} change=${(changed) => set({ q: changed })} /><div class="wide-only">${told(q)}</div></div></div>
${error && html`<${Trouble} error=${error} again=${reload}>${meant(q, error) && html`<button class="btn first" type="button" onClick=${() => set({ q: meant(q, error) })}>Use ${visible(meant(q, error))}</button>`}<//>`}
${!value && !error && html`<${Bones} />`}
${value && !error && html`<div class="list">
<aside class="wide-only" aria-label="Facets"><${Facets} q=${q} facets=${value.facets} nouns=${value.nouns} /></aside>
<section class=${`sect${ready ? "" : " is-old"}`} aria-label="Instances" aria-busy=${!ready}>
  ${size > 0 && html`<div class="pick" role="status"><b class="strong">${figure(size)} selected</b>${!picked.all && (value.count > picked.ids.size || typeof value.count === "string") && html`<button class="plain link" type="button" onClick=${() => setPicked({ ids: new Set(), all: true })}>Select all ${figure(value.count)} that match</button>`}
    <span class="end">${Object.entries(VERBS).map(([verb, { label, icon, risk }]) => html`<button class=${`btn small${risk ? " risk" : ""}`} type="button" onClick=${() => setDialog({ verb })}><${Icon} name=${icon} />${label}</button>`)}<button class="btn quiet small" type="button" data-key="Escape" onClick=${clear}>Clear <kbd>Esc</kbd></button></span></div>`}
  <div class="sheet"><${Polite} text=${fresh > 0 ? `${figure(fresh)} new` : ""} />${fresh > 0 && html`<button class="new" type="button" onClick=${reload}>${figure(fresh)} new</button>`}
  ${items.length === 0 ? html`<${None} q=${q} />` : html`<${Rows} items=${items} nouns=${value.nouns} columns=${columns} count=${value.count} acts=${acts} picked=${picked} pick=${pick} tick=${tick} page=${(all) => setPicked({ ids: new Set(all ? items.map((each) => `@${each.instance}`) : []), all: false })} further=${further} order=${order} />`}
  ${next && html`<div class="more"><button class="btn small" type="button" onClick=${further}>${value.list.partial ? "Search on" : `${PAGE} more`}</button></div>`}
</div>
</section></div>`}
${dialog && html`<${BulkDialog} verb=${dialog.verb} selection=${picked.all ? { q: q || "started>1970-01-01" } : { ids: [...picked.ids] }} size=${size} close=${() => setDialog(null)} />`}`;
}

const exported = (q, format, columns) => {
  const query = new URLSearchParams({ q, format });
  if (format === "csv") query.set("columns", ["id", "status", "reason", ...columns].join(","));
  return `${root}/api/v1/instances/export?${query}`;
};

function Rows({ items, nouns, columns, count, acts, picked, pick, tick, page, further, order }) {
  const { box, first, last, above, below } = useWindow(items.length, 32, { whole: true });
  useEffect(() => { if (last > items.length - 60) further(); }, [last, items.length]);
  const all = picked.all || items.every((each) => picked.ids.has(`@${each.instance}`));
  const wide = 3 + columns.length + (acts ? 1 : 0);
  return html`<table class="ledger inst" ref=${box} aria-rowcount=${typeof count === "number" ? count : -1}>
  <thead><tr>${acts && html`<th class="c-x"><input type="checkbox" checked=${all} aria-label="Select the rows that are here" onChange=${() => page(!all)} /></th>`}<th class="c-st">status</th><th class="c-id">instance</th><th>why</th>${columns.map((name) => (name === "started_at" ? html`<th class="c-t num" aria-sort=${order === "started" ? "ascending" : order === "-started" ? "descending" : "none"}><button class="plain" type="button" title=${order === "started" ? "Newest first" : "Oldest first"} onClick=${() => set({ order: order === "started" ? "" : "started" })}>started <span class="arrow" aria-hidden="true">${order === "started" ? "↑" : order === "-started" ? "↓" : ""}</span></button></th>` : html`<th class=${kind(name)} aria-sort=${name === "changed_at" && order === "-changed" ? "descending" : null}>${visible(COLUMNS[name]?.[0] ?? name.replace("tag.", ""))}${name === "changed_at" && order === "-changed" && html` <span class="arrow" aria-hidden="true">↓</span>`}</th>`))}</tr></thead>
  <tbody>${above > 0 && html`<tr aria-hidden="true" class="gap"><td colspan=${wide} style=${{ height: `${above}px` }}></td></tr>`}
  ${items.slice(first, last).map((each, n) => html`<${Row} key=${each.instance} each=${each} index=${first + n + 2} noun=${nouns[each.workflow]} columns=${columns} acts=${acts} chosen=${picked.all || picked.ids.has(`@${each.instance}`)} pick=${pick} tick=${tick} />`)}
  ${below > 0 && html`<tr aria-hidden="true" class="gap"><td colspan=${wide} style=${{ height: `${below}px` }}></td></tr>`}</tbody></table>`;
}

// `tick`: durations are told again with each of them.
const Row = steady(({ each, index, noun, columns, acts, chosen, pick }) => {
  const tags = Object.entries(each.tags).filter(([name]) => !columns.includes(`tag.${name}`));
  return html`<tr aria-rowindex=${index} aria-selected=${chosen ? "true" : null}>
    ${acts && html`<td class="c-x"><input type="checkbox" checked=${chosen} aria-label=${`Select ${each.id}`} onChange=${() => pick(`@${each.instance}`)} /></td>`}<td class="c-st"><${Status} of=${each.status} /></td>
    <td class="c-id"><${Id} id=${each.id} of=${each.workflow} row=${true} />${each.generation > 1 && html` <span class="muted">generation ${each.generation}</span>`}</td>
    <td class="why"><span title=${each.reason}><${Reason} of=${each} noun=${noun} /></span>${tags.length > 0 && html`<span class="tags">${tags.slice(0, 4).map(([name, value]) => html`<span class="tag">${visible(name)}:${visible(value)}</span>`)}</span>`}</td>
    ${columns.map((name) => html`<td class=${`${kind(name)} second`}>${name.startsWith("tag.") ? html`<span class="mono" title=${visible(each.tags[name.slice(4)] ?? "")}>${visible(each.tags[name.slice(4)] ?? "")}</span>` : COLUMNS[name]?.[1](each)}</td>`)}</tr>`;
});

// Lists that were saved: own ones, and those that others share.
function Bookmarks({ q, columns, usual, order, me }) {
  const { value, again } = useLoaded(() => get("/bookmarks").catch(() => ({ items: [] })), []);
  const [saving, setSaving] = useState(false);
  const cols = usual ? [] : columns;
  const operator = operates(me);
  const here = value?.items.find((each) => each.q === q && each.columns.join() === cols.join() && each.order === order);
  const shown = [...(value?.items ?? [])].sort((a, b) => b.pinned - a.pinned);
  const body = (given) => ({ q, columns: cols, order, shared: given.shared === "everyone", pinned: given.pinned === "yes" });
  return html`<nav class="tabs" aria-label="Bookmarks"><a href=${href("/instances")} aria-current=${!q && usual && !order ? "true" : null}>All</a>
    ${shown.map((each) => html`<a href=${href("/instances", { q: each.q, cols: each.columns.join(","), order: each.order })} aria-current=${each === here ? "true" : null} title=${`${each.q}${each.shared ? " (shared)" : ""}`}>${visible(each.name)} <${Many} q=${each.q} /></a>`)}
    <span class="end">${here?.own ? html`<button class="btn quiet small" type="button" onClick=${() => send("DELETE", `/bookmarks/${part(here.name)}`).then(again)}>Delete ${visible(here.name)}</button>` : (q || !usual || order) && html`<button class="btn quiet small" type="button" onClick=${() => setSaving(true)}>Save as bookmark…</button>`}</span></nav>
  ${saving && html`<${Dialog} title="Save this list as a bookmark" label="Save" says=${`Its filter${q ? ` ${q}` : ""}, its columns and its order.`} fields=${[{ name: "name", label: "Name" }, { name: "shared", label: "For", options: operator ? ["me", "everyone"] : ["me"], value: "me" }, { name: "pinned", label: "First in the row", options: ["no", "yes"], value: "no" }]}
    request=${(given) => ["PUT", `/bookmarks/${part(given.name || "NAME")}`, body(given)]} close=${() => { setSaving(false); again(); }} />`}`;
}

// How many a bookmark has now.
function Many({ q }) {
  const { value } = useLoaded(() => get("/instances/count", { q }).catch(() => null), [q]);
  return value && html`<span class="n">${figure(value.count)}</span>`;
}

// The same list as a command: options where it is that simple, else the filter as it stands.
function told(q) {
  const all = words(q);
  const options = all.map((word) => {
    const [, field, value] = word.match(/^(workflow|status):([^*]+)$/) ?? [];
    const [, tag, text] = word.match(/^tag\.([^:<>]+):([^*]+)$/) ?? [];
    return field ? [`--${field}`, value] : tag ? ["--tag", `${tag}=${text}`] : null;
  });
  const single = new Set(all.map((word) => word.split(":")[0])).size === all.length;
  return html`<${Cmd} text=${command("ls", ...(options.includes(null) || !single ? ["--where", q] : options.flat()))} />`;
}

function None({ q }) {
  const all = words(q);
  const { value } = useLoaded(() => Promise.all(all.length > 1 ? all.slice(0, 4).map(async (word) => { const left = all.filter((each) => each !== word).join(" "); return { word, left, n: (await get("/instances/count", { q: left })).count }; }) : []).catch(() => []), [q]);
  if (!q) return html`<${Empty} title="Nothing has run yet"><p class="second">Every started workflow is a line here. This starts one:</p><${Cmd} text=${command("start", "WORKFLOW", "--input", "{}", "--key", "first")} /><//>`;
  return html`<${Empty} title="No instance matches"><p class="second">Instances with <code>${visible(q)}</code> would stand here.</p>
    ${(value ?? []).filter((each) => each.n).map((each) => html`<p class="second">Without <code>${visible(each.word)}</code> there are <button class="plain link" type="button" onClick=${() => set({ q: each.left })}>${figure(each.n)}</button>.</p>`)}
    <div class="row-btns"><button class="btn" type="button" onClick=${() => set({ q: "" })}>Drop the filter</button></div><//>`;
}

// The filter with the name that was meant, if the server knows which.
function meant(q, error) {
  const [, wrong, right] = error.problem?.code === "bad-filter" ? error.message.match(/'(\w+)'; did you mean '(\w+)'/) ?? [] : [];
  return wrong ? words(q).map((word) => word.replace(new RegExp(`^(-?)${wrong}(?=[:<>])`), `$1${right}`)).join(" ") : "";
}

// Counts are those of the whole book, narrowed by what the other facets choose. A box says "one of these", `not` the opposite.
function Facets({ q, facets, nouns }) {
  const all = words(q);
  const [status, workflow, dialect, version] = ["status", "workflow", "dialect", "version"].map((field) => passes(all, field));
  const fits = { status: (f) => status(f.status), workflow: (f) => workflow(f.workflow), dialect: (f) => dialect(nouns[f.workflow] ?? ""), version: (f) => version(f.version) };
  const groups = useLoaded(() => get("/instances/groups", { q: ["status:waiting status:stuck status:failed", ...all.filter((each) => /^-?workflow:/.test(each))].join(" ") }).catch(() => null), [all.filter((each) => /^-?workflow:/.test(each)).join()]);
  const sum = (field, test) => facets.filter((f) => test(f) && Object.entries(fits).every(([name, fit]) => name === field || fit(f))).reduce((total, each) => total + each.count, 0);
  const known = [...new Set(facets.map((each) => each.workflow))].sort();
  const dialects = [...new Set(known.map((each) => nouns[each]).filter(Boolean))].sort();
  const turn = (word) => set({ q: (all.includes(word) ? all.filter((each) => each !== word) : [...all.filter((each) => each !== (word.startsWith("-") ? word.slice(1) : `-${word}`)), word]).join(" ") });
  const box = (word, text, count) => html`<div class="row" key=${word}><label><input type="checkbox" checked=${all.includes(word)} onChange=${() => turn(word)} /><span class="t">${text}</span></label><button class="not" type="button" aria-pressed=${all.includes(`-${word}`)} aria-label=${`not ${word}`} title="All but these" onClick=${() => turn(`-${word}`)}>not</button><span class=${`n${count ? "" : " zero"}`}>${figure(count)}</span></div>`;
  const kinds = counted(groups.value?.items ?? [], (each) => (each.status === "waiting" ? each.reason.split(", ") : []).map((text) => WAITS[text.split(" ")[0] === "child" && text.endsWith(" perdure.task") ? "task" : text.split(" ")[0]]));
  const errors = counted(groups.value?.items ?? [], (each) => (each.status === "waiting" || !each.reason ? [] : [each.reason.split(" at ")[0]]));
  const more = groups.value?.partial ? "+" : "";
  return html`<fieldset class="facet"><legend>status</legend>${STATUSES.map((each) => box(`status:${each}`, html`<${Status} of=${each} />`, sum("status", (f) => f.status === each)))}</fieldset>
    ${known.length > 0 && html`<fieldset class="facet"><legend>workflow</legend>${known.slice(0, 30).map((each) => box(`workflow:${quoted(each)}`, html`<code>${visible(each)}</code>`, sum("workflow", (f) => f.workflow === each)))}</fieldset>`}
    ${kinds.length > 0 && html`<fieldset class="facet"><legend>waits for</legend>${kinds.map(([[text, word], n]) => box(word, text, `${figure(n)}${more}`))}</fieldset>`}
    ${errors.length > 0 && html`<fieldset class="facet"><legend>error</legend>${errors.slice(0, 12).map(([type, n]) => box(`error_type:${quoted(type)}`, visible(type), `${figure(n)}${more}`))}</fieldset>`}
    ${dialects.length > 1 && html`<fieldset class="facet"><legend>dialect</legend>${dialects.map((each) => box(`dialect:${each}`, each, sum("dialect", (f) => nouns[f.workflow] === each)))}</fieldset>`}`;
}

const WAITS = { message: ["message", "waits_for:message*"], timer: ["timer", "waits_for:timer*"], task: ["task", "waits_for:'child perdure.task'"], child: ["child", "waits_for:child*"], queue: ["queue", "waits_for:queue*"], effect: ["effect", "waits_for:effect*"] };

// How many instances have each, the most first.
function counted(groups, of) {
  const found = new Map();
  for (const each of groups) for (const kind of new Set(of(each).filter(Boolean))) found.set(kind, (found.get(kind) ?? 0) + each.count);
  return [...found].sort((a, b) => b[1] - a[1]);
}
