// Queues: what waits for workers, for how long, and who has what.
import { html, useEffect } from "../lib/html.js";
import { get } from "../lib/api.js";
import { ago, figure, moment, visible } from "../lib/format.js";
import { Bones, Cmd, Empty, Id, Trouble, useLoaded, useTick } from "../lib/parts.js";
import { calm, watch } from "../lib/stream.js";

export default function Queues({ setLive }) {
  const { value, error, again } = useLoaded(() => get("/queues"), []);
  useEffect(() => watch(["fleet"], calm(again, 1500), setLive), []);
  useTick(10000);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  return html`<div class="head"><h1>Queues</h1><span class="muted">${value.items.length} with open jobs</span></div>
  ${value.items.length === 0 ? html`<div class="sheet"><${Empty} title="No job is open"><p class="second">A step with <code>executor="images"</code> waits here until a worker takes it. A worker:</p><${Cmd} text="perdure worker MODULE --queue images --db URL" /><//></div>` : value.items.map((queue) => html`<section class="sect" key=${queue.name}><div class="sect-head"><h2 class="mono">${visible(queue.name)}</h2><span class="muted">${figure(queue.depth)} open, ${figure(queue.taken)} taken, oldest ${ago(queue.oldest)}</span></div>
    <div class="scroll"><table class="ledger flush"><thead><tr><th>instance</th><th>function</th><th class="num">delivery</th><th class="num">open for</th><th>worker</th><th class="num">since</th><th>note</th></tr></thead><tbody>
    ${queue.jobs.map((job) => html`<tr><td class="cut"><${Id} id=${job.instance} row=${true} /></td><td class="mono">${visible(job.function)}</td><td class="num">${job.delivery}</td><td class="num">${ago(job.since)}</td><td>${job.worker ? visible(job.worker) : html`<span class="muted">no one yet</span>`}</td><td class="num">${job.claimed_at ? moment(job.claimed_at) : ""}</td><td class="second">${visible(job.note)}</td></tr>`)}</tbody></table></div></section>`)}`;
}
