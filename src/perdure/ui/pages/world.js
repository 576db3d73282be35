// The world of cells: its manifest and routing, proposals to change it, cells by definition, and what an event led to.
import { html, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { ago, command, count, json, moment, visible } from "../lib/format.js";
import { href, set } from "../lib/router.js";
import { Bones, Cmd, Copy, Empty, Icon, Id, Status, Trouble, useLoaded } from "../lib/parts.js";
import { Dialog } from "../lib/dialog.js";
import { Changes } from "../lib/source.js";

export default function World({ query, me }) {
  const event = query.get("event") ?? "";
  const [text, setText] = useState(event);
  const { value, error, again } = useLoaded(async () => {
    const cells = (await get("/workflows")).items.filter((each) => each.noun === "cell");
    const none = () => null; // no world, or none that this login may see
    const [manifest, proposals, ...lists] = await Promise.all([get("/world/manifest", { values: "whole" }).catch(none), get("/world/proposals", { values: "whole" }).catch(none), ...cells.map((each) => get("/instances", { workflow: each.name, limit: 20 }))]);
    return { manifest, proposals: proposals?.items ?? [], cells: cells.map((each, n) => ({ ...each, items: lists[n].items })) };
  }, []);
  const trace = useLoaded(() => (event ? get(`/trace/${encodeURIComponent(event)}`) : Promise.resolve(null)), [event]);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const { manifest, proposals, cells } = value;
  const world = manifest?.manifest;
  return html`<div class="head"><h1>World</h1><span class="muted">${count(cells.length, "definition")} of cells</span>${manifest && html`<div class="end"><span class="muted">manifest</span><span class="keyed"><code title=${manifest.hash}>${manifest.hash.slice(0, 19)}…</code><${Copy} text=${manifest.hash} label="Copy the hash" /></span></div>`}</div>
  ${cells.length === 0 ? html`<div class="sheet"><${Empty} title="There are no cells"><p class="second">A cell is a keyed reducer; its definitions and their routing stand here. They begin with:</p><${Cmd} text="perdure manifest build MODULE -o world.yaml" /><//></div>` : html`
  <form class="query" role="search" onSubmit=${(e) => { e.preventDefault(); set({ event: text }); }}><div class="box"><${Icon} name="search" /><input class="field mono" aria-label="Trace an event" placeholder="id or correlation of an event, or the number of an entry" value=${text} onInput=${(e) => setText(e.target.value)} /></div><button class="btn first" type="submit">Trace</button></form>
  ${trace.error && html`<${Trouble} error=${trace.error} />`}
  ${trace.value?.traces && html`<section class="sheet card"><header><h2>what ${visible(event)} led to</h2><span class="end"><button class="copy" type="button" aria-label="Close" onClick=${() => { setText(""); set({ event: "" }); }}><${Icon} name="close" /></button></span></header><div class="part">${trace.value.traces.length ? html`<ul class="trace top">${trace.value.traces.map((node) => html`<${Traced} node=${node} />`)}</ul>` : html`<p class="muted">No event has this id.</p>`}</div></section>`}
  ${world?.routing && html`<${Routing} of=${world} />`}
  <${Proposals} list=${proposals} definitions=${world ?? {}} me=${me} again=${again} />
  ${cells.map((each) => html`<section class="sect" key=${each.name}><div class="sect-head"><h2 class="mono"><a href=${href(`/workflows/${each.name}`)}>${each.name}</a></h2><span class="muted">${count(Object.values(each.counts).reduce((a, b) => a + b, 0), "cell")}</span><span class="end"><a href=${href("/instances", { q: `workflow:${each.name}` })}>All</a></span></div>
    <table class="ledger flush"><tbody>${each.items.map((one) => html`<tr key=${one.instance}><td class="nowrap"><${Status} of=${one.status} /></td><td class="cut"><${Id} id=${one.id} of=${one.workflow} row=${true} /></td><td class="num muted wide-only">${moment(one.started_at)}</td><td class="num muted">${ago(one.changed_at)}</td></tr>`)}</tbody></table></section>`)}`}`;
}

function Traced({ node }) {
  return html`<li><div class="row"><span class="mono muted">${node.entry}</span> <b class="strong">${visible(node.what)}</b>${node.status && html` <${Status} of=${node.status} />`} <span class="muted">at</span> <${Id} id=${node.id} />${node.value !== null && node.value !== undefined && html` <code class="muted">${visible(json(node.value)).slice(0, 160)}</code>`}<span class="muted when">${moment(node.at)}</span></div>
    ${node.led_to.length > 0 && html`<ul class="trace">${node.led_to.map((each) => html`<${Traced} node=${each} />`)}</ul>`}</li>`;
}

// Events, the cells that they go to, and the effects that those ask for: three columns with lines between them.
function Routing({ of }) {
  const events = [...new Set(of.routing.map((each) => each.event))];
  const cells = Object.keys(of.cells ?? {});
  const effects = [...new Set(cells.flatMap((each) => of.cells[each].effects ?? []))];
  const [row, top] = [46, 26];
  const y = (list, name) => top + list.indexOf(name) * row;
  const columns = [[0, events, "event"], [36, cells, "cell"], [72, effects, "effect"]];
  const height = top + Math.max(1, events.length, cells.length, effects.length) * row;
  const lines = [...of.routing.map((each) => [28, y(events, each.event), 36, y(cells, each.cell)]), ...cells.flatMap((each) => (of.cells[each].effects ?? []).map((effect) => [64, y(cells, each), 72, y(effects, effect)]))];
  return html`<section class="sheet" aria-label="Routing"><div class="draw-bar"><b class="strong">Routing</b><span class="muted">${count(events.length, "event")} to ${count(cells.length, "cell")}, ${count(effects.length, "effect")}</span></div>
    <div class="draw"><svg class="routing" width="100%" height=${height} role="img" aria-label=${of.routing.map((each) => `${each.event} to ${each.cell} by ${each.key_field}`).join("; ")}>
      ${columns.map(([x, , name]) => html`<text class="g-lane-name" x=${`${x}%`} y="14">${name}s</text>`)}
      ${lines.map(([a, b, c, d]) => html`<line class="g-edge" x1=${`${a}%`} y1=${b + 17} x2=${`${c}%`} y2=${d + 17} />`)}
      ${columns.flatMap(([x, list, name]) => list.map((each) => html`<g class="g-node"><title>${visible(each)}</title><rect class="box" x=${`${x}%`} y=${y(list, each)} width="28%" height="34" rx="3" /><svg x=${`${x}%`} y=${y(list, each)} width="28%" height="34"><text class=${name === "cell" ? "name" : "sub"} x="10" y="21">${visible(each)}</text></svg></g>`))}</svg></div></section>`;
}

const NEXT = { proposed: ["reject"], shadowed: ["approve", "reject"], approved: ["apply", "reject"] };
const SAYS = { approve: "It may be applied after that. The manifest of now stays as it is.", reject: "It is never applied. The reason is recorded.", apply: "New cells have the proposed definitions from now on." };

// Changes that were proposed, each beside the manifest of now. The proposer does not approve.
function Proposals({ list, definitions, me, again }) {
  const [asked, setAsked] = useState(null);
  if (!list.length) return null;
  const admin = !me.read_only && me.grants.some((each) => each.role === "admin");
  const now = (change) => (change.part === "routing" ? definitions.routing : definitions[change.part]?.[change.name]);
  const text = (value) => (value === null || value === undefined ? "" : json(value, 2));
  const fields = { approve: [], reject: [{ name: "reason", label: "Reason", optional: true }], apply: [{ name: "mode", label: "Cells that live", options: ["pinned", "migrate", "strict"], value: "pinned", help: "pinned: they stay as they are; migrate: they take the new definition; strict: refused unless there are none" }] };
  return html`<section class="sect" aria-label="Proposals"><div class="sect-head"><h2>Proposals</h2><span class="muted">${list.length}</span></div>
    ${list.map((each) => html`<details class="sheet proposal" key=${each.number} open=${each.status in NEXT}><summary><b class="strong">${each.number}</b> <span>${visible(each.status)}</span> <span class="muted">${count(each.changes.length, "change")}${each.by ? ` by ${visible(each.by)}` : ""}${each.reason ? `: ${visible(each.reason)}` : ""}</span></summary>
      ${each.changes.map((change) => html`<div class="part"><h3 class="label">${visible(change.part)} ${visible(change.name)}${change.definition === null ? ", goes" : change.replaces ? "" : ", new"}</h3><${Changes} before=${each.status in NEXT ? text(now(change)) : ""} after=${text(change.definition)} /></div>`)}
      ${each.report ? html`<div class="part"><h3 class="label">shadow report</h3><pre class="json">${visible(json(each.report, 1))}</pre></div>` : each.status === "proposed" && html`<div class="part"><p class="muted">It is approved after a shadow run, which copies the world:</p><${Cmd} text=${command("manifest", "shadow", each.number)} /></div>`}
      ${admin && each.status in NEXT && html`<div class="part row-btns">${each.by === me.id && NEXT[each.status].includes("approve") && html`<p class="muted">You proposed it: another person approves it.</p>`}${NEXT[each.status].filter((verb) => verb !== "approve" || each.by !== me.id).map((verb) => html`<button class=${`btn${verb === "reject" ? " risk" : " first"}`} type="button" onClick=${() => setAsked({ verb, each })}>${verb[0].toUpperCase() + verb.slice(1)}…</button>`)}</div>`}</details>`)}
    ${asked && html`<${Dialog} title=${`${asked.verb[0].toUpperCase() + asked.verb.slice(1)} proposal ${asked.each.number}`} label=${asked.verb[0].toUpperCase() + asked.verb.slice(1)} risk=${asked.verb === "reject"} says=${SAYS[asked.verb]} fields=${fields[asked.verb]} cmd=${() => command("manifest", asked.verb, asked.each.number)} request=${(given) => ["POST", `/world/proposals/${asked.each.number}/-/${asked.verb}`, given]} close=${() => { setAsked(null); again(); }} />`}</section>`;
}
