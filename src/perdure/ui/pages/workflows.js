// Workflows: what an engine knows, how many instances each version has, and a start.
import { html, useEffect, useState } from "../lib/html.js";
import { get, part, send } from "../lib/api.js";
import { count, figure, json, visible } from "../lib/format.js";
import { href, set } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Status, Trouble, useLoaded } from "../lib/parts.js";
import { Dialog } from "../lib/dialog.js";
import { Drawing } from "../lib/drawing.js";
import { offer } from "../lib/palette.js";
import { Changes, Code } from "../lib/source.js";
import { Start } from "../lib/start.js";

const STATUSES = ["running", "waiting", "stuck", "completed", "failed", "cancelled"];

export default function Workflows({ rest, query, me }) {
  return rest ? html`<${Workflow} name=${rest} query=${query} me=${me} />` : html`<${All} me=${me} />`;
}

function All({ me }) {
  const { value, error, again } = useLoaded(() => get("/workflows"), []);
  const [putting, setPutting] = useState(false);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  return html`<div class="head"><h1>Workflows</h1><span class="muted">${count(value.items.length, "workflow")} that you may see</span><div class="end">${author(me) && html`<button class="btn" type="button" onClick=${() => setPutting(true)}><${Icon} name="plus" />Put a definition…</button>`}</div></div>
  ${value.items.length === 0 ? html`<div class="sheet"><${Empty} title="No workflow yet"><p class="second">An engine registers its workflows when it opens the database:</p><${Cmd} text="perdure serve MODULE --db shop.db" /><//></div>` : html`
  <div class="sheet scroll"><table class="ledger"><thead><tr><th>workflow</th><th>dialect</th><th>versions</th>${STATUSES.map((each) => html`<th class="num">${each}</th>`)}</tr></thead><tbody>
  ${value.items.map((each) => html`<tr key=${each.name}><td><a class="mono" data-row href=${href(`/workflows/${each.name}`)}>${each.name}</a></td><td class="muted">${each.noun}</td><td class="mono">${each.versions.map((one) => one.version).join(", ")}</td>
    ${STATUSES.map((status) => html`<td class="num">${each.counts[status] ? html`<a class=${status === "stuck" ? "st-stuck" : "fig"} href=${href("/instances", { q: `workflow:${each.name} status:${status}` })}>${figure(each.counts[status])}</a>` : html`<span class="muted">0</span>`}</td>`)}</tr>`)}
  </tbody></table></div>`}
  ${putting && html`<${Put} close=${(done) => { setPutting(false); if (done) again(); }} />`}`;
}

const author = (me) => !me.read_only && me.grants.some((each) => ["author", "admin"].includes(each.role));

// A definition that is data, kept by the database: checked as it is typed, with its problems at their place.
function Put({ close }) {
  const preview = async (given) => {
    if (!given.text.trim()) return null;
    const found = await send("POST", "/workflows/check", { text: given.text });
    return { would: found.ok ? [`Keep the ${found.noun} ${found.name}, version ${found.version}.`] : found.problems.map((each) => `${each.pointer ? `${each.pointer}: ` : ""}${each.detail}${each.hint ? ` (${each.hint})` : ""}`) };
  };
  return html`<${Dialog} title="Put a definition" label="Put it" wide=${true} says="A playbook in YAML, or a process in YAML or JSON. The same text again writes nothing." preview=${preview} close=${close}
    fields=${[{ name: "text", label: "Definition", text: true, dry: true }, { name: "activate", label: "New instances run on it", options: ["if it is the newest", "whatever its version"], value: "if it is the newest" }]}
    request=${(given) => ["POST", "/workflows", { text: given.text, activate: given.activate === "whatever its version" }]} />`;
}

function Workflow({ name, query, me }) {
  const { value, error, again } = useLoaded(() => get(`/workflows/${part(name)}`), [name]);
  const [starting, setStarting] = useState(query.get("start") === "1");
  const [active, setActive] = useState(null);
  useEffect(() => { if (query.get("start") === "1") setStarting(true); }, [query.get("start")]);
  useEffect(() => (value?.can_start === "" ? offer([{ text: `Start ${name}`, icon: "plus", run: () => setStarting(true) }]) : undefined), [value]);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const kept = ["playbook", "process"].includes(value.noun) && author(me) && value.versions.length > 1;
  const parameters = Array.isArray(value.parameters) ? value.parameters : [];
  return html`<div class="inst-head"><nav class="path" aria-label="Where"><a href=${href("/workflows")}>Workflows</a></nav>
  <div class="head"><div class="title"><h1>${name}</h1><span class="muted">${value.noun}</span></div><div class="end">${value.can_start === "" ? html`<button class="btn first" type="button" onClick=${() => setStarting(true)}><${Icon} name="plus" />Start…</button>` : html`<span class="muted">cannot be started: ${value.can_start}</span>`}</div></div>
  ${parameters.length > 0 && html`<dl class="meta">${parameters.map((each) => html`<div><dt>${visible(each.name)}</dt><dd><code>${visible(each.type)}</code>${"default" in each && html` <span class="muted">= ${visible(json(each.default))}</span>`}</dd></div>`)}</dl>`}</div>
  <section class="sect"><div class="sect-head"><h2>Versions</h2><span class="muted">${count(value.versions.length, "version")}</span></div>
  <div class="scroll"><table class="ledger flush"><thead><tr><th>version</th><th>code</th>${STATUSES.map((each) => html`<th class="num"><${Status} of=${each} /></th>`)}${kept && html`<th><span class="sr">activate</span></th>`}</tr></thead><tbody>
  ${value.versions.map((each) => html`<tr key=${each.version}><td class="mono"><a href=${href(`/workflows/${name}`, { version: each.version })} aria-current=${query.get("version") === each.version ? "true" : null}>${each.version}</a></td><td class="nowrap">${each.here ? "an engine has it" : html`<span class="late">no engine has it</span>`}</td>${STATUSES.map((status) => html`<td class="num">${each.counts[status] ? html`<a class=${status === "stuck" ? "st-stuck" : "fig"} href=${href("/instances", { q: `workflow:${name} version:${each.version} status:${status}` })}>${figure(each.counts[status])}</a>` : html`<span class="muted">0</span>`}</td>`)}${kept && html`<td class="num"><button class="btn small" type="button" onClick=${() => setActive(each.version)}>Activate…</button></td>`}</tr>`)}
  </tbody></table></div></section>
  ${["graph", "playbook", "process"].includes(value.noun) && html`<${Picture} name=${name} query=${query} />`}
  <${Source} name=${name} versions=${value.versions} query=${query} />
  ${active && html`<${Dialog} title=${`Activate ${name} ${active}`} label="Activate" says="New instances run on this version. Those that live stay on theirs." request=${() => ["POST", `/workflows/${part(name)}/-/activate`, { version: active }]} close=${() => { setActive(null); again(); }} />`}
  ${starting && html`<${Start} name=${name} parameters=${value.parameters} close=${() => { setStarting(false); set({ start: "" }); }} />`}`;
}

function Picture({ name, query }) {
  const version = query.get("version") ?? "";
  const { value } = useLoaded(() => get(`/workflows/${part(name)}/-/drawing`, { version }).catch(() => null), [name, version]);
  return value ? html`<${Drawing} picture=${value.picture} name=${name} />` : null;
}

function Source({ name, versions, query }) {
  const [version, against] = [query.get("version") ?? "", query.get("against") ?? ""];
  const path = `/workflows/${part(name)}/-/source`;
  const { value, error } = useLoaded(() => get(path, { version }), [name, version]);
  const other = useLoaded(() => (against ? get(path, { version: against }) : Promise.resolve(null)), [name, against]);
  if (error) return html`<section class="sect"><div class="sect-head"><h2>Source</h2></div><p class="muted">${error.message}</p></section>`;
  if (!value) return html`<${Bones} rows=${4} />`;
  const others = versions.filter((each) => each.here && each.version !== value.version);
  return html`<section class="sect"><div class="sect-head"><h2>Source</h2><span class="muted mono">${value.file}${value.line ? `:${value.line}` : ""}</span><span class="muted">version ${value.version}</span>
    ${others.length > 0 && html`<span class="end"><label class="st">compare with <select class="field" value=${against} onChange=${(event) => set({ against: event.target.value })}><option value="">nothing</option>${others.map((each) => html`<option value=${each.version}>${each.version}</option>`)}</select></label></span>`}</div>
    ${other.error ? html`<p class="muted">${other.error.message}</p>` : other.value ? html`<${Changes} before=${other.value.text} after=${value.text} />` : html`<${Code} text=${value.text} media=${value.media} line=${value.line || 1} />`}</section>`;
}
