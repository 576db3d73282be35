// The world of cells: routing, events that came in and what each led to, cells with their states, proposals, snapshots.
import { html, useEffect, useState } from "../lib/html.js";
import { get, part } from "../lib/api.js";
import { ago, command, count, figure, json, moment, visible } from "../lib/format.js";
import { go, href, set } from "../lib/router.js";
import { Bones, Cmd, Copy, Empty, Icon, Id, Status, Trouble, operates, useLoaded, useTick } from "../lib/parts.js";
import { Dialog } from "../lib/dialog.js";
import { Proposals, Snapshots, Traced, author } from "../lib/proposals.js";
import { calm, watch } from "../lib/stream.js";

const RULER = "sys/world/main";
const CELLS = 12; // of a definition; the list has them all
const EVENTS = 12;
const LAST = Number.MAX_SAFE_INTEGER;
const none = () => null; // no world, or none that this login may see

export default function World({ query, me, setLive }) {
  const [event, entry] = [query.get("event") ?? "", query.get("entry") ?? ""];
  const [text, setText] = useState(event);
  const [doing, setDoing] = useState(null);
  const { value, error, again } = useLoaded(async () => {
    const cells = (await get("/workflows")).items.filter((each) => each.noun === "cell");
    const [manifest, proposals, came, ...lists] = await Promise.all([...(cells.length ? [get("/world/manifest", { values: "whole" }), get("/world/proposals", { values: "whole" }), get(`/instances/${RULER}/-/history`, { form: "raw", before: LAST, limit: EVENTS + 4 })].map((each) => each.catch(none)) : [null, null, null]), ...cells.map((each) => get("/cells", { workflow: each.name, limit: CELLS, order: "-started" }))]);
    const states = await Promise.all(lists.flatMap((list) => list.items).map(async (each) => [each.id, each.status === "stuck" && !entry ? { $stuck: each.reason } : await get(`/cells/${part(each.id)}`, { at: entry }).then((found) => found.state, (problem) => ({ $refused: problem.message }))]));
    return { manifest, proposals: proposals?.items ?? [], events: eventsOf(came), cells: cells.map((each, n) => ({ ...each, items: lists[n].items })), states: Object.fromEntries(states) };
  }, [entry]);
  useEffect(() => watch(["list:workflow:sys/world", "fleet"], calm(again, 2500), setLive), [entry]);
  useTick(15000);
  const asked = query.get("do") === "send" && value?.manifest?.manifest; // by a link of another page
  useEffect(() => { if (asked) { setDoing({ verb: "send", name: asked.routing[0]?.event }); set({ do: "" }); } }, [asked]);
  const trace = useLoaded(() => (event ? get(`/trace/${encodeURIComponent(event)}`) : Promise.resolve(null)), [event]);
  useEffect(() => setText(event), [event]);
  if (!value) return error ? html`<${Trouble} error=${error} again=${() => { again(); trace.again(); }} />` : html`<${Bones} />`;
  const { manifest, proposals, cells, events, states } = value;
  const world = manifest?.manifest;
  return html`<div class="head"><h1>World</h1><span class="muted">${count(cells.length, "definition")} of cells</span>${manifest && html`<span class="keyed"><span class="muted">manifest</span> <code title=${manifest.hash}>${manifest.hash.slice(0, 19)}…</code><${Copy} text=${manifest.hash} label="Copy the hash" /></span>`}
    <div class="end">${world && author(me) && html`<button class="btn" type="button" onClick=${() => setDoing({ verb: "propose" })}>Propose a change…</button>`}${world && operates(me) && !me.read_only && html`<button class="btn first" type="button" onClick=${() => setDoing({ verb: "send", name: world.routing[0]?.event })}><${Icon} name="send" />Send an event…</button>`}</div></div>
  ${cells.length === 0 ? html`<div class="sheet"><${Empty} title="There are no cells"><p class="second">A cell is a keyed reducer; its definitions and their routing stand here. They begin with:</p><${Cmd} text="perdure manifest build MODULE -o world.yaml" /><//></div>` : html`
  <form class="query" role="search" onSubmit=${(e) => { e.preventDefault(); set({ event: text }); }}><div class="box"><${Icon} name="search" /><input class="field mono" data-filter aria-label="Trace an event" placeholder="id or correlation of an event, or the number of an entry" value=${text} onInput=${(e) => setText(e.target.value)} /></div><button class="btn" type="submit">Trace</button></form>
  ${trace.error && html`<${Trouble} error=${trace.error} again=${trace.again} />`}
  ${trace.value?.traces && html`<section class="sheet card"><header><h2>what ${visible(event)} led to</h2><span class="end"><button class="copy" type="button" aria-label="Close" onClick=${() => set({ event: "" })}><${Icon} name="close" /></button></span></header><div class="part">${trace.value.traces.length ? html`<ul class="trace top">${trace.value.traces.map((node) => html`<${Traced} node=${node} />`)}</ul><${Cmd} text=${command("cells", "trace", event)} />` : html`<p class="muted">No event has this id.</p>`}</div></section>`}
  ${world?.routing && html`<${Routing} of=${world} send=${operates(me) && !me.read_only ? (name) => setDoing({ verb: "send", name }) : null} />`}
  <${Proposals} list=${proposals} definitions=${world ?? {}} me=${me} again=${again} />
  <div class="cols side world"><div class="stack far">
    <form class="as-of" onSubmit=${(e) => { e.preventDefault(); set({ entry: new FormData(e.target).get("entry") }); }}><label for="as-of">States ${entry ? "as of entry" : "of now; as of entry"}</label><input class="field num" id="as-of" name="entry" inputmode="numeric" value=${entry} placeholder="number" /><button class="btn small" type="submit">Show</button>${entry && html`<button class="btn small first" type="button" onClick=${() => set({ entry: "" })}>Back to now</button>`}</form>
    ${cells.map((each) => html`<${Definition} key=${each.name} of=${each} states=${states} past=${entry} />`)}
  </div><aside class="stack"><${Came} events=${events} current=${event} /></aside></div>
  <${Snapshots} me=${me} />`}
  ${doing?.verb === "send" && html`<${Send} world=${world} name=${doing.name} close=${() => { setDoing(null); again(); }} />`}
  ${doing?.verb === "propose" && html`<${Dialog} wide=${true} title="Propose another manifest" label="Propose" says="Nothing changes by a proposal: it is tried in a shadow run, approved by another person, and applied." fields=${[{ name: "manifest", label: "Manifest", json: true, text: true, value: json(world, 2) }]} cmd=${() => command("manifest", "propose", "FILE")} request=${(given) => ["POST", "/world/proposals", { manifest: JSON.parse(given.manifest) }]} close=${() => { setDoing(null); again(); }} />`}`;
}

// Events that came from outside, the newest first, each with the number by which it is traced.
function eventsOf(history) {
  return (history?.raw ?? []).filter((each) => each.body.event.kind === "Message" && each.body.decision.announce?.length).map((each) => ({ entry: each.seq, id: each.body.event.id, at: each.at, name: each.body.event.name, body: each.body.event.body })).reverse().slice(0, EVENTS);
}

function Came({ events, current }) {
  return html`<section class="sect"><div class="sect-head"><h2>Events from outside</h2><span class="end"><a href=${href(`/instances/${RULER}`)}>All</a></span></div>
    ${events.length === 0 ? html`<p class="muted">None came yet, or none that you may see.</p>` : html`<ol class="came-list">${events.map((each) => html`<li key=${each.entry}><a data-row href=${href("/world", { event: each.entry })} aria-current=${[each.entry, each.id].includes(current) ? "true" : null} title=${`Trace ${each.id || each.entry}`}><span class="t mono">${visible(each.name)}</span><time class="muted">${moment(each.at)}</time><code class="sub">${visible(brief(each.body))}</code></a></li>`)}</ol>`}</section>`;
}

const brief = (value) => (value && typeof value === "object" && !Array.isArray(value) && !("$withheld" in value) ? Object.entries(value).map(([name, each]) => `${name} ${typeof each === "object" ? json(each) : each}`).join(", ") : json(value) ?? "");

function Definition({ of, states, past }) {
  const all = Object.values(of.counts).reduce((a, b) => a + b, 0);
  const told = (state) => (state === undefined || state === null ? html`<span class="muted">${past ? "not there yet" : "no state"}</span>` : state.$stuck !== undefined ? html`<span class="st-stuck">${visible(state.$stuck || "stuck")}</span>` : state.$refused ? html`<span class="muted" title=${state.$refused}>not known here</span>` : state.$withheld ? html`<span class="muted">withheld</span>` : html`<code>${visible(brief(state))}</code>`);
  return html`<section class="sect"><div class="sect-head"><h2 class="mono"><a href=${href(`/workflows/${of.name}`)}>${of.name}</a></h2><span class="muted">${count(all, "cell")}${of.counts.stuck ? html`, <a class="st-stuck" href=${href("/instances", { q: `workflow:${of.name} status:stuck` })}>${figure(of.counts.stuck)} stuck</a>` : ""}</span><span class="end"><a href=${href("/instances", { q: `workflow:${of.name}` })}>All</a></span></div>
    ${of.items.length === 0 ? html`<p class="muted">No event made one yet.</p>` : html`<div class="scroll"><table class="ledger flush"><thead><tr><th>status</th><th>cell</th><th>state${past ? ` at ${past}` : ""}</th><th class="num">changed</th></tr></thead><tbody>${of.items.map((one) => html`<tr key=${one.instance}><td class="nowrap"><${Status} of=${one.status} /></td><td class="nowrap"><${Id} id=${one.id} of=${one.workflow} row=${true} /></td><td class="cut">${told(states[one.id])}</td><td class="num muted nowrap">${ago(one.changed_at)}</td></tr>`)}</tbody></table></div>`}</section>`;
}

// An event by its schema: the fields of its record as JSON to begin with.
function Send({ world, name, close }) {
  const empty = (type) => ({ text: "", nat: 0, int: 0, bool: false, dec128: "0", bytes: "" })[type] ?? null;
  const sample = (event) => json(Object.fromEntries(Object.entries(world.schemas[event]?.record ?? {}).map(([field, type]) => [field, empty(type)])), 1);
  const [chosen, setChosen] = useState(name);
  return html`<${Dialog} key=${chosen} title="Send an event" label="Send" says=${`It goes to ${world.routing.filter((each) => each.event === chosen).map((each) => `${each.cell}, the cell that ${each.key_field ? `the field ${each.key_field} names` : "is alone"}`).join(", and to ") || "no cell"}.`}
    fields=${[{ name: "name", label: "Event", options: [...new Set(world.routing.map((each) => each.event))], value: chosen, changed: setChosen }, { name: "data", label: "Its record, as JSON", json: true, value: sample(chosen) }, { name: "correlation", label: "Correlation", optional: true, help: "A text by which what it leads to is found again." }]}
    cmd=${(g) => command("cells", "send", g.name, g.data.replaceAll(/\s*\n\s*/g, " "), ...(g.correlation ? ["--correlation", g.correlation] : []))} request=${(g) => ["POST", "/events", { name: g.name, data: JSON.parse(g.data), ...(g.correlation ? { correlation: g.correlation } : {}) }]} close=${close} />`;
}

// Events, the cells that they go to, and the effects that those ask for: three columns with lines between them.
function Routing({ of, send }) {
  const [near, setNear] = useState("");
  const events = [...new Set(of.routing.map((each) => each.event))];
  const cells = Object.keys(of.cells ?? {});
  const effects = [...new Set(cells.flatMap((each) => of.cells[each].effects ?? []))];
  const [row, top] = [46, 26];
  const y = (list, name) => top + list.indexOf(name) * row;
  const columns = [[0, events, "event"], [36, cells, "cell"], [72, effects, "effect"]];
  const height = top + Math.max(1, events.length, cells.length, effects.length) * row;
  const lines = [...of.routing.map((each) => ({ at: [28, y(events, each.event), 36, y(cells, each.cell)], ends: [each.event, each.cell] })), ...cells.flatMap((each) => (of.cells[each].effects ?? []).map((effect) => ({ at: [64, y(cells, each), 72, y(effects, effect)], ends: [each, effect] })))];
  const key = (name) => of.routing.find((each) => each.cell === name)?.key_field;
  const open = { event: send, cell: (name) => go(href(`/workflows/${name.replace(/@\d+$/, "")}`)) };
  const beside = (name) => near === name || lines.some(({ ends }) => ends.includes(near) && ends.includes(name));
  return html`<section class="sheet" aria-label="Routing"><div class="draw-bar"><b class="strong">Routing</b><span class="muted">${count(events.length, "event")} to ${count(cells.length, "cell")}, ${count(effects.length, "effect")}</span></div>
    <div class="draw"><svg class=${`routing${near ? " focused" : ""}`} width="100%" height=${height} role="group" aria-label=${of.routing.map((each) => `${each.event} to ${each.cell} by ${each.key_field}`).join("; ")} onPointerLeave=${() => setNear("")}>
      ${columns.map(([x, , name]) => html`<text class="g-lane-name" x=${`${x}%`} y="14">${name}s</text>`)}
      ${lines.map(({ at: [a, b, c, d], ends }) => html`<line class=${`g-edge${ends.includes(near) ? " went" : ""}`} x1=${`${a}%`} y1=${b + 17} x2=${`${c}%`} y2=${d + 17} marker-end=${ends.includes(near) ? "url(#tip-went)" : "url(#tip)"} />`)}
      ${columns.flatMap(([x, list, name]) => list.map((each) => html`<g class=${`g-node${near && !beside(each) ? " far" : ""}`} tabindex="0" role=${open[name] ? "button" : "img"} aria-label=${`${name} ${each}${name === "cell" && key(each) ? `, by ${key(each)}` : ""}`} onPointerEnter=${() => setNear(each)} onFocus=${() => setNear(each)} onBlur=${() => setNear("")} onClick=${() => open[name]?.(each)} onKeyDown=${(e) => { if (e.key === "Enter") open[name]?.(each); }}><title>${visible(each)}</title><rect class="box" x=${`${x}%`} y=${y(list, each)} width="28%" height="34" rx="3" /><svg x=${`${x}%`} y=${y(list, each)} width="28%" height="34"><text class=${name === "cell" ? "name" : "sub"} x="10" y="21">${visible(each)}</text></svg>${name === "cell" && key(each) && html`<svg x=${`${x}%`} y=${y(list, each)} width="28%" height="34"><text class="sub" x="100%" dx="-10" y="21" text-anchor="end">by ${visible(key(each))}</text></svg>`}</g>`))}</svg></div></section>`;
}
