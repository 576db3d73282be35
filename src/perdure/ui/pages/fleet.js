// The fleet: engines that live, the shards, code that no engine has, the database and what its examination finds.
import { html, useEffect, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { ago, command, count, figure, moment, visible } from "../lib/format.js";
import { href } from "../lib/router.js";
import { Bones, Cmd, Empty, Shape, Trouble, useLoaded, useTick } from "../lib/parts.js";
import { calm, watch } from "../lib/stream.js";

const LABELS = { size_bytes: "size", last_entry_at: "last entry" };

// Facts are text for people and programs: bytes and nanoseconds are told as a size and a time.
const told = (name, text) =>
  name === "last_entry_at" && Number(text) ? moment(new Date(Number(text) / 1e6).toISOString()) : name === "size_bytes" ? size(Number(text)) : text;
const size = (n) => { let [at, unit] = [n, 0]; while (at >= 1024 && unit < 4) { at /= 1024; unit += 1; } return `${unit ? at.toFixed(1) : at} ${["bytes", "KiB", "MiB", "GiB", "TiB"][unit]}`; };

const millis = (seconds) => `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
const runs = (engine) => Object.entries(engine.workflows).map(([name, versions]) => `${name} ${versions.join(", ")}`).join("\n");

export default function Fleet({ setLive, me }) {
  const { value: fleet, error, again } = useLoaded(() => get("/fleet"), []);
  useEffect(() => watch(["fleet"], calm(again, 2000), setLive), []);
  useTick(5000);
  if (!fleet) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const missing = fleet.unserved;
  return html`<div class="head"><h1>Fleet</h1><span class="muted">${count(fleet.engines.length, "engine")}, ${count(fleet.shards.length, "shard")}</span></div>
  <div class="stack far"><section class="sect"><div class="sect-head"><h2>Engines</h2></div>
    ${fleet.engines.length === 0 ? html`<div class="sheet"><${Empty} title="No engine runs: nothing moves"><p class="second">What is asked for is recorded, and done when an engine opens the database:</p><${Cmd} text="perdure serve MODULE --db URL" /><//></div>` : html`<div class="scroll"><table class="ledger flush"><thead><tr><th>engine</th><th class="num">process</th><th>machine</th><th class="num">shards</th><th class="num" title="How long its last commits took: half of them, and 95 of 100, at most">commit p50, p95</th><th class="num" title="Events that are on their way to its instances, and the oldest of them">inbox</th><th>runs</th><th class="num">since</th></tr></thead><tbody>${fleet.engines.map((each) => html`<tr><td class="mono nowrap">${each.name}</td><td class="num mono">${each.pid || ""}</td><td>${each.host}</td><td class="num">${each.shards}</td><td class="num nowrap">${each.commit_p50_seconds === null ? html`<span class="muted">none yet</span>` : `${millis(each.commit_p50_seconds)}, ${millis(each.commit_p95_seconds)}`}</td><td class=${`num nowrap${each.inbox_lag_seconds > 5 ? " late" : ""}`}>${each.undelivered ? `${figure(each.undelivered)} for ${Math.round(each.inbox_lag_seconds)} s` : html`<span class="zero">0</span>`}</td><td class="second" title=${runs(each)}>${count(Object.values(each.workflows).flat().length, "version")}</td><td class="num nowrap" title=${moment(each.since)}>${ago(each.since)}</td></tr>`)}</tbody>${fleet.engines.length > 1 && html`<tfoot><tr><th>all</th><td></td><td></td><td class="num">${fleet.engines.reduce((sum, each) => sum + each.shards, 0)}</td><td></td><td></td><td></td><td></td></tr></tfoot>`}</table></div>`}</section>
  <section class="sect"><div class="sect-head"><h2>Code that no engine has</h2><span class="muted">${missing.length ? count(missing.length, "version") : "none"}</span></div>${missing.length === 0 ? html`<p class="st st-completed ok-line"><${Shape} name="completed" />Every live instance has its code on some engine.</p>` : html`<div class="scroll"><table class="ledger flush"><thead><tr><th>workflow</th><th>version</th><th class="num">live</th></tr></thead><tbody>${missing.map((each) => html`<tr><td><a class="mono" href=${href(`/workflows/${each.workflow}`)}>${each.workflow}</a></td><td class="mono">${each.version}</td><td class="num"><a class="late" href=${href("/instances", { q: `workflow:${each.workflow} version:${each.version}` })}>${figure(each.live)}</a></td></tr>`)}</tbody></table></div>`}</section>
  <div class="cols two"><section class="sect"><div class="sect-head"><h2>Shards</h2><span class="muted">${count(fleet.shards.length, "shard")}</span></div>
    <dl class="facts"><dt>on the way to instances</dt><dd class=${`num${fleet.undelivered > 100 ? " late" : ""}`}>${count(fleet.undelivered, "event")}${fleet.oldest_undelivered && `, the oldest since ${ago(fleet.oldest_undelivered)}`}</dd></dl>
    <div class="scroll"><table class="ledger flush"><thead><tr><th class="num">shard</th><th>engine</th><th class="num" title="How often the shard was taken">epoch</th><th class="num" title="Unless it is renewed">lease until</th><th class="num">entries</th></tr></thead><tbody>${fleet.shards.map((each) => html`<tr><td class="num">${each.shard}</td><td class="mono nowrap">${each.engine ? visible(each.engine) : html`<span class="st-stuck">none</span>`}</td><td class="num">${each.epoch}</td><td class="num nowrap">${each.lease_until ? moment(each.lease_until) : html`<span class="muted">the process ends</span>`}</td><td class="num">${figure(Number(each.entries))}</td></tr>`)}</tbody></table></div></section>
  <section class="sect"><div class="sect-head"><h2>Database</h2></div>${Object.keys(fleet.facts).length === 0 ? html`<p class="muted">An admin sees what is known of it.</p>` : html`<dl class="facts">${Object.entries(fleet.facts).map(([name, text]) => html`<dt>${LABELS[name] || name.replaceAll("_", " ")}</dt><dd class="num mono">${told(name, text)}</dd>`)}</dl>`}</section></div>
  ${me.grants.some((each) => each.role === "admin") && html`<${Doctor} />`}</div>`;
}

// The examination of the whole database reads all of it: it is asked for.
export function Doctor() {
  const [found, setFound] = useState(null);
  const [busy, setBusy] = useState(false);
  const look = async () => { setBusy(true); try { setFound(await get("/doctor")); } catch (error) { setFound({ error }); } finally { setBusy(false); } };
  return html`<section class="sect"><div class="sect-head"><h2>Examination</h2><span class="muted">reads the whole database</span><span class="end"><button class="btn small" type="button" disabled=${busy} onClick=${look}>${busy ? "Looking…" : "Examine"}</button></span></div>
    <div role="status">${!found ? html`<${Cmd} text=${command("doctor")} />` : found.error ? html`<${Trouble} error=${found.error} />` : html`<p class=${`st ok-line ${found.ok ? "st-completed" : "st-failed"}`}><${Shape} name=${found.ok ? "completed" : "failed"} />${found.ok ? "Nothing is wrong." : count(found.problems.length, "problem")}</p>
      ${found.problems.length > 0 && html`<ul class="problems">${found.problems.map((each) => html`<li>${visible(typeof each === "string" ? each : each.text ?? each.problem ?? JSON.stringify(each))}${each.hint && html` <span class="muted">${visible(each.hint)}</span>`}</li>`)}</ul>`}
      <p class="muted">${Object.entries(found.versions).map(([name, text]) => `${name} ${text}`).join(", ")}</p>`}</div></section>`;
}
