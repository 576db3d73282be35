// Proposals to change the world, each with its changes and the report of its shadow run; snapshots; what is left to migrate.
import { html, useState } from "./html.js";
import { get, send } from "./api.js";
import { command, count, figure, json, moment, visible } from "./format.js";
import { Cmd, Icon, Id, Shape, Status, useLoaded } from "./parts.js";
import { Dialog } from "./dialog.js";
import { Changes } from "./source.js";

const NEXT = { proposed: ["shadow", "reject"], shadowed: ["approve", "shadow", "reject"], approved: ["apply", "reject"] };
const MODES = { pinned: "they stay as they are", migrate: "they take the new definition", strict: "refused unless there are none" };
const MODE = { name: "mode", label: "Cells that live", options: Object.keys(MODES), value: "pinned", help: Object.entries(MODES).map((each) => each.join(": ")).join("; ") };
const SAYS = {
  shadow: "It is tried on a copy of the world, in virtual time: no effect is executed, and nothing of the world changes. The proposal keeps the report.",
  approve: "It may be applied after that. The manifest of now stays as it is.",
  reject: "It is never applied. The reason is recorded.",
  apply: "New cells have the proposed definitions from now on.",
};
const FIELDS = {
  shadow: [MODE, { name: "recorded", label: "Effects are answered", options: ["as they were before", "not at all"], value: "as they were before" }],
  approve: [],
  reject: [{ name: "reason", label: "Reason", optional: true }],
  apply: [MODE],
};
const asked = (verb, given) => (verb === "shadow" ? { mode: given.mode, recorded: given.recorded === "as they were before" } : given);
const words = (verb, given) => [...(given.mode ? ["--mode", given.mode] : []), ...(verb === "shadow" && given.recorded === "as they were before" ? ["--recorded"] : []), ...(given.reason ? ["--reason", given.reason] : [])];
const upper = (text) => text[0].toUpperCase() + text.slice(1);

const holds = (me, ...roles) => !me.read_only && me.grants.some((each) => roles.includes(each.role));
export const admin = (me) => holds(me, "admin");
export const author = (me) => holds(me, "author", "admin");

export function Proposals({ list, definitions, me, again }) {
  const [doing, setDoing] = useState(null);
  if (!list.length) return null;
  const now = (change) => (change.part === "routing" ? definitions.routing : definitions[change.part]?.[change.name]);
  const text = (value) => (value === null || value === undefined ? "" : json(value, 2));
  const may = (verb, each) => (verb === "shadow" ? author(me) : admin(me)) && (verb !== "approve" || each.by !== me.id);
  return html`<section class="sect" aria-label="Proposals"><div class="sect-head"><h2>Proposals</h2><span class="muted">${list.filter((each) => each.status in NEXT).length} open of ${list.length}</span></div>
    ${list.map((each) => html`<details class="sheet proposal" key=${each.number} open=${each.status in NEXT}><summary><b class="strong">${each.number}</b> <span>${visible(each.status)}</span> <span class="muted">${count(each.changes.length, "change")}${each.by ? ` by ${visible(each.by)}` : ""}${each.reason ? `: ${visible(each.reason)}` : ""}</span></summary>
      ${each.changes.map((change) => html`<div class="part"><h3 class="label">${visible(change.part)} ${visible(change.name)}${change.definition === null ? ", goes" : change.replaces ? "" : ", new"}</h3><${Changes} before=${each.status in NEXT ? text(now(change)) : ""} after=${text(change.definition)} /></div>`)}
      ${each.report ? html`<${Report} of=${each.report} />` : each.status === "proposed" && html`<div class="part"><p class="second">It is approved after a shadow run, which tries it on a copy of the world.</p><${Cmd} text=${command("manifest", "shadow", each.number, "--against", "MODULE")} /></div>`}
      ${each.status in NEXT && html`<div class="part row-btns">${each.by === me.id && NEXT[each.status].includes("approve") && html`<p class="note"><${Icon} name="info" /><span>Four eyes: you proposed it, so another person approves it.</span></p>`}${NEXT[each.status].filter((verb) => may(verb, each)).map((verb, n) => html`<button class=${`btn${verb === "reject" ? " risk" : n === 0 ? " first" : ""}`} type="button" onClick=${() => setDoing({ verb, each })}>${upper(verb)}…</button>`)}</div>`}</details>`)}
    ${doing && html`<${Dialog} title=${`${upper(doing.verb)} proposal ${doing.each.number}`} label=${upper(doing.verb)} risk=${doing.verb === "reject"} says=${SAYS[doing.verb]} fields=${FIELDS[doing.verb].map((each) => (each === MODE && doing.each.mode ? { ...each, value: doing.each.mode } : each))}
      cmd=${(given) => command("manifest", doing.verb, doing.each.number, ...(doing.verb === "shadow" ? ["--against", "MODULE"] : []), ...words(doing.verb, given))} request=${(given) => ["POST", `/world/proposals/${doing.each.number}/-/${doing.verb}`, asked(doing.verb, given)]} close=${() => { setDoing(null); again(); }} />`}</section>`;
}

const sums = (of) => Object.entries(of ?? {}).map(([name, n]) => html`<li><code>${visible(name)}</code> <span class="num">${figure(n)}</span></li>`);

// What a shadow run found: failures first, they stand against the manifest.
function Report({ of }) {
  const bad = of.failures.length > 0;
  return html`<div class="part report"><h3 class="label">shadow run, ${of.mode}</h3>
    <p class=${`st ${bad ? "st-failed" : "st-completed"}`}><${Shape} name=${bad ? "failed" : "completed"} />${bad ? count(of.failures.length, "failure") : "nothing failed"}, ${count(of.entries, "entry").replace("entrys", "entries")}, ${count(of.changed, "cell")} with another state</p>
    ${bad && html`<ul class="fails">${of.failures.slice(0, 20).map((text) => html`<li>${visible(text)}</li>`)}</ul>`}
    <div class="report-sums">${[["effects asked for", of.effects], ["without an answer", of.open], ["statuses", of.statuses]].filter(([, each]) => Object.keys(each ?? {}).length).map(([name, each]) => html`<section><h4>${name}</h4><ul>${sums(each)}</ul></section>`)}
      ${Object.keys(of.allowlists ?? {}).length > 0 && html`<section><h4>effects that come and go</h4><ul>${Object.entries(of.allowlists).map(([cell, each]) => html`<li><code>${visible(cell)}</code> <span class="muted">${visible(Object.entries(each).map(([what, names]) => `${what} ${names.join(", ")}`).join("; "))}</span></li>`)}</ul></section>`}</div>
    ${of.states?.length > 0 && html`<details><summary>${count(of.states.length, "state")} before and after</summary>${of.states.slice(0, 20).map((each) => html`<${Difference} of=${each} />`)}</details>`}
    <p class="muted">${visible(of.caveat ?? "")}</p></div>`;
}

function Difference({ of }) {
  const { before, after, ...rest } = of;
  return html`<div class="state-diff"><code>${visible(rest.id ?? rest.cell ?? json(rest))}</code><${Changes} before=${json(before ?? null, 1)} after=${json(after ?? null, 1)} /></div>`;
}

// The latest snapshots, and how many cells still have an older definition.
export function Snapshots({ me }) {
  const [doing, setDoing] = useState("");
  const { value, again } = useLoaded(() => get("/world/snapshots").then((found) => found.items.reverse(), () => null), []);
  if (!admin(me) || !value) return null;
  const close = () => { setDoing(""); again(); };
  const left = async () => { const dry = await send("POST", "/world/migrate", { dry_run: true }); return { would: dry.migrated ? [`${count(dry.migrated, "cell")} take the definition of now.`, ...dry.sample] : ["Every cell has the definition of now: nothing is left."], plan: dry.plan }; };
  const free = async (given) => { const dry = await send("POST", "/world/snapshots/gc", { dry_run: true, ...keep(given) }); return { would: Object.entries(dry).filter(([name, each]) => name !== "dry_run" && (!Array.isArray(each) || each.length)).map(([name, each]) => `${name.replaceAll("_", " ")}: ${Array.isArray(each) ? each.length : figure(each)}`) }; };
  const keep = (given) => (given.keep ? { keep: Number(given.keep) } : {});
  return html`<section class="sect"><div class="sect-head"><h2>Snapshots</h2><span class="muted">${value.length} retained</span><span class="end"><button class="btn small" type="button" onClick=${() => setDoing("migrate")}>Migrate the rest…</button>${value.length > 0 && html`<button class="btn small" type="button" onClick=${() => setDoing("gc")}>Free…</button>`}<button class="btn small" type="button" onClick=${() => setDoing("take")}>Take one…</button></span></div>
    ${value.length === 0 ? html`<p class="muted">None was taken. A snapshot keeps all cells as they are at one entry; a world can be restored from it.</p>` : html`<div class="scroll"><table class="ledger flush"><thead><tr><th>taken</th><th class="num">entry</th><th>cells</th><th class="num">open effects</th><th>hash</th></tr></thead><tbody>${value.slice(0, 20).map((each) => html`<tr><td class="nowrap">${moment(each.taken_at)}</td><td class="num mono">${each.entry}</td><td>${Object.entries(each.cells).map(([name, n]) => `${figure(n)} ${name}`).join(", ")}</td><td class="num">${figure(each.open)}</td><td class="mono" title=${each.hash}>${each.hash.slice(0, 19)}…</td></tr>`)}</tbody></table></div>`}
    ${doing === "take" && html`<${Dialog} title="Take a snapshot" label="Take it" says="All cells as they are at this entry are kept, with what is open. The world goes on meanwhile." cmd=${() => command("snapshot", "take", "--against", "MODULE")} request=${() => ["POST", "/world/snapshots", {}]} close=${close} />`}
    ${doing === "gc" && html`<${Dialog} title="Free what no snapshot needs" label="Free it" risk=${true} preview=${free} fields=${[{ name: "keep", label: "Keep so many of the newest", optional: true, numeric: true, dry: true }]} cmd=${(given) => command("snapshot", "gc", ...(given.keep ? ["--keep", given.keep] : []))} request=${(given) => ["POST", "/world/snapshots/gc", keep(given)]} close=${close} />`}
    ${doing === "migrate" && html`<${Dialog} title="Migrate the remaining cells" label="Migrate" preview=${left} cmd=${() => command("manifest", "migrate")} request=${(_, plan) => ["POST", "/world/migrate", plan ? { plan } : {}]} moved=${async () => ["cells were made or migrated"]} close=${close} />`}</section>`;
}

// What an event led to, as a tree: each entry below the one that asked for it.
export function Traced({ node }) {
  return html`<li><div class="row"><span class="mono muted">${node.entry}</span> <b class="strong">${visible(node.what)}</b>${node.status && html` <${Status} of=${node.status} />`} <span class="muted">at</span> <${Id} id=${node.id} />${node.value !== null && node.value !== undefined && html` <code class="muted">${visible(json(node.value)).slice(0, 160)}</code>`}${node.open?.length > 0 && html` <span class="st-waiting">open: ${visible(node.open.join(", "))}</span>`}<span class="muted when">${moment(node.at)}</span></div>
    ${node.led_to.length > 0 && html`<ul class="trace">${node.led_to.map((each) => html`<${Traced} node=${each} />`)}</ul>`}</li>`;
}
