// All instances: filter by text or facets, newest first, live above the pointer.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { ago, command, figure, moment, visible } from "../lib/format.js";
import { set } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Status, Trouble, useLoaded, useTick } from "../lib/parts.js";
import { calm, watch } from "../lib/stream.js";

const STATUSES = ["running", "waiting", "stuck", "completed", "failed", "cancelled"];

export default function Instances({ query, setLive }) {
  const q = query.get("q") ?? "";
  const [text, setText] = useState(q);
  const [more, setMore] = useState([]);
  const [fresh, setFresh] = useState(0);
  useEffect(() => { setText(q); setMore([]); setFresh(0); }, [q]);
  const { value, error, again } = useLoaded(async () => {
    const [list, count, facets] = await Promise.all([
      get("/instances", { q, limit: 100 }), get("/instances/count", { q }), get("/instances/facets"),
    ]);
    return { list, count: count.count, facets: facets.items };
  }, [q]);
  const reload = () => { setMore([]); setFresh(0); again(); };
  const known = useRef(new Set());
  useEffect(() => { known.current = new Set((value?.list.items ?? []).map((each) => each.instance)); }, [value]);
  const at = useRef("");
  if (value && !at.current) at.current = value.list.at;
  useEffect(() => {
    if (!at.current) return undefined;
    const refresh = calm(again, 1500);
    return watch([`list:${q}`], (name, data) => {
      if (name === "gap") return reload();
      if (known.current.has(data.instance)) refresh();
      else if (data.fits) { known.current.add(data.instance); setFresh((n) => n + 1); }
    }, setLive, at.current);
  }, [q, Boolean(value)]);
  useTick(10000);
  const items = [...(value?.list.items ?? []), ...more.flatMap((page) => page.items)];
  const next = more.length ? more.at(-1).next : value?.list.next;
  return html`
<div class="head"><h1>Instances</h1>${value && html`<span class="muted">${figure(value.count)} match</span>`}</div>
<div class="stack">
<form class="query" role="search" onSubmit=${(event) => { event.preventDefault(); set({ q: text }); }}>
  <div class="box"><${Icon} name="search" /><input class="field mono" type="search" aria-label="Filter" data-filter value=${text} onInput=${(e) => setText(e.target.value)}
    placeholder="status:stuck tag.customer:c-7 started>2026-11-01 -workflow:probe*" spellcheck="false" autocomplete="off" /></div>
  <button class="btn first" type="submit">Filter</button>${q && html`<button class="btn quiet" type="button" onClick=${() => set({ q: "" })}>Clear</button>`}
</form></div>
${error && html`<${Trouble} error=${error} again=${reload} />`}
${!value && !error && html`<${Bones} />`}
${value && !error && html`<div class="list">
<aside class="wide-only" aria-label="Facets"><${Facets} q=${q} facets=${value.facets} /></aside>
<section class="sect" aria-label="Instances"><div class="sheet">
  ${fresh > 0 && html`<button class="new" type="button" onClick=${reload}>${fresh} new</button>`}
  ${items.length === 0 ? html`<${None} q=${q} />` : html`<table class="ledger inst" aria-rowcount=${typeof value.count === "number" ? value.count : -1}>
  <thead><tr><th class="c-st">status</th><th class="c-id">instance</th><th>why</th><th class="c-t num sorted" aria-sort="descending">started</th><th class="c-t num">changed</th></tr></thead>
  <tbody>${items.map((each) => html`<${Row} key=${each.instance} of=${each} />`)}</tbody></table>`}
  ${next && html`<div class="more"><button class="btn small" type="button" onClick=${async () => setMore([...more, await get("/instances", { q, limit: 100, cursor: next })])}>${value.list.partial ? "Search on" : "100 more"}</button></div>`}
</div>
<div class="wide-only">${told(q)}</div></section></div>`}`;
}

// The command line has options for single values of these fields; the rest is said by the request.
function told(q) {
  const words = q.split(/\s+/).filter(Boolean);
  const options = words.map((word) => {
    const [, field, value] = word.match(/^(workflow|status):([^*]+)$/) ?? [];
    const [, tag, text] = word.match(/^tag\.([^:<>]+):([^*]+)$/) ?? [];
    return field ? [`--${field}`, value] : tag ? ["--tag", `${tag}=${text}`] : null;
  });
  const single = new Set(words.map((word) => word.split(":")[0])).size === words.length;
  if (options.includes(null) || !single) return html`<${Cmd} text=${`GET /api/v1/instances?q=${encodeURIComponent(q)}`} />`;
  return html`<${Cmd} text=${command("ls", ...options.flat())} />`;
}

function Row({ of }) {
  const tags = Object.entries(of.tags);
  return html`<tr><td class="c-st"><${Status} of=${of.status} /></td>
    <td class="c-id"><${Id} id=${of.id} row=${true} />${of.generation > 1 && html` <span class="muted">generation ${of.generation}</span>`}</td>
    <td class="why">${visible(of.reason.replace("child perdure.task", "a task"))}${tags.length > 0 && html`<span class="tags">${tags.slice(0, 4).map(([name, value]) => html`<span class="tag">${visible(name)}:${visible(value)}</span>`)}</span>`}</td>
    <td class="c-t num second" title=${of.started_at}>${moment(of.started_at)}</td><td class="c-t num second" title=${of.changed_at}>${ago(of.changed_at)}</td></tr>`;
}

function None({ q }) {
  return q
    ? html`<${Empty} title="No instance matches"><p class="second">Instances with <code>${q}</code> would stand here.</p><div class="row-btns"><button class="btn" type="button" onClick=${() => set({ q: "" })}>Drop the filter</button></div><//>`
    : html`<${Empty} title="Nothing has run yet"><p class="second">Every started workflow is a line here. This starts one:</p><${Cmd} text=${`perdure start WORKFLOW --input '{}' --key first`} /><//>`;
}

function Facets({ q, facets }) {
  const words = q.split(/\s+/).filter(Boolean);
  const toggle = (word) => set({ q: (words.includes(word) ? words.filter((each) => each !== word) : [...words, word]).join(" ") });
  const sum = (test) => facets.filter(test).reduce((total, each) => total + each.count, 0);
  const names = [...new Set(facets.map((each) => each.workflow))].sort();
  const box = (word, text, count) => html`<label><input type="checkbox" checked=${words.includes(word)} onChange=${() => toggle(word)} /><span class="t">${text}</span><span class="n">${figure(count)}</span></label>`;
  return html`<fieldset class="facet"><legend>status</legend>${STATUSES.map((each) => box(`status:${each}`, html`<${Status} of=${each} />`, sum((f) => f.status === each)))}</fieldset>
    <fieldset class="facet"><legend>workflow</legend>${names.map((each) => box(`workflow:${each}`, html`<code>${each}</code>`, sum((f) => f.workflow === each)))}</fieldset>`;
}
