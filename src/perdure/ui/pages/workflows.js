// Workflows: what an engine knows, how many instances each version has, and a start.
import { html, useState } from "../lib/html.js";
import { get, send } from "../lib/api.js";
import { command, figure, visible } from "../lib/format.js";
import { go, href, set } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Status, Trouble, useLoaded } from "../lib/parts.js";
import { Dialog } from "../lib/dialog.js";
import { Drawing } from "../lib/drawing.js";

const STATUSES = ["running", "waiting", "stuck", "completed", "failed", "cancelled"];

export default function Workflows({ rest, query }) {
  return rest ? html`<${Workflow} name=${rest} query=${query} />` : html`<${All} />`;
}

function All() {
  const { value, error, again } = useLoaded(() => get("/workflows"), []);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  return html`<div class="head"><h1>Workflows</h1><span class="muted">${value.items.length} that you may see</span></div>
  ${value.items.length === 0 ? html`<div class="sheet"><${Empty} title="No workflow yet"><p class="second">An engine registers its workflows when it opens the database:</p><${Cmd} text="perdure serve MODULE --db shop.db" /><//></div>` : html`
  <div class="sheet scroll"><table class="ledger"><thead><tr><th>workflow</th><th>dialect</th><th>versions</th>${STATUSES.map((each) => html`<th class="num">${each}</th>`)}</tr></thead><tbody>
  ${value.items.map((each) => html`<tr key=${each.name}><td><a class="mono" data-row href=${href(`/workflows/${each.name}`)}>${each.name}</a></td><td class="muted">${each.noun}</td><td class="mono">${each.versions.map((one) => one.version).join(", ")}</td>
    ${STATUSES.map((status) => html`<td class="num">${each.counts[status] ? html`<a class=${status === "stuck" ? "st-stuck" : "fig"} href=${href("/instances", { q: `workflow:${each.name} status:${status}` })}>${figure(each.counts[status])}</a>` : html`<span class="muted">0</span>`}</td>`)}</tr>`)}
  </tbody></table></div>`}`;
}

function Workflow({ name, query }) {
  const { value, error, again } = useLoaded(() => get(`/workflows/${name}`), [name]);
  const [starting, setStarting] = useState(query.get("start") === "1");
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const parameters = Array.isArray(value.parameters) ? value.parameters : [];
  const names = parameters.map((each) => (Array.isArray(each) ? each[0] : each?.name)).filter(Boolean);
  const example = JSON.stringify(Object.fromEntries(names.map((each) => [each, ""])), null, 1);
  const start = async (g) => {
    const made = await send("POST", "/instances", { workflow: name, input: g.input.trim() ? JSON.parse(g.input) : {}, key: g.key || null });
    go(href(`/instances/${made.id}`));
  };
  return html`<nav class="path" aria-label="Where"><a href=${href("/workflows")}>Workflows</a></nav>
  <div class="head"><div class="title"><h1>${name}</h1><span class="muted">${value.noun}</span></div><div class="end">${value.can_start === "" ? html`<button class="btn first" type="button" onClick=${() => setStarting(true)}><${Icon} name="plus" />Start…</button>` : html`<span class="muted">cannot be started: ${value.can_start}</span>`}</div></div>
  ${["graph", "playbook", "process"].includes(value.noun) && html`<${Picture} name=${name} query=${query} />`}
  <div class="sheet scroll"><table class="ledger"><thead><tr><th>version</th><th>code</th>${STATUSES.map((each) => html`<th class="num"><${Status} of=${each} /></th>`)}</tr></thead><tbody>
  ${value.versions.map((each) => html`<tr key=${each.version}><td class="mono"><a href=${href(`/workflows/${name}`, { version: each.version })}>${each.version}</a></td><td>${each.here ? "an engine has it" : html`<span class="late">no engine has it</span>`}</td>${STATUSES.map((status) => html`<td class="num">${each.counts[status] ? html`<a class="fig" href=${href("/instances", { q: `workflow:${name} version:${each.version} status:${status}` })}>${figure(each.counts[status])}</a>` : html`<span class="muted">0</span>`}</td>`)}</tr>`)}
  </tbody></table></div>
  <${Source} name=${name} query=${query} />
  ${starting && html`<${Dialog} title=${`Start ${name}`} label="Start" says="A new instance begins at once. The same key again starts nothing." run=${start} close=${() => { setStarting(false); set({ start: "" }); }}
    fields=${[{ name: "key", label: "Key", optional: true, help: "Names the instance. Empty: a new one is made up." }, { name: "input", label: "Input, as JSON", json: true, optional: true, value: example === "{}" ? "{}" : example }]}
    cmd=${(g) => command("start", name, "--input", g.input.replaceAll("\n", ""), ...(g.key ? ["--key", g.key] : []))} />`}`;
}

function Picture({ name, query }) {
  const version = query.get("version") ?? "";
  const { value } = useLoaded(() => get(`/workflows/${name}/-/drawing`, { version }).catch(() => null), [name, version]);
  return value ? html`<${Drawing} picture=${value.picture} name=${name} />` : null;
}

function Source({ name, query }) {
  const version = query.get("version") ?? "";
  const { value, error } = useLoaded(() => get(`/workflows/${name}/-/source`, { version }), [name, version]);
  if (error) return html`<section class="sect"><div class="sect-head"><h2>Source</h2></div><p class="muted">${error.message}</p></section>`;
  if (!value) return html`<${Bones} rows=${4} />`;
  return html`<section class="sect"><div class="sect-head"><h2>Source</h2><span class="muted mono">${value.file}${value.line ? `:${value.line}` : ""} ${value.version}</span></div>
    <pre class="src sheet" tabindex="0" aria-label="Source">${value.text.replace(/\n$/, "").split("\n").map((line) => html`<span class="l">${visible(line)}\n</span>`)}</pre></section>`;
}
