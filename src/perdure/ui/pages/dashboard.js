// What needs a person, what runs, and how it goes.
import { html, useEffect } from "../lib/html.js";
import { get } from "../lib/api.js";
import { ago, clock, count, figure, moment } from "../lib/format.js";
import { href } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Status, Trouble, operates, useLoaded, useTick } from "../lib/parts.js";
import { Strips } from "../lib/strips.js";
import { calm, watch } from "../lib/stream.js";

const STATUSES = ["running", "waiting", "stuck", "completed", "failed", "cancelled"];
const SAYS = { running: "in hand now", waiting: "message, time, person", stuck: "need a person", completed: "ever", failed: "ever", cancelled: "ever" };

async function load(me) {
  const now = new Date().toISOString();
  const [facets, stuck, bad, late, fleet, workflows, bulks] = await Promise.all([
    get("/instances/facets"),
    get("/instances", { q: "status:stuck", limit: 500 }),
    get("/instances", { q: "status:failed status:cancelled", limit: 6 }),
    get("/tasks", { due_before: now, status: ["open", "assigned"], order: "due", limit: 100 }),
    get("/fleet"),
    get("/workflows"),
    operates(me) ? get("/bulk", { limit: 20 }) : { items: [] },
  ]);
  return { facets: facets.items, stuck: stuck.items, bad: bad.items, late: late.items, fleet, workflows: workflows.items, bulks: bulks.items.filter((each) => each.refused.length && Date.parse(each.started_at) > Date.now() - 86400000) };
}

const today = () => { const now = new Date(); return `${now.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric" })}, ${clock(now)}`; };

export default function Dashboard({ setLive, me }) {
  const { value, error, again } = useLoaded(() => load(me), []);
  useEffect(() => watch(["fleet", "tasks:mine"], calm(again, 1500), setLive), []);
  const rates = useLoaded(() => get("/instances/rates").catch(() => null), [Math.floor(Date.now() / 60000)]);
  useTick(10000);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const total = (status, workflow) => value.facets.filter((each) => each.status === status && (!workflow || each.workflow === workflow)).reduce((sum, each) => sum + each.count, 0);
  const startable = value.workflows.find((each) => !each.can_start);
  return html`
<div class="head"><h1>Dashboard</h1><span class="muted">${today()}</span>
  <div class="end">${startable && html`<a class="btn" href=${href(`/workflows/${startable.name}`, { start: 1 })}><${Icon} name="plus" />Start an instance…</a>`}</div></div>
<nav class="totals" aria-label="Instances by status">${STATUSES.map((status) => {
    const n = total(status);
    return html`<a href=${href("/instances", { q: `status:${status}` })}><${Status} of=${status} /><span class=${`fig${status === "stuck" && n ? " hot" : ""}`}>${figure(n)}</span><small>${SAYS[status]}</small></a>`;
  })}</nav>
<div class="dash">
<div class="stack far">
  <${Needs} stuck=${value.stuck} late=${value.late} bulks=${value.bulks} />
  <${Runs} workflows=${value.workflows} total=${total} />
</div>
<div class="stack far">
  ${rates.value && html`<${Strips} of=${rates.value} />`}
  <${Fleet} fleet=${value.fleet} />
  <section class="sect" aria-labelledby="h-last"><div class="sect-head"><h2 id="h-last">Last ended badly</h2><span class="end"><a href=${href("/instances", { q: "status:failed status:cancelled" })}>All</a></span></div>
    ${value.bad.length ? html`<table class="ledger flush"><tbody>${value.bad.map((each) => html`<tr key=${each.instance}><td class="nowrap"><${Status} of=${each.status} /></td><td class="cut"><${Id} id=${each.id} /></td><td class="num muted">${moment(each.changed_at)}</td></tr>`)}</tbody></table>` : html`<p class="muted">Nothing did.</p>`}
  </section>
</div></div>`;
}

function Needs({ stuck, late, bulks }) {
  const groups = new Map();
  for (const each of stuck) {
    const key = `${each.workflow}\n${each.version}\n${each.reason}`;
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  const rows = [...groups.values()].sort((a, b) => b.length - a.length);
  const tasks = new Map();
  for (const each of late) tasks.set(`${each.workflow}\n${each.name}`, [...(tasks.get(`${each.workflow}\n${each.name}`) ?? []), each]);
  return html`<section class="sect" aria-labelledby="h-need"><div class="sect-head"><h2 id="h-need">Needs a person</h2><span class="muted">${stuck.length} stuck, ${count(late.length, "task")} overdue</span>
    <span class="end"><a href=${href("/instances", { q: "status:stuck" })}>All stuck</a><a href=${href("/tasks")}>All tasks</a></span></div>
    ${rows.length + tasks.size + bulks.length === 0
      ? html`<div class="sheet"><${Empty} title="Nothing needs a person"><p class="second">Instances that are stuck and tasks that are late stand here, with the way out beside them.</p><//></div>`
      : html`<div class="need"><table class="ledger flush"><thead><tr><th class="num">count</th><th>status</th><th>what, and where</th><th class="wf-col">workflow</th><th class="num wf-col">oldest</th><th><span class="sr">open</span></th></tr></thead><tbody>
      ${rows.map((group) => {
        const [what, where] = group[0].reason.split(" at ");
        const list = href("/instances", { q: `status:stuck workflow:${group[0].workflow} error_type:${what}` });
        const target = group.length === 1 ? href(`/instances/${group[0].id}`) : list;
        const oldest = group.reduce((a, b) => (a.changed_at < b.changed_at ? a : b));
        return html`<tr><td class="count"><a class="fig" href=${list}>${group.length}</a></td><td class="nowrap"><${Status} of="stuck" /></td>
          <td class="what"><a class="lead" href=${target} data-row>${what || "stuck"}</a>${where && html`<span class="muted">at <code>${where}</code></span>`}</td>
          <td class="nowrap wf-col second">${group[0].workflow} ${group[0].version}</td><td class="num wf-col second">${ago(oldest.changed_at)}</td><td class="num"><a class="btn small" href=${target}>Look</a></td></tr>`;
      })}
      ${[...tasks.values()].map((group) => html`<tr><td class="count"><a class="fig" href=${href("/tasks")}>${group.length}</a></td><td class="nowrap"><${Status} of="overdue" /></td>
          <td class="what"><a class="lead" href=${href(`/tasks/${group[0].id}`)} data-row>${group[0].title}</a><span class="muted">${group[0].assignee ? `held by ${group[0].assignee}` : `for ${[...group[0].roles.map((role) => `the role ${role}`), ...group[0].users].join(", ")}`}</span></td>
          <td class="nowrap wf-col second">${group[0].workflow}</td><td class="num wf-col second">${ago(group[0].due)}</td><td class="num"><a class="btn small" href=${href(`/tasks/${group[0].id}`)}>Open</a></td></tr>`)}
      ${bulks.map((each) => html`<tr><td class="count"><a class="fig" href=${href("/bulk", { id: each.id })}>${each.refused.length}</a></td><td class="nowrap"><${Status} of="refused" /></td>
          <td class="what"><a class="lead" href=${href("/bulk", { id: each.id })} data-row>Bulk ${each.verb} of ${count(each.total, "instance")}: ${each.refused.length} of at most ${each.errors_max} were refused</a><span class="muted">${figure(each.done)} of ${figure(each.total)} done</span></td>
          <td class="nowrap wf-col second">${each.by}</td><td class="num wf-col second">${ago(each.started_at)}</td><td class="num"><a class="btn small" href=${href("/bulk", { id: each.id })}>Look</a></td></tr>`)}
      </tbody></table></div>`}</section>`;
}

function Runs({ workflows, total }) {
  const columns = ["running", "waiting", "stuck", "completed", "failed"];
  const ink = { stuck: "st-stuck", failed: "st-failed" };
  const cell = (status, workflow) => {
    const n = total(status, workflow);
    const q = `status:${status}${workflow ? ` workflow:${workflow}` : ""}`;
    return html`<td class="num">${n ? html`<a class=${ink[status] ?? "fig"} href=${href("/instances", { q })}>${figure(n)}</a>` : html`<span class="muted">0</span>`}</td>`;
  };
  return html`<section class="sect" aria-labelledby="h-runs"><div class="sect-head"><h2 id="h-runs">What runs</h2><span class="muted">${count(workflows.length, "workflow")}</span><span class="end"><a href=${href("/workflows")}>All workflows</a></span></div>
    ${workflows.length === 0 ? html`<div class="sheet"><${Empty} title="Nothing has run yet"><p class="second">Every workflow that an engine knows is a line here. This runs one:</p><${Cmd} text="perdure serve MODULE --db shop.db" /><//></div>` : html`
    <div class="scroll"><table class="ledger flush runs"><thead><tr><th>workflow</th><th class="wide-only">dialect</th>${columns.map((each) => html`<th class="num">${each}</th>`)}</tr></thead><tbody>
    ${workflows.map((each) => html`<tr key=${each.name}><td><a class="mono" href=${href(`/workflows/${each.name}`)}>${each.name}</a></td><td class="muted wide-only">${each.noun}</td>${columns.map((status) => cell(status, each.name))}</tr>`)}
    </tbody><tfoot><tr><th scope="row">all</th><td class="wide-only"></td>${columns.map((status) => cell(status))}</tr></tfoot></table></div>`}</section>`;
}

function Fleet({ fleet }) {
  const entries = Object.values(fleet.entries);
  const sum = entries.reduce((sum, each) => sum + (BigInt(each) & ((1n << 48n) - 1n)), 0n);
  return html`<section class="sect" aria-labelledby="h-fleet"><div class="sect-head"><h2 id="h-fleet">Fleet</h2></div>
    <dl class="facts"><dt>engine</dt><dd class="num">${fleet.engine ? html`<code>${fleet.engine.name}</code>` : html`<span class="late">none runs: nothing moves</span>`}</dd>
    ${fleet.engine?.pid ? html`<dt>process</dt><dd class="num mono">${fleet.engine.pid} on ${fleet.engine.host}</dd>` : null}
    <dt>journal</dt><dd class="num">${count(Number(sum), "entry").replace("entrys", "entries")}, ${count(entries.length, "shard")}</dd></dl></section>`;
}
