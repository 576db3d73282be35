// What needs a person, what runs, and how it goes.
import { html, useEffect, useState } from "../lib/html.js";
import { get, part } from "../lib/api.js";
import { ago, clock, count, figure, quoted, shortly, span, visible, weekday } from "../lib/format.js";
import { href } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Status, Trouble, Version, operates, useLoaded, useTick } from "../lib/parts.js";
import { BulkDialog } from "../lib/bulk.js";
import { ask } from "../lib/palette.js";
import { Spark, Strips } from "../lib/strips.js";
import { calm, watch } from "../lib/stream.js";

const STATUSES = ["running", "waiting", "stuck", "completed", "failed", "cancelled"];
const ENDED = new Set(["completed", "failed", "cancelled"]);
const DAY = 86400000;

async function load(me) {
  const now = new Date().toISOString();
  const [facets, stuck, bad, late, fleet, workflows, bulks, [oldest]] = await Promise.all([
    get("/instances/facets"),
    get("/instances/groups", { q: "status:stuck" }),
    get("/instances", { q: "status:failed status:cancelled", limit: 6 }),
    get("/tasks", { due_before: now, status: ["open", "assigned"], order: "due", limit: 100 }),
    get("/fleet"),
    get("/workflows"),
    operates(me) ? get("/bulk", { limit: 20 }) : { items: [] },
    get("/instances", { q: "status:waiting", order: "started", limit: 1 }).then((found) => found.items),
  ]);
  return { facets: facets.items, stuck, bad: bad.items, late: late.items, fleet, workflows: workflows.items, oldest, bulks: bulks.items.filter((each) => each.refused.length && Date.parse(each.started_at) > Date.now() - DAY) };
}

const yesterday = () => `${new Date(Date.now() - DAY).toISOString().slice(0, 16)}Z`;
// The words of a filter for the instances of one workflow, of one status; those that have ended: since a day.
const words = (status, workflow = "") => [`status:${status}`, workflow && `workflow:${quoted(workflow)}`, ENDED.has(status) && `ended>${yesterday()}`].filter(Boolean).join(" ");

export default function Dashboard({ setLive, me }) {
  const { value, error, again } = useLoaded(() => load(me), []);
  useEffect(() => watch(["fleet", "tasks:mine"], calm(again, 1500), setLive), []);
  const rates = useLoaded(() => get("/instances/rates"), [Math.floor(Date.now() / 60000)]);
  const [bulk, setBulk] = useState(null);
  useTick(10000);
  if (!value || !(rates.value || rates.error)) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} rows=${12} />`;
  const by = rates.value?.by ?? {};
  const total = (status, workflow) => {
    if (ENDED.has(status)) return Object.entries(by).filter(([name]) => !workflow || name === workflow).reduce((sum, [, each]) => sum + each[status], 0);
    return value.facets.filter((each) => each.status === status && (!workflow || each.workflow === workflow)).reduce((sum, each) => sum + each.count, 0);
  };
  const since = rates.value?.partial ? "last 24 h, at least" : "last 24 h";
  const says = { running: "in hand now", waiting: value.oldest ? `oldest ${span(Date.now() - Date.parse(value.oldest.started_at))}` : "message, time, person", stuck: "need a person", completed: since, failed: since, cancelled: since };
  const startable = value.workflows.find((each) => !each.can_start);
  return html`
<div class="head"><h1>Dashboard</h1><span class="muted">${weekday(new Date())} ${new Date().getFullYear()}, ${clock(new Date()).slice(0, 5)}</span>
  <div class="end">${startable && html`<button class="btn" type="button" onClick=${() => ask("Start ")}><${Icon} name="plus" />Start an instance…</button>`}</div></div>
<nav class="totals" aria-label="Instances by status">${STATUSES.map((status) => {
    const n = total(status);
    const inner = html`<${Status} of=${status} /><span class=${`fig${n ? "" : " zero"}${status === "stuck" && n ? " hot" : ""}`}>${figure(n)}</span><small>${says[status]}</small>`;
    return n ? html`<a href=${href("/instances", { q: words(status) })}>${inner}</a>` : html`<div>${inner}</div>`;
  })}</nav>
<div class="dash">
<div class="stack far">
  <${Needs} stuck=${value.stuck} late=${value.late} bulks=${value.bulks} acts=${operates(me) && !me.read_only} retry=${setBulk} />
  <${Runs} workflows=${value.workflows} total=${total} by=${by} />
</div>
<div class="stack far">
  ${rates.value && html`<${Strips} of=${rates.value} lists=${{ starts: `started>${yesterday()}`, ends: [...ENDED].map((each) => `status:${each}`).join(" ") + ` ended>${yesterday()}`, failures: words("failed") }} />`}
  <${Fleet} fleet=${value.fleet} />
  <section class="sect" aria-labelledby="h-last"><div class="sect-head"><h2 id="h-last">Last ended badly</h2><span class="end"><a href=${href("/instances", { q: "status:failed status:cancelled" })}>All</a></span></div>
    ${value.bad.length ? html`<table class="ledger flush ended"><tbody>${value.bad.map((each) => html`<tr key=${each.instance}><td class="nowrap"><${Status} of=${each.status} /></td><td class="cut"><${Id} id=${each.id} of=${each.workflow} row=${true} /></td><td class="num muted" title=${each.reason}>${shortly(each.changed_at)}</td></tr>`)}</tbody></table>` : html`<p class="muted">Nothing did.</p>`}
  </section>
</div></div>
${bulk && html`<${BulkDialog} verb="retry" selection=${{ q: bulk.q }} size=${bulk.size} close=${() => setBulk(null)} />`}`;
}

function Needs({ stuck, late, bulks, acts, retry }) {
  const tasks = new Map();
  for (const each of late) tasks.set(`${each.workflow}\n${each.name}`, [...(tasks.get(`${each.workflow}\n${each.name}`) ?? []), each]);
  const n = stuck.items.reduce((sum, each) => sum + each.count, 0);
  return html`<section class="sect" aria-labelledby="h-need"><div class="sect-head"><h2 id="h-need">Needs a person</h2><span class="muted">${[`${figure(n)}${stuck.partial ? " or more" : ""} stuck`, `${count(late.length, "task")} overdue`, bulks.length && `${count(bulks.length, "bulk")} with errors`].filter(Boolean).join(", ")}</span>
    <span class="end">${n > 0 && html`<a href=${href("/instances", { q: "status:stuck" })}>All stuck</a>`}${late.length > 0 && html`<a href=${href("/tasks")}>All tasks</a>`}</span></div>
    ${n + tasks.size + bulks.length === 0
      ? html`<div class="sheet"><${Empty} title="Nothing needs a person"><p class="second">Instances that are stuck and tasks that are late stand here, with the way out beside them.</p><//></div>`
      : html`<div class="need"><table class="ledger flush"><thead><tr><th class="num">count</th><th>status</th><th>what, and where</th><th class="wf-col">workflow</th><th class="num wf-col">oldest</th><th><span class="sr">open</span></th></tr></thead><tbody>
      ${stuck.items.map((each) => html`<${Stuck} key=${`${each.workflow} ${each.version} ${each.reason}`} of=${each} acts=${acts} retry=${retry} />`)}
      ${[...tasks.values()].map((group) => html`<tr><td class="count"><a class="fig" href=${href(group.length === 1 ? `/tasks/${group[0].id}` : "/tasks")}>${group.length}</a></td><td class="nowrap"><${Status} of="overdue" /></td>
          <td class="what"><a class="lead" href=${href(`/tasks/${group[0].id}`)} data-row>${visible(group[0].title || group[0].name)}${group.length > 1 ? `, and ${group.length - 1} more` : ""}</a><span class="muted">${group[0].assignee ? `held by ${group[0].assignee}` : `for ${[...group[0].roles.map((role) => `the role ${role}`), ...group[0].users].join(", ")}`}</span></td>
          <td class="nowrap wf-col second">${group[0].workflow}</td><td class="num wf-col second">${ago(group[0].due)}</td><td class="num"><a class="btn small" href=${href(`/tasks/${group[0].id}`)}>Open</a></td></tr>`)}
      ${bulks.map((each) => html`<tr><td class="count"><a class="fig" href=${href("/bulk", { id: each.id })}>${each.refused.length}</a></td><td class="nowrap"><${Status} of="refused" /></td>
          <td class="what"><a class="lead" href=${href("/bulk", { id: each.id })} data-row>Bulk ${each.verb} of ${count(each.total, "instance")}: ${each.refused.length} of at most ${each.errors_max} were refused</a><span class="muted">${figure(each.done)} of ${figure(each.total)} done</span></td>
          <td class="nowrap wf-col second">${each.by}</td><td class="num wf-col second">${ago(each.started_at)}</td><td class="num"><a class="btn small" href=${href("/bulk", { id: each.id })}>Look</a></td></tr>`)}
      </tbody></table></div>`}</section>`;
}

const UNKNOWN = "OutcomeUnknown";
const first = (text, id) => visible(text.split("\n")[0].replace(`${id}, `, "")); // of one of them, but told of all

// Those that are stuck at one place by one error. What may be done of them all at once is done here.
function Stuck({ of, acts, retry }) {
  const [type, error] = [of.reason.split(" at ")[0], of.error?.message ?? ""];
  const q = [`status:stuck workflow:${quoted(of.workflow)} version:${quoted(of.version)}`, type && `error_type:${quoted(type)}`, of.location && `error_at:${quoted(of.location)}`].filter(Boolean).join(" ");
  const list = href("/instances", { q });
  const one = `/instances/${part(of.example)}`;
  const target = of.count === 1 ? href(one) : list;
  const unknown = type === UNKNOWN;
  const way = !acts || type === "Divergence" ? html`<a class="btn small" href=${target}>Look</a>`
    : unknown ? html`<a class="btn small" href=${href(one, { do: "settle" })}>Settle…</a>`
      : html`<button class="btn small" type="button" onClick=${() => retry({ q, size: of.count })}>Retry…</button>`;
  return html`<tr><td class="count"><a class="fig" href=${list}>${figure(of.count)}</a></td><td class="nowrap"><${Status} of=${unknown ? "unknown outcome" : "stuck"} /></td>
    <td class="what"><a class="lead" href=${target} data-row title=${visible(error)}>${unknown ? "Outcome unknown" : visible(type || "stuck")}${error && `: ${first(error, of.example)}`}</a><span class="muted">${of.location ? html`at <code>${visible(of.location)}</code>` : "in the code of the workflow"}${unknown ? "; the step may not be repeated" : ""}</span></td>
    <td class="nowrap wf-col second">${visible(of.workflow)} <${Version} of=${of.version} /></td><td class="num wf-col second">${ago(of.oldest)}</td><td class="num">${way}</td></tr>`;
}

function Runs({ workflows, total, by }) {
  const columns = ["running", "waiting", "stuck", "completed", "failed"];
  const ink = { stuck: "st-stuck", failed: "st-failed" };
  const cell = (status, workflow) => {
    const n = total(status, workflow);
    return html`<td class="num">${n ? html`<a class=${ink[status] ?? "fig"} href=${href("/instances", { q: words(status, workflow) })}>${figure(n)}</a>` : html`<span class="zero">0</span>`}</td>`;
  };
  return html`<section class="sect" aria-labelledby="h-runs"><div class="sect-head"><h2 id="h-runs">What runs</h2><span class="muted">${count(workflows.length, "workflow")}</span><span class="end"><a href=${href("/workflows")}>All workflows</a></span></div>
    ${workflows.length === 0 ? html`<div class="sheet"><${Empty} title="Nothing has run yet"><p class="second">Every workflow that an engine knows is a line here. This runs one:</p><${Cmd} text="perdure serve MODULE --db shop.db" /><//></div>` : html`
    <div class="scroll"><table class="ledger flush runs"><thead><tr><th>workflow</th><th class="wide-only">dialect</th>${columns.map((each) => html`<th class="num">${each}${ENDED.has(each) && html`<span class="wide-only"> 24 h</span>`}</th>`)}<th class="num wide-only">starts per hour, 24 h</th></tr></thead><tbody>
    ${workflows.map((each) => html`<tr key=${each.name}><td class="nowrap"><a class="mono" data-row title=${each.name} href=${href(`/workflows/${part(each.name)}`)}>${each.name}</a></td><td class="muted wide-only">${each.noun}</td>${columns.map((status) => cell(status, each.name))}<td class="wide-only"><${Spark} name=${each.name} values=${by[each.name]?.starts} /></td></tr>`)}
    </tbody><tfoot><tr><th scope="row">all</th><td class="wide-only"></td>${columns.map((status) => cell(status))}<td class="wide-only"></td></tr></tfoot></table></div>`}</section>`;
}

function Fleet({ fleet }) {
  const { engines } = fleet;
  const shards = engines.reduce((sum, each) => sum + each.shards, 0);
  return html`<section class="sect" aria-labelledby="h-fleet"><div class="sect-head"><h2 id="h-fleet">Fleet</h2>${engines.length > 0 && html`<span class="muted">${count(engines.length, "engine")}, ${count(shards, "shard")}</span>`}<span class="end"><a href=${href("/fleet")}>All of it</a></span></div>
    <dl class="facts">${engines.length === 0 && html`<dt>engines</dt><dd class="num"><span class="late">none runs: nothing moves</span></dd>`}
    ${engines.slice(0, 4).map((each) => html`<dt class="mono">${visible(each.name)}</dt><dd class="num">${engines.length > 1 ? `${count(each.shards, "shard")}, ` : ""}since ${shortly(each.since)}, <span class="mono muted">${each.pid} on ${visible(each.host)}</span></dd>`)}
    <dt>on its way</dt><dd class="num">${fleet.undelivered ? html`<span class="late">${count(fleet.undelivered, "event")} not yet taken</span>` : html`<span class="muted">nothing</span>`}</dd>
    </dl></section>`;
}
