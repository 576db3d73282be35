// Workflows: what engines know, how many instances each version has and the oldest of them; drawing, source, start.
import { html, useEffect, useState } from "../lib/html.js";
import { get, instancePath, part } from "../lib/api.js";
import { ago, command, count, figure, json, moment, visible } from "../lib/format.js";
import { href, set } from "../lib/router.js";
import { Bones, Cmd, Copy, Empty, Icon, Id, Shape, Status, Trouble, Version, operates, useLoaded, useTick } from "../lib/parts.js";
import { Drawing } from "../lib/drawing.js";
import { offer } from "../lib/palette.js";
import { Activate, Migrate, Preview, Put } from "../lib/put.js";
import { Changes, Code } from "../lib/source.js";
import { Start } from "../lib/start.js";
import { calm, watch } from "../lib/stream.js";

const STATUSES = ["running", "waiting", "stuck", "completed", "failed", "cancelled"];
const LIVE = STATUSES.slice(0, 3);
const DRAWN = new Set(["graph", "playbook", "process"]);
const KEPT = new Set(["playbook", "process"]);
const DIALECTS = new Set(["flow", "cell", "process", "playbook", "graph", "world"]);

const live = (counts) => LIVE.reduce((sum, each) => sum + (counts[each] ?? 0), 0);
const author = (me) => !me.read_only && me.grants.some((each) => ["author", "admin"].includes(each.role));
const oldest = (versions) => versions.map((each) => each.oldest).filter(Boolean).sort((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at))[0];

const Dialect = ({ noun }) => html`<span class="dialect" title=${noun}><${Icon} name=${DIALECTS.has(noun) ? noun : "step"} /><span>${noun}</span></span>`;

const Count = ({ q, n, status }) => html`<td class="num">${n ? html`<a class=${status === "stuck" ? "st-stuck" : "fig"} href=${href("/instances", { q })}>${figure(n)}</a>` : html`<span class="zero">0</span>`}</td>`;

export default function Workflows({ rest, query, me, setLive }) {
  return rest ? html`<${Workflow} name=${rest} query=${query} me=${me} setLive=${setLive} />` : html`<${All} me=${me} query=${query} setLive=${setLive} />`;
}

function All({ me, query, setLive }) {
  const { value, error, again } = useLoaded(() => get("/workflows", { oldest: true }), []);
  const [putting, setPutting] = useState(false);
  useEffect(() => watch(["fleet"], calm(again, 2000), setLive), []);
  useTick(15000);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const find = (query.get("find") ?? "").toLowerCase();
  const nouns = [...new Set(value.items.map((each) => each.noun))].sort();
  const noun = query.get("dialect") ?? "";
  const items = value.items.filter((each) => (!noun || each.noun === noun) && each.name.toLowerCase().includes(find));
  const bad = items.some(lost);
  const sum = (status) => items.reduce((all, each) => all + (each.counts[status] ?? 0), 0);
  return html`<div class="head"><h1>Workflows</h1><span class="muted">${count(value.items.length, "workflow")} that you may see</span><div class="end">${author(me) && html`<button class="btn" type="button" onClick=${() => setPutting(true)}><${Icon} name="plus" />Put a definition…</button>`}</div></div>
  ${value.items.length === 0 ? html`<div class="sheet"><${Empty} title="No workflow yet"><p class="second">An engine registers its workflows when it opens the database:</p><${Cmd} text="perdure serve MODULE --db shop.db" /><//></div>` : html`
  <div class="query"><div class="box"><${Icon} name="search" /><input class="field" type="search" data-filter aria-label="Find a workflow" placeholder="a part of its name" value=${query.get("find") ?? ""} onInput=${(event) => set({ find: event.target.value })} /></div>
    ${nouns.length > 1 && html`<span class="seg" role="group" aria-label="Dialect"><button type="button" aria-pressed=${!noun} onClick=${() => set({ dialect: "" })}>all</button>${nouns.map((each) => html`<button type="button" aria-pressed=${noun === each} onClick=${() => set({ dialect: each })}><${Dialect} noun=${each} /></button>`)}</span>`}</div>
  <div class="scroll"><table class="ledger flush wf-list"><thead><tr><th>workflow</th><th>dialect</th><th class="wide-only">version</th>${STATUSES.map((each) => html`<th class=${`num${LIVE.includes(each) ? "" : " wide-only"}`}>${each}</th>`)}<th class="wide-only">oldest live</th><th class="num wide-only">age</th>${bad && html`<th class="wide-only">problem</th>`}</tr></thead><tbody>
  ${items.map((each) => html`<${Row} key=${each.name} of=${each} bad=${bad} />`)}
  ${items.length === 0 && html`<tr><td colspan="12" class="muted">No workflow has this in its name.</td></tr>`}</tbody>
  <tfoot><tr><th>all</th><td></td><td class="wide-only"></td>${STATUSES.map((each) => html`<td class=${`num${LIVE.includes(each) ? "" : " wide-only"}`}>${figure(sum(each))}</td>`)}<td class="wide-only"></td><td class="wide-only"></td>${bad && html`<td class="wide-only"></td>`}</tr></tfoot></table></div>`}
  ${putting && html`<${Put} close=${(done) => { setPutting(false); if (done) again(); }} />`}`;
}

// Live instances whose code no engine has.
const lost = (of) => of.versions.filter((each) => !each.here).reduce((sum, each) => sum + live(each.counts), 0);

function Row({ of, bad }) {
  const old = oldest(of.versions);
  const shown = of.versions.find((each) => each.active) ?? of.versions.filter((each) => each.here).at(-1) ?? of.versions.at(-1);
  const others = of.versions.length - 1;
  return html`<tr><td><a class="mono" data-row title=${of.name} href=${href(`/workflows/${of.name}`)}>${of.name}</a></td><td><${Dialect} noun=${of.noun} /></td>
    <td class="nowrap wide-only">${shown && html`<${Version} of=${shown.version} />`}${others > 0 && html` <a class="muted" href=${href(`/workflows/${of.name}`)}>and ${count(others, "other")}</a>`}</td>
    ${STATUSES.map((status) => (LIVE.includes(status) ? html`<${Count} q=${`workflow:${of.name} status:${status}`} n=${of.counts[status]} status=${status} />` : html`<td class="num wide-only">${of.counts[status] ? html`<a class="fig" href=${href("/instances", { q: `workflow:${of.name} status:${status}` })}>${figure(of.counts[status])}</a>` : html`<span class="zero">0</span>`}</td>`))}
    <td class="wide-only">${old ? html`<${Id} id=${old.id} of=${of.name} />` : html`<span class="none">none</span>`}</td><td class="num muted wide-only nowrap">${old ? ago(old.started_at) : ""}</td>
    ${bad && html`<td class="wide-only">${lost(of) > 0 && html`<span class="problem">no engine has the code of ${figure(lost(of))}</span>`}</td>`}</tr>`;
}

function Workflow({ name, query, me, setLive }) {
  const { value, error, again } = useLoaded(() => get(`/workflows/${part(name)}`), [name]);
  const latest = useLoaded(() => get("/instances", { workflow: name, limit: 6 }), [name]);
  const [starting, setStarting] = useState(query.get("start") === "1");
  const [asked, setAsked] = useState(null);
  useEffect(() => watch(["fleet"], calm(() => { again(); latest.again(); }, 2000), setLive), [name]);
  useTick(15000);
  useEffect(() => { if (query.get("start") === "1") setStarting(true); }, [query.get("start")]);
  useEffect(() => (value?.can_start === "" ? offer([{ text: `Start ${name}`, icon: "plus", run: () => setStarting(true) }]) : undefined), [value]);
  const version = query.get("version") ?? "";
  const path = `/workflows/${part(name)}/-/source`;
  const source = useLoaded(() => get(path, { version }), [name, version]);
  if (!value) return error ? html`<${Trouble} error=${error} again=${() => { again(); latest.again(); source.again(); }} />` : html`<${Bones} />`;
  const items = latest.value?.items ?? [];
  const writes = KEPT.has(value.noun) && author(me);
  const now = value.versions.find((each) => each.active) ?? value.versions.at(-1);
  return html`<div class="inst-head"><nav class="path" aria-label="Where"><a href=${href("/workflows")}>Workflows</a><a href=${href("/workflows", { dialect: value.noun })}>${value.noun}</a></nav>
  <div class="head"><div class="title"><h1>${name}</h1>${now && html`<${Version} of=${version || now.version} />`}</div><div class="end">${writes && html`<button class="btn" type="button" onClick=${() => setAsked({ verb: "put" })}><${Icon} name="plus" />Put a version…</button>`}${value.can_start === "" ? html`<button class="btn first" type="button" onClick=${() => setStarting(true)}><${Icon} name="plus" />Start…</button>` : value.noun === "cell" && operates(me) ? html`<a class="btn first" href=${href("/world", { do: "send" })}><${Icon} name="send" />Send an event…</a>` : html`<span class="muted">cannot be started: ${value.can_start}</span>`}</div></div>
  <dl class="meta"><div><dt class="sr">dialect</dt><dd><${Dialect} noun=${value.noun} /></dd></div><div><dt>live</dt><dd><a href=${href("/instances", { q: `workflow:${name}` })}>${figure(live(value.counts))}</a></dd></div>
    ${STATUSES.filter((each) => value.counts[each]).map((each) => html`<div><dt class="sr">${each}</dt><dd><a class="st-link" href=${href("/instances", { q: `workflow:${name} status:${each}` })}><${Status} of=${each} /> ${figure(value.counts[each])}</a></dd></div>`)}
    ${source.value?.file && html`<div><dt>module</dt><dd class="mono">${source.value.file}${source.value.line ? `:${source.value.line}` : ""}</dd></div>`}</dl></div>
  ${DRAWN.has(value.noun) && html`<${Picture} name=${name} version=${version} query=${query} items=${items} />`}
  <div class="cols side"><div class="stack far">
    <${Versions} name=${name} of=${value} query=${query} me=${me} ask=${setAsked} writes=${writes} />
    <${Source} name=${name} versions=${value.versions} query=${query} path=${path} loaded=${source} />
  </div><aside class="stack">
    <${Takes} of=${value} name=${name} version=${now?.version ?? ""} />
    <section class="sect"><div class="sect-head"><h2>Newest instances</h2><span class="end"><a href=${href("/instances", { q: `workflow:${name}` })}>All</a></span></div>
      ${items.length === 0 ? html`<p class="muted">None was started yet.</p>` : html`<table class="ledger flush"><tbody>${items.map((each) => html`<tr key=${each.instance}><td class="nowrap"><${Status} of=${each.status} /></td><td class="cut"><${Id} id=${each.id} of=${each.workflow} row=${true} /></td><td class="num muted nowrap">${ago(each.changed_at)}</td></tr>`)}</tbody></table>`}</section></aside></div>
  ${asked?.verb === "put" && html`<${Put} name=${name} kept=${source.value?.media === "application/yaml" ? source.value.text : ""} close=${(done) => { setAsked(null); if (done) { again(); source.again(); } }} />`}
  ${asked?.verb === "activate" && html`<${Activate} name=${name} noun=${value.noun} version=${asked.version} close=${() => { setAsked(null); again(); }} />`}
  ${asked?.verb === "migrate" && html`<${Migrate} name=${name} version=${asked.version} close=${(done) => { setAsked(null); if (done) again(); }} />`}
  ${asked?.verb === "preview" && html`<${Preview} name=${name} version=${asked.version} close=${() => setAsked(null)} />`}
  ${starting && html`<${Start} name=${name} version=${now?.version ?? ""} close=${() => { setStarting(false); set({ start: "" }); }} />`}`;
}

function Versions({ name, of, query, me, ask, writes }) {
  const chosen = query.get("version");
  const versions = [...of.versions].reverse().sort((a, b) => Date.parse(b.put_at ?? 0) - Date.parse(a.put_at ?? 0)); // the newest first
  return html`<section class="sect"><div class="sect-head"><h2>Versions</h2><span class="muted">${of.versions.find((each) => each.active) ? html`new instances run on <${Version} of=${of.versions.find((each) => each.active).version} />` : count(of.versions.length, "version")}</span></div>
  <div class="scroll"><table class="ledger flush"><thead><tr><th>version</th><th>code</th><th class="num">live</th><th>oldest live</th><th class="num">age</th><th class="num wide-only">ended</th>${of.versions.some((each) => each.put_at) && html`<th class="wide-only">put</th>`}<th><span class="sr">verbs</span></th></tr></thead><tbody>
  ${versions.map((each) => html`<tr key=${each.version} class=${each.active ? "here" : null} aria-selected=${chosen === each.version ? "true" : null}><td><a href=${href(`/workflows/${name}`, { version: each.version })} aria-current=${chosen === each.version ? "true" : null}><${Version} of=${each.version} /></a></td>
    <td class="nowrap">${!each.here ? html`<span class="late">no engine has it</span>` : each.active ? html`<span class="active-mark"><${Shape} name="completed" />active</span>` : html`<span class="muted">${each.active === undefined ? "an engine has it" : ""}</span>`}</td>
    <${Count} q=${`workflow:${name} version:${each.version}`} n=${live(each.counts)} />
    <td>${each.oldest ? html`<${Id} id=${each.oldest.id} of=${name} />` : html`<span class="none">none</span>`}</td><td class="num muted nowrap">${each.oldest ? ago(each.oldest.started_at) : ""}</td>
    <td class="num wide-only">${figure(STATUSES.slice(3).reduce((sum, one) => sum + (each.counts[one] ?? 0), 0))}</td>
    ${of.versions.some((one) => one.put_at) && html`<td class="wide-only nowrap muted">${each.put_at ? `${moment(each.put_at)}${each.put_by ? ` by ${each.put_by}` : ""}` : ""}</td>`}
    <td class="acts">${author(me) && each.here && live(of.counts) > 0 && of.versions.length > 1 && !writes && html`<button class="btn small" type="button" onClick=${() => ask({ verb: "preview", version: each.version })}>Preview…</button>`}${writes && of.versions.length > 1 && !each.active && html`<button class="btn small" type="button" onClick=${() => ask({ verb: "activate", version: each.version.split("+")[0] })}>Activate…</button>`}${writes && of.noun === "process" && live(of.counts) > live(each.counts) && html`<button class="btn small" type="button" onClick=${() => ask({ verb: "migrate", version: each.version.split("+")[0] })}>Migrate to this…</button>`}</td></tr>`)}
  </tbody>${of.versions.length > 1 && html`<tfoot><tr><th>all</th><td></td><td class="num">${figure(live(of.counts))}</td><td></td><td></td><td class="num wide-only">${figure(STATUSES.slice(3).reduce((sum, one) => sum + (of.counts[one] ?? 0), 0))}</td>${of.versions.some((each) => each.put_at) && html`<td class="wide-only"></td>`}<td></td></tr></tfoot>`}</table></div></section>`;
}

// What a start takes, and the command that starts one.
function Takes({ of, name, version }) {
  const known = Array.isArray(of.parameters) ? of.parameters : [];
  const untold = known.length > 0 && known.every((each) => !each.kinds?.length); // a definition has a schema instead of types
  const { value } = useLoaded(() => (untold ? get(`/workflows/${part(name)}/-/${encodeURIComponent(version)}/form`).catch(() => null) : Promise.resolve(null)), [name, version, untold]);
  if (untold && value === undefined) return null;
  const properties = value?.schema?.properties ?? {};
  const parameters = known.map((each) => (properties[each.name]?.type ? { ...each, type: properties[each.name].type, schema: properties[each.name] } : each));
  if (of.can_start !== "" && !parameters.length) return null;
  return html`<section class="sheet card"><header><h3>A start takes</h3></header><div class="part">${parameters.length === 0 ? html`<p class="muted">Its input is not described.</p>` : html`<dl class="facts">${parameters.map((each) => html`<dt class="mono">${visible(each.name)}</dt><dd><code>${visible(each.type)}</code>${"default" in each && html` <span class="muted">= ${visible(json(each.default))}</span>`}${each.way === "needed" ? "" : !("default" in each) ? html` <span class="muted">optional</span>` : ""}</dd>`)}</dl>`}</div>
    ${of.can_start === "" && html`<div class="part"><${Cmd} text=${command("start", name, "--input", json(Object.fromEntries(parameters.filter((each) => each.way === "needed").map((each) => [each.name, sample(each)]))))} /></div>`}</section>`;
}

const EMPTY = { int: 0, integer: 0, float: 0, number: 0, bool: false, boolean: false, str: "", string: "", array: [], object: {} };
const sample = (each) => each.schema?.enum?.[0] ?? EMPTY[each.kinds?.[0] ?? each.type] ?? (each.type?.startsWith("list") ? [] : null);

// The drawing of a version; on request with what became of it in one instance.
function Picture({ name, version, query, items }) {
  const of = query.get("of") ?? "";
  const { value } = useLoaded(() => (of ? get(instancePath(of, "drawing")) : get(`/workflows/${part(name)}/-/drawing`, { version })).catch(() => null), [name, version, of]);
  if (!value) return value === undefined ? html`<${Bones} rows=${10} />` : null;
  const shown = [...new Set([...items.slice(0, 3).map((each) => each.id), ...(of ? [of] : [])])];
  return html`<${Drawing} picture=${value.picture} name=${of || name}>${shown.length > 0 && html`<span class="overlay"><span class="muted">overlay</span> <span class="seg" role="group" aria-label="Overlay"><button type="button" aria-pressed=${!of} onClick=${() => set({ of: "" })}>none</button>${shown.map((each) => html`<button class="mono" type="button" title=${each} aria-pressed=${of === each} onClick=${() => set({ of: each })}>${visible(each.slice(name.length + 1))}</button>`)}</span></span>`}<//>`;
}

function Source({ name, versions, query, path, loaded }) {
  const against = query.get("against") ?? "";
  const other = useLoaded(() => (against ? get(path, { version: against }) : Promise.resolve(null)), [name, against]);
  const { value, error, again } = loaded;
  if (error) return html`<section class="sect"><div class="sect-head"><h2>Source</h2></div>${error.problem?.code === "code-not-here" ? html`<p class="muted">${error.message}</p>` : html`<${Trouble} error=${error} again=${again} />`}</section>`;
  if (!value) return html`<${Bones} rows=${4} />`;
  const others = versions.filter((each) => each.here && each.version !== value.version);
  return html`<section class="sect"><div class="sect-head"><h2>Source</h2><span class="muted mono">${value.file}${value.line ? `:${value.line}` : ""}</span><span class="muted">version <${Version} of=${value.version} /></span>
    <span class="end">${others.length > 0 && html`<label class="st">compare with <select class="field" value=${against} onChange=${(event) => set({ against: event.target.value })}><option value="">nothing</option>${others.map((each) => html`<option value=${each.version}>${each.version}</option>`)}</select></label>`}<${Copy} text=${value.text} label="Copy the source" /></span></div>
    ${other.error ? html`<p class="muted">${other.error.message}</p>` : other.value ? html`<${Changes} before=${other.value.text} after=${value.text} label=${`From ${against} to ${value.version}`} />` : html`<${Code} text=${value.text} media=${value.media} line=${value.line || 1} />`}</section>`;
}
