// The fleet: engines that live, what the journal has, what is known of the database.
import { html, useEffect } from "../lib/html.js";
import { get } from "../lib/api.js";
import { ago, command, count, figure, moment } from "../lib/format.js";
import { href } from "../lib/router.js";
import { Bones, Cmd, Empty, Trouble, useLoaded, useTick } from "../lib/parts.js";
import { calm, watch } from "../lib/stream.js";

const LABELS = { size_bytes: "size", last_entry_at: "last entry" };

// Facts are text for people and programs: bytes and nanoseconds are told as a size and a time.
const told = (name, text) =>
  name === "last_entry_at" && Number(text) ? moment(new Date(Number(text) / 1e6).toISOString()) : name === "size_bytes" ? `${figure(Number(text))} bytes` : text;

export default function Fleet({ setLive }) {
  const { value, error, again } = useLoaded(async () => ({ fleet: await get("/fleet"), workflows: (await get("/workflows")).items }), []);
  useEffect(() => watch(["fleet"], calm(again, 2000), setLive), []);
  useTick(10000);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const { fleet, workflows } = value;
  const missing = workflows.flatMap((each) => each.versions.filter((one) => !one.here && ["running", "waiting", "stuck"].some((status) => one.counts[status])).map((one) => [each.name, one]));
  return html`<div class="head"><h1>Fleet</h1><span class="muted">${count(fleet.engines.length, "engine")}, ${count(Object.keys(fleet.entries).length, "shard")} with entries</span></div>
  <div class="stack far"><section class="sect"><div class="sect-head"><h2>Engines</h2></div>
    ${fleet.engines.length === 0 ? html`<div class="sheet"><${Empty} title="No engine runs: nothing moves"><p class="second">What is asked for is recorded, and done when an engine opens the database:</p><${Cmd} text="perdure serve MODULE --db URL" /><//></div>` : html`<div class="scroll"><table class="ledger flush"><thead><tr><th>engine</th><th>process</th><th>machine</th><th class="num">shards</th><th class="num">for</th></tr></thead><tbody>${fleet.engines.map((each) => html`<tr><td class="mono">${each.name}</td><td class="mono">${each.pid || ""}</td><td>${each.host}</td><td class="num">${each.shards}</td><td class="num">${ago(each.since)}</td></tr>`)}</tbody></table></div>`}</section>
  <section class="sect"><div class="sect-head"><h2>No engine has the code of</h2><span class="muted">${missing.length}</span></div>${missing.length === 0 ? html`<p class="muted">Every live instance has its code on some engine.</p>` : html`<table class="ledger flush"><tbody>${missing.map(([name, one]) => html`<tr><td class="mono">${name} ${one.version}</td><td class="num"><a href=${href("/instances", { q: `workflow:${name} version:${one.version}` })}>${figure(Object.values(one.counts).reduce((a, b) => a + b, 0))}</a></td></tr>`)}</tbody></table>`}</section>
  <section class="sect"><div class="sect-head"><h2>Database</h2></div><dl class="facts"><dt>on the way to instances</dt><dd class="num">${count(fleet.undelivered, "event")}</dd>${Object.entries(fleet.facts).map(([name, text]) => html`<dt>${LABELS[name] || name.replaceAll("_", " ")}</dt><dd class="num mono">${told(name, text)}</dd>`)}</dl><${Cmd} text=${command("doctor")} /></section></div>`;
}
