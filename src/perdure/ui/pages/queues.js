// Queues: what waits for workers, for how long, who has what since when, and how often a job was handed out.
import { html, useEffect } from "../lib/html.js";
import { get, part } from "../lib/api.js";
import { ago, command, count, figure, moment, visible } from "../lib/format.js";
import { href } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Trouble, useLoaded, useTick } from "../lib/parts.js";
import { calm, watch } from "../lib/stream.js";

// A file has one engine, and that performs the jobs of its queues itself: which of them have begun is not kept.
const itself = (me) => !/^postgres/.test(me.database);
const serve = (me, name) => (itself(me) ? command("serve", "MODULE", "--queue", `${name}=1`) : `perdure worker MODULE --queue ${name} --db URL`);
const rate = (queue) => (queue.per_minute === null ? "" : figure(Math.round(queue.per_minute)));
const SOME = 5; // jobs beside a queue; its own page has them all

export default function Queues({ rest, query, me, setLive }) {
  useTick(5000);
  return rest ? html`<${Queue} name=${rest} query=${query} me=${me} setLive=${setLive} />` : html`<${All} me=${me} setLive=${setLive} />`;
}

function All({ me, setLive }) {
  const { value, error, again } = useLoaded(async () => { const [queues, workers] = await Promise.all([get("/queues"), get("/workers")]); return { queues: queues.items, workers: workers.items }; }, []);
  useEffect(() => watch(["fleet"], calm(again, 1500), setLive), []);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const { queues, workers } = value;
  const open = queues.reduce((sum, each) => sum + each.depth, 0);
  return html`<div class="head"><h1>Queues</h1><span class="muted">${count(queues.length, "queue")} with ${count(open, "open job")}, ${count(workers.length, "worker")} at work</span></div>
  ${queues.length === 0 ? html`<div class="sheet"><${Empty} title="No job is open"><p class="second">A step with <code>executor="images"</code> waits here until ${itself(me) ? "the engine has a place for it" : "a worker takes it. A worker"}:</p><${Cmd} text=${serve(me, "images")} /><//></div>` : html`
  <div class="scroll"><table class="ledger flush"><thead><tr><th>queue</th><th class="num">open</th><th class="num">taken</th><th class="num">waiting</th><th class="wide-only">share that is taken</th><th class="num">oldest</th><th class="num" title="Jobs that ended in the last minute">a minute</th><th class="wide-only">functions</th></tr></thead><tbody>${queues.map((each) => html`<tr key=${each.name}><td><a class="mono" data-row href=${href(`/queues/${part(each.name)}`)}>${visible(each.name)}</a></td><td class="num">${figure(each.depth)}</td><td class="num">${figure(each.taken)}</td><td class=${`num${each.taken === 0 && !itself(me) ? " late" : ""}`}>${figure(each.depth - each.taken)}</td><td class="wide-only"><${Share} of=${each} /></td><td class="num nowrap">${each.oldest ? ago(each.oldest) : ""}</td><td class="num">${rate(each)}</td><td class="second wide-only">${[...new Set(each.jobs.map((job) => job.function.split(":").at(-1)))].slice(0, 4).join(", ")}</td></tr>`)}</tbody>
    <tfoot><tr><th>all</th><td class="num">${figure(open)}</td><td class="num">${figure(queues.reduce((sum, each) => sum + each.taken, 0))}</td><td class="num">${figure(queues.reduce((sum, each) => sum + each.depth - each.taken, 0))}</td><td class="wide-only"></td><td></td><td></td><td class="wide-only"></td></tr></tfoot></table></div>
  ${queues.map((each) => html`<section class="sect" key=${each.name}><div class="sect-head"><h2 class="mono">${visible(each.name)}</h2><span class="muted">${itself(me) ? "the engine performs its jobs, if it serves the queue" : each.taken === 0 ? html`<span class="late">no worker has a job of it</span>` : `the oldest ${Math.min(SOME, each.depth)} of ${figure(each.depth)}`}</span>${each.depth > SOME && html`<span class="end"><a href=${href(`/queues/${part(each.name)}`)}>All ${figure(each.depth)}</a></span>`}</div><${Jobs} of=${each.jobs.slice(0, SOME)} />
    ${each.taken === 0 && html`<${Cmd} text=${serve(me, each.name)} />`}</section>`)}
  ${workers.length > 0 && html`<${Workers} of=${workers} />`}`}`;
}

// How much of a queue workers have: the figure stands beside it.
const Share = ({ of }) => html`<svg class="progress" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="ground" width="100" height="10" /><rect class="done" width=${of.depth ? (100 * of.taken) / of.depth : 0} height="10" /></svg>`;

function Jobs({ of }) {
  return html`<div class="scroll"><table class="ledger flush"><thead><tr><th>instance</th><th>function</th><th class="num">open for</th><th>worker</th><th class="num">has it for</th><th class="num">handed out</th><th class="wide-only">note</th></tr></thead><tbody>
    ${of.map((job) => html`<tr><td class="cut jobs"><${Id} id=${job.instance} row=${true} /></td><td class="mono nowrap" title=${job.function}>${visible(job.function.split(":").at(-1))}</td><td class="num nowrap" title=${moment(job.since)}>${ago(job.since)}</td><td class="nowrap">${job.worker ? visible(job.worker) : html`<span class="muted">none yet</span>`}</td><td class="num nowrap">${job.claimed_at ? ago(job.claimed_at) : ""}</td><td class="num nowrap">${job.delivery > 1 ? html`<span class="st-stuck" title="What had it before was lost">${job.delivery} times</span>` : html`<span class="zero">once</span>`}</td><td class="second wide-only">${visible(job.note)}</td></tr>`)}</tbody></table></div>`;
}

const Workers = ({ of }) => html`<section class="sect"><div class="sect-head"><h2>Workers</h2><span class="muted">that have jobs now</span></div><div class="scroll"><table class="ledger flush"><thead><tr><th>worker</th><th>queues</th><th class="num">jobs</th><th class="num">the first for</th></tr></thead><tbody>${of.map((each) => html`<tr key=${each.name}><td class="mono">${visible(each.name)}</td><td>${Object.entries(each.queues).map(([name, n]) => html`<a href=${href(`/queues/${part(name)}`)}>${visible(name)}</a> <span class="muted">${figure(n)}</span> `)}</td><td class="num">${figure(each.jobs)}</td><td class="num nowrap">${each.since ? ago(each.since) : ""}</td></tr>`)}</tbody></table></div></section>`;

function Queue({ name, query, me, setLive }) {
  const cursor = query.get("cursor") ?? "";
  const { value, error, again } = useLoaded(async () => { const [queue, jobs] = await Promise.all([get(`/queues/${part(name)}`), get(`/queues/${part(name)}/-/jobs`, { limit: 100, cursor })]); return { queue, jobs }; }, [name, cursor]);
  useEffect(() => watch(["fleet"], calm(again, 2000), setLive), [name, cursor]);
  if (!value) return error ? (error.status === 404 ? html`<div class="inst-head"><${Path} /><div class="head"><div class="title"><h1 class="mono">${visible(name)}</h1></div></div></div><div class="sheet"><${Empty} title="No job of it is open"><p class="second">A queue is known while it has jobs. They are performed by:</p><${Cmd} text=${serve(me, name)} /><//></div>` : html`<${Trouble} error=${error} again=${again} />`) : html`<${Bones} />`;
  const { queue, jobs } = value;
  return html`<div class="inst-head"><${Path} /><div class="head"><div class="title"><h1 class="mono">${visible(queue.name)}</h1></div></div>
  <dl class="meta"><div><dt>open</dt><dd>${figure(queue.depth)}</dd></div><div><dt>taken</dt><dd>${figure(queue.taken)}</dd></div><div><dt>oldest</dt><dd>${queue.oldest ? ago(queue.oldest) : "none"}</dd></div><div><dt>ended in a minute</dt><dd>${rate(queue)}</dd></div><div><dt>workers</dt><dd>${queue.workers.length || (itself(me) ? "the engine" : html`<span class="late">none has a job of it</span>`)}</dd></div></dl></div>
  <section class="sect"><div class="sect-head"><h2>Jobs</h2><span class="muted">the oldest first</span><span class="end">${cursor && html`<a href=${href(`/queues/${part(name)}`)}>First page</a>`}${jobs.next && html`<a href=${href(`/queues/${part(name)}`, { cursor: jobs.next })}>Next 100</a>`}</span></div><${Jobs} of=${jobs.items} /></section>
  ${queue.workers.length > 0 ? html`<${Workers} of=${queue.workers} />` : html`<section class="sect"><div class="sect-head"><h2>What performs them</h2></div><${Cmd} text=${serve(me, name)} /></section>`}`;
}

const Path = () => html`<nav class="path" aria-label="Where"><a href=${href("/queues")}><${Icon} name="left" />Queues</a></nav>`;
