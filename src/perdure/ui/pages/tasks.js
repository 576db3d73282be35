// The inbox: what people are asked for; of one task its data, its form, who may do it and why, and its history.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { get, send } from "../lib/api.js";
import { clock, command, count, figure, json, moment, span, visible } from "../lib/format.js";
import { go, href } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Json, Menu, Request, Status, Trouble, useLoaded, useTick } from "../lib/parts.js";
import { offer } from "../lib/palette.js";
import { calm, watch } from "../lib/stream.js";
import { Dialog } from "../lib/dialog.js";
import { Form, checked, initial } from "../lib/form.js";

const VIEWS = { candidate: ["My roles", { candidate: true }], mine: ["Mine", { mine: true }], all: ["All I may see", {}] };
const ORDERS = { due: "Due first", priority: "Priority", created: "Oldest" };
const PAGE = 100;
const OPEN = ["open", "assigned"];
const WIDE = matchMedia("(min-width: 48.01rem)"); // below, the list and a task are two pages

export default function Tasks({ rest, query, me, setLive }) {
  const view = VIEWS[query.get("view")] ? query.get("view") : "candidate";
  const order = ORDERS[query.get("order")] ? query.get("order") : "due";
  const after = query.get("after") ?? "";
  const list = useLoaded(() => get("/tasks", { ...VIEWS[view][1], status: OPEN, order, limit: PAGE, after }), [view, order, after]);
  const counts = useLoaded(async () => Object.fromEntries(await Promise.all(Object.entries(VIEWS).map(async ([name, [, wanted]]) => [name, (await get("/tasks/count", { ...wanted, status: OPEN })).count]))), []);
  const [wide, setWide] = useState(WIDE.matches);
  const [said, setSaid] = useState("");
  const first = useRef(""); // the task that is open without being named by the address: it stays the one
  const again = () => { list.again(); counts.again(); };
  useEffect(() => watch(["tasks:mine"], calm(again, 500), setLive), [view, order, after]);
  useEffect(() => { const turned = () => setWide(WIDE.matches); WIDE.addEventListener("change", turned); return () => WIDE.removeEventListener("change", turned); }, []);
  useTick(15000);
  const items = list.value?.items ?? [];
  if (!first.current && items.length) first.current = items[0].id;
  const shown = rest || (wide && first.current) || "";
  const late = items.filter((each) => each.due && Date.parse(each.due) < Date.now()).length;
  const at = { view, order, after };
  const link = (changes) => href("/tasks", { ...at, after: "", ...changes });
  // After a task has ended the next one of the list comes, else the one before.
  const next = (title) => {
    const n = items.findIndex((each) => each.id === shown);
    const other = items[n + 1] ?? items[n - 1] ?? null;
    setSaid(`${title} is done. ${other ? `Next: ${other.title}` : "No other task is here."}`);
    first.current = "";
    go(href(other && other.id !== shown ? `/tasks/${other.id}` : "/tasks", at));
    again();
  };
  return html`<div class="head"><h1>Tasks</h1><span class="muted">${list.value?.next || after ? `${items.length} on this page` : `${items.length} here`}${late ? `, ${late} overdue` : ""}</span><div class="end"><span class="seg">${Object.entries(ORDERS).map(([name, text]) => html`<a href=${link({ order: name })} aria-current=${order === name ? "true" : null}>${text}</a>`)}</span></div></div>
  <p class="sr" role="status">${visible(said)}</p>
  <div class=${`inbox${rest ? " has-task" : ""}`}>
  <section class="sect todo-side" aria-label="Inbox"><nav class="tabs" aria-label="Which tasks">${Object.entries(VIEWS).map(([name, [text]]) => html`<a href=${link({ view: name })} onClick=${() => { first.current = ""; }} aria-current=${view === name ? "true" : null}>${text} <span class="n">${counts.value ? figure(counts.value[name]) : ""}</span></a>`)}</nav>
    ${list.error && html`<${Trouble} error=${list.error} again=${list.again} />`}
    ${!list.value && !list.error && html`<${Bones} rows=${5} />`}
    ${list.value && items.length === 0 && html`<${None} view=${view} me=${me} all=${counts.value?.all ?? 0} link=${link} />`}
    ${groups(items, order).map(([name, group]) => html`<div class="todo-group"><span>${name}</span><span>${group.length}</span></div><ol class="todo">${group.map((each) => html`<li key=${each.id}><a href=${href(`/tasks/${each.id}`, at)} data-row aria-current=${each.id === shown ? "true" : null}><span class="t">${visible(each.title)}</span><${Status} of=${each.status} /><span class="sub"><${Id} id=${each.owner} plain=${true} /><span class=${`due${each.due && Date.parse(each.due) < Date.now() ? " late" : ""}`}>${order === "priority" ? `priority ${each.priority}` : each.due ? due(each.due) : ""}</span></span></a></li>`)}</ol>`)}
    ${(after || list.value?.next) && html`<nav class="pager" aria-label="Pages">${after && html`<a class="btn small" href=${link({})}>First page</a>`}${list.value?.next && html`<a class="btn small" href=${link({ after: list.value.next })}>Next ${PAGE}</a>`}</nav>`}
  </section>
  ${shown ? html`<${Task} key=${shown} id=${shown} me=${me} next=${next} changed=${again} back=${href("/tasks", at)} fresh=${said !== ""} />` : items.length === 0 && list.value && html`<section class="sheet task wide-only"><${Empty} title="Nothing to do here"><p class="second">The data of a task and its form stand here.</p><//></section>`}
  </div>`;
}

// An inbox without a task, in the words of who looks.
function None({ view, me, all, link }) {
  const roles = me.roles.length ? `Your task roles: ${me.roles.join(", ")}.` : "You have no task role. An admin grants them in Settings.";
  const title = { candidate: "No task waits for you", mine: "You have no task", all: "There is no open task that you may see" }[view];
  const says = { candidate: `Tasks that you may take stand here. ${roles}`, mine: "A task that you claim, or that is assigned to you, stands here.", all: "What workflows ask people for stands here. In a flow:" }[view];
  return html`<div class="sheet"><${Empty} title=${title}><p class="second">${says}</p>${view === "all" ? html`<div class="cmd"><code>await ctx.task("approve", roles=["manager"])</code></div>` : all > 0 && html`<a class="btn" href=${link({ view: "all" })}>Look at the ${count(all, "task")} that you may see</a>`}<//></div>`;
}

function groups(items, order) {
  if (order === "created") return items.length ? [["oldest first", items]] : [];
  const now = Date.now();
  const byDue = (each) => (!each.due ? "no due date" : Date.parse(each.due) < now ? "overdue" : Date.parse(each.due) < now + 86400000 ? "within a day" : "later");
  const byPriority = (each) => (each.priority > 50 ? "urgent" : each.priority === 50 ? "normal" : "can wait");
  const name = order === "priority" ? byPriority : byDue;
  const found = new Map();
  for (const each of items) found.set(name(each), [...(found.get(name(each)) ?? []), each]);
  return [...found];
}

const due = (text) => {
  const left = Date.parse(text) - Date.now();
  return left < 0 ? `${span(left)} late` : `in ${span(left)}`;
};

// What was typed stays in this browser until the task has ended. A file may be too large for that.
const drafts = {
  name: (id) => `perdure.draft.${id}`,
  of(id) { try { return JSON.parse(localStorage.getItem(this.name(id))); } catch { return null; } },
  keep(id, value) { try { localStorage.setItem(this.name(id), JSON.stringify(value)); return true; } catch { this.drop(id); return false; } },
  drop(id) { localStorage.removeItem(this.name(id)); },
};

function Task({ id, me, next, changed, back, fresh }) {
  const { value: task, error, again } = useLoaded(() => get(`/tasks/${id}`), [id]);
  const [answer, setAnswer] = useState(null);
  const [kept, setKept] = useState(null); // when the draft was kept; false: it could not be
  const [problems, setProblems] = useState({});
  const [trouble, setTrouble] = useState(null);
  const [asked, setAsked] = useState(null);
  const [busy, setBusy] = useState(false);
  const form = useRef(null);
  const head = useRef(null);
  useEffect(() => watch(["tasks:mine"], calm(again, 500)), []);
  useEffect(() => {
    if (!task) return;
    const draft = drafts.of(id);
    if (draft && !OPEN.includes(task.status)) drafts.drop(id);
    setAnswer((old) => old ?? draft ?? initial(task.form));
  }, [task]);
  useEffect(() => (task ? offer(OTHERS.filter((verb) => task.may.includes(verb)).map((verb) => ({ text: `${MORE[verb].label.replace("…", "")} ${task.title}`, icon: "task", run: () => setAsked(verb) }))) : undefined), [task]);
  useLayoutEffect(() => { if (fresh && task) head.current?.focus(); }, [Boolean(task)]);
  if (!task) return html`<article class="sheet task">${error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} rows=${6} />`}</article>`;
  const may = (verb) => task.may.includes(verb);
  const ended = !OPEN.includes(task.status);
  const act = async (verb, body) => {
    setTrouble(null);
    try { await send("POST", `/tasks/${id}/-/${verb}`, body); again(); changed(); } catch (problem) { setTrouble(problem); again(); }
  };
  const override = task.override.includes("complete");
  const complete = async (event) => {
    event.preventDefault();
    const [value, wrong] = checked(task.form, answer);
    setProblems(wrong);
    setTrouble(null);
    if (Object.keys(wrong).length) { setTimeout(() => form.current?.querySelector("[aria-invalid], .problem")?.focus?.()); return; }
    setBusy(true);
    try {
      await send("POST", `/tasks/${id}/-/complete`, { answer: task.form ? value : null, ...(override ? { override } : {}) });
      drafts.drop(id);
      if (event.submitter?.value === "stay") { again(); changed(); } else next(task.title);
    } catch (problem) {
      setTrouble(problem);
      setProblems(Object.fromEntries((problem.problem?.errors ?? []).map((each) => [each.pointer, each.detail])));
      again();
    } finally { setBusy(false); }
  };
  const edit = (value) => { setAnswer(value); setKept(drafts.keep(id, value) && new Date().toISOString()); };
  const discard = () => { drafts.drop(id); setKept(null); setProblems({}); setAnswer(initial(task.form)); };
  const plain = json(checked(task.form, answer ?? {})[0]);
  const drafted = answer !== null && json(answer) !== json(initial(task.form));
  const wrong = Object.keys(problems).length;
  return html`<article class="sheet task" aria-labelledby="h-task">
  <header class="task-head"><a class="btn quiet back" href=${back}><${Icon} name="left" />All tasks</a>
  <div class="head"><h1 id="h-task" tabindex="-1" ref=${head}>${visible(task.title)}</h1><div class="end">
    ${may("claim") && !task.assignee && html`<button class="btn" type="button" onClick=${() => act("claim")}>Claim</button>`}
    ${may("release") && task.assignee && html`<button class="btn" type="button" onClick=${() => act("release")}>Release</button>`}
    ${OTHERS.some(may) && html`<${Menu} label="More">${OTHERS.filter(may).map((verb) => html`<button class="plain" type="button" onClick=${() => setAsked(verb)}>${MORE[verb].label}</button>`)}<//>`}</div></div>
  <dl class="meta"><div><dt class="sr">status</dt><dd><${Status} of=${task.status} /> ${task.assignee && html`to ${task.assignee === me.id ? "you" : task.assignee}${task.held_since && html` since ${moment(task.held_since)}`}`}${task.ended_at && html`${moment(task.ended_at)}${task.ended_by.length ? ` by ${task.ended_by.join(", ")}` : ""}${task.outcome && html`: <b class="strong">${visible(task.outcome)}</b>`}`}</dd></div>
    <div><dt>task</dt><dd><code>${task.id}</code></dd></div>${task.due && html`<div><dt>due</dt><dd class=${Date.parse(task.due) < Date.now() && !ended ? "late strong" : ""}>${moment(task.due)}, ${due(task.due)}</dd></div>`}
    ${task.expires && html`<div><dt>expires</dt><dd>${moment(task.expires)}</dd></div>`}<div><dt>priority</dt><dd>${task.priority}</dd></div>
    <div><dt>for</dt><dd>${[...task.roles.map((role) => `role ${role}`), ...task.users].join(", ") || "no one"}</dd></div>
    ${task.managers.length > 0 && html`<div><dt>managed by</dt><dd>${task.managers.map((role) => `role ${role}`).join(", ")}</dd></div>`}
    ${Object.entries(task.labels).map(([name, text]) => html`<div><dt>${visible(name)}</dt><dd>${visible(text)}</dd></div>`)}
    <div class="asked-by"><dt>asked by</dt><dd><${Id} id=${task.owner} /> <span>at <code>${visible(task.location)}</code></span></dd></div></dl></header>
  <div class="task-body"><section class="task-data stack" aria-label="What it is about">
    ${task.description && html`<p class="about">${visible(task.description)}</p>`}
    ${task.data !== null && html`<${Facts} value=${task.data} />`}
    <div><h2 class="label">history</h2><ol class="past">${[...task.history].reverse().map((each) => html`<li><time title=${each.at}>${moment(each.at)}</time><span>${happened(each, task)}${each.text && html`<q>${visible(each.text)}</q>`}</span></li>`)}</ol></div>
  </section>
  <section class="task-form" aria-label="Your answer">${ended ? html`<${Empty} title=${`It is ${task.status}`}><p class="second">${task.status === "completed" ? "Nothing more is asked." : "It was not answered, and cannot be any more."}</p><//>` : html`<form class="form" ref=${form} onSubmit=${complete} novalidate>
    ${(trouble || wrong > 0) && html`<div class="note bad" role="alert"><${Icon} name="info" /><p><b class="strong">${wrong ? `The answer was not taken: ${wrong === 1 ? "one field has a problem" : `${wrong} fields have a problem`}.` : "It was not done."}</b> ${trouble && !wrong ? visible(trouble.message) : "The task is as it was."}</p></div>`}
    <${Standing} task=${task} me=${me} may=${may} />
    ${task.form && answer !== null && html`<${Form} schema=${task.form} value=${answer} change=${edit} problems=${problems} disabled=${!may("complete")} />`}
    ${!task.form && may("complete") && html`<p class="second">No answer is asked for: it is done, or not yet.</p>`}
    ${may("complete") && html`<div class="finish"><button class="btn first" type="submit" value="next" disabled=${busy}>${task.quorum ? "Vote" : "Complete"}, then next task</button><button class="btn" type="submit" value="stay" disabled=${busy}>${task.quorum ? "Vote" : "Complete"}</button>
      ${drafted && html`<span class="draft muted">${kept === false ? "Too large to be kept as a draft." : kept ? `Draft kept in this browser, ${clock(kept).slice(0, 5)}.` : "A draft of this browser."} <button class="plain link" type="button" onClick=${discard}>Discard</button></span>`}</div>
    <div class="wide-only"><h2 class="label">the same as a command, and as a request</h2><${Cmd} text=${command("tasks", "complete", task.id, ...(task.form ? [plain.length > 400 ? "@answer.json" : plain] : []), ...(override ? ["--override"] : []), ...as(me, task))} />${plain.length <= 400 && html`<${Request} of=${["POST", `/tasks/${task.id}/-/complete`, { answer: task.form ? JSON.parse(plain) : null, ...(override ? { override } : {}) }]} />`}</div>`}</form>`}</section></div>
  ${asked && html`<${Dialog} title=${`${MORE[asked].label.replace("…", "")}: ${task.title}`} label=${MORE[asked].do} risk=${asked === "cancel"} says=${MORE[asked].says(task)} fields=${MORE[asked].fields(task)} cmd=${(g) => command("tasks", asked, task.id, ...MORE[asked].words(g, task), ...as(me, task))} request=${(g) => ["POST", `/tasks/${task.id}/-/${asked}`, MORE[asked].body(g, task)]} close=${(done) => { setAsked(null); if (done) { again(); changed(); } }} />`}</article>`;
}

// Who acts, on the command line.
const as = (me, task) => ["--as", me.id, ...me.roles.filter((role) => task.roles.includes(role) || task.managers.includes(role)).flatMap((role) => ["--role", role]), ...(me.grants.some((each) => each.role === "admin" && each.workflows.includes("*")) ? ["--admin"] : [])];

// What stands between this person and the answer, before the click.
function Standing({ task, me, may }) {
  const others = [...task.roles.map((role) => `a person with the role ${role}`), ...task.users.filter((each) => !task.exclude.includes(each))].join(", or ");
  const notes = [];
  if (task.exclude.includes(me.id)) notes.push(html`<b class="strong">Four eyes: ${task.exclude.join(", ")} may not do this task.</b> That is you: another person has to${others ? `, ${others}` : ""}.`);
  else if (task.exclude.length) notes.push(html`Four eyes: ${task.exclude.join(", ")} may not do this task.${may("complete") && !task.override.includes("complete") ? " You may." : ""}`);
  if (task.quorum) notes.push(html`Several people decide: ${told(task.quorum)}; ${count(task.votes.length, "vote")} so far. Your answer is a vote, and you may change it until it is decided.`);
  if (task.override.includes("complete")) notes.push(html`${task.assignee && task.assignee !== me.id ? `${task.assignee} has this task.` : "This task is not for you."} As an admin you may complete it in their place: the history names you.`);
  else if (!may("complete") && !task.exclude.includes(me.id)) notes.push(html`${visible(upper(task.against.complete ?? "You may look at this task, and not answer it"))}.`);
  else if (may("claim") && !task.assignee) notes.push(html`It is open. Claim it, so that no one else begins with it; or answer at once.`);
  return notes.map((each) => html`<div class="note"><${Icon} name="info" /><p>${each}</p></div>`);
}

const upper = (text) => text[0].toUpperCase() + text.slice(1);
const told = (quorum) => `${typeof quorum.need === "number" ? `${quorum.need} ${quorum.of ? `of ${quorum.of} ` : ""}must agree` : `${quorum.need}${quorum.of ? ` of ${quorum.of}` : ""} must agree`}${Object.entries(quorum.veto ?? {}).map(([outcome, n]) => `, ${n} ${outcome} ${n === 1 ? "is" : "are"} enough`).join("")}`;

// An event of the history as a sentence.
function happened(each, task) {
  const who = each.by ? html`<b class="strong">${visible(each.by)}</b> ` : "";
  const to = each.changes.assignee?.[1];
  const what = { created: "", claimed: "claims it", assigned: to ? `assigns it to ${to}` : "assigns it", released: "releases it", commented: "comments", changed: "changes it", voted: "votes", escalated: "escalates it", completed: each.outcome ? `completes it: ${each.outcome}` : "completes it", cancelled: "cancels it", expired: "it expires" }[each.what] ?? each.what;
  const changes = Object.entries(each.changes).filter(([name]) => !["assignee", "status", "held_since"].includes(name)).map(([name, [before, after]]) => `${name.replaceAll("_", " ")} ${brief(before)} → ${brief(after)}`);
  if (each.what === "created") return html`opened by <${Id} id=${task.owner} plain=${true} />`;
  return html`${who}${who ? what : { escalated: "it is escalated", cancelled: "it is cancelled" }[each.what] ?? what}${changes.length > 0 && html`<span class="muted">: ${visible(changes.join("; "))}</span>`}`;
}

const brief = (value) => (value === null || value === "" ? "none" : Array.isArray(value) ? value.join(", ") || "none" : /^\d{4}-\d\d-\d\dT/.test(value) ? moment(value) : String(value));
const words = (text) => text.split(/[\s,]+/).filter(Boolean);
const held = (task, me) => task.assignee && task.assignee !== me;
const time = (text) => (text ? new Date(text).toISOString() : null);
const field = (text) => { if (!text) return ""; const at = new Date(text); return new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16); };

// What else can be done with a task, and what each asks for.
const MORE = {
  assign: { label: "Assign…", do: "Assign", says: (task) => `This person has the task from now on${task.assignee ? `, and ${task.assignee} no longer` : ""}.${task.exclude.length ? ` ${task.exclude.join(", ")} may not do it.` : ""}`, fields: (task) => [{ name: "to", label: "Person", suggest: task.users.filter((each) => !task.exclude.includes(each)) }],
    words: (g, task) => [g.to || "PERSON", ...(task.override.includes("assign") ? ["--override"] : [])], body: (g, task) => ({ to: g.to, ...(task.override.includes("assign") ? { override: true } : {}) }) },
  comment: { label: "Comment…", do: "Comment", says: () => "The comment stands in the history of the task.", fields: () => [{ name: "text", label: "Comment", lines: 4 }], words: (g) => [g.text || "TEXT"], body: (g) => ({ text: g.text }) },
  change: { label: "Change priority…", do: "Change", says: () => "Tasks with a higher priority stand first. Nothing happens when a task is due; when it expires, it ends without an answer.", fields: (task) => [{ name: "priority", label: "Priority, 0 to 100", value: String(task.priority), numeric: true }, { name: "due", label: "Due", type: "datetime-local", value: field(task.due), optional: true, half: true }, { name: "expire", label: "Expires", type: "datetime-local", value: field(task.expires), optional: true, half: true }],
    words: (g, task) => ["--priority", g.priority || "50", ...other(g, task, "due", "due"), ...other(g, task, "expire", "expires")], body: (g, task) => ({ priority: Number(g.priority), ...moved(g, task, "due", "due"), ...moved(g, task, "expire", "expires") }) },
  escalate: { label: "Escalate…", do: "Escalate", says: (task) => `More people may take the task${task.assignee ? `; ${task.assignee} keeps it, unless it is taken away` : ""}.`, fields: (task) => [{ name: "roles", label: "Roles", optional: true }, { name: "users", label: "People", optional: true }, { name: "priority", label: "Priority from now on, 0 to 100", optional: true, numeric: true }, ...(task.assignee ? [{ name: "release", label: `${task.assignee} has it`, options: ["and keeps it", "and loses it"], value: "and keeps it" }] : [])],
    words: (g) => [...words(g.roles).flatMap((each) => ["--add-role", each]), ...words(g.users).flatMap((each) => ["--add-user", each]), ...(g.release === "and loses it" ? ["--release"] : []), ...(g.priority ? ["--priority", g.priority] : [])], body: (g) => ({ roles: words(g.roles), users: words(g.users), ...(g.release === "and loses it" ? { release: true } : {}), ...(g.priority ? { priority: Number(g.priority) } : {}) }) },
  cancel: { label: "Cancel…", do: "Cancel it", says: () => "The task ends without an answer. The instance that asked goes on as its code says.", fields: () => [{ name: "reason", label: "Reason", help: "Told to those who wait for the task." }], words: (g) => ["--reason", g.reason || "REASON"], body: (g) => ({ reason: g.reason }) },
};
const OTHERS = Object.keys(MORE);
const moved = (g, task, name, of) => (field(task[of]) === g[name] ? {} : { [name]: time(g[name]) });
const other = (g, task, name, of) => (field(task[of]) === g[name] ? [] : [`--${name}`, time(g[name]) ?? "none"]);

const isObject = (value) => value !== null && typeof value === "object";
const spaced = (name) => visible(String(name).replaceAll("_", " "));
const flat = (value) => Array.isArray(value) && value.length > 0 && value.every((each) => isObject(each) && !Array.isArray(each) && Object.values(each).every((one) => !isObject(one)));
const one = (value) => (typeof value === "number" ? figure(value) : typeof value === "boolean" ? (value ? "yes" : "no") : value === null ? html`<span class="muted">none</span>` : /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(value) ? moment(value) : visible(String(value)));

// The data of a task: its fields, then its lists as tables.
function Facts({ value }) {
  if (!isObject(value)) return html`<div><h2 class="label">data</h2>${typeof value === "string" ? html`<p class="about">${visible(value)}</p>` : html`<${Json} value=${value} />`}</div>`;
  if ("$withheld" in value || "$cut" in value || "$bytes" in value) return html`<div><h2 class="label">data</h2><${Json} value=${value} /></div>`;
  if (Array.isArray(value)) return html`<div><h2 class="label">data</h2>${flat(value) ? html`<${Rows} of=${value} />` : html`<${Json} value=${value} />`}</div>`;
  const entries = Object.entries(value);
  const plain = entries.filter(([, each]) => !isObject(each));
  return html`${plain.length > 0 && html`<div><h2 class="label">data</h2><dl class="facts">${plain.map(([name, each]) => html`<dt>${spaced(name)}</dt><dd>${one(each)}</dd>`)}</dl></div>`}
    ${entries.filter(([, each]) => isObject(each)).map(([name, each]) => html`<div><h2 class="label">${spaced(name)}</h2>${flat(each) ? html`<${Rows} of=${each} />` : html`<${Json} value=${each} />`}</div>`)}`;
}

function Rows({ of }) {
  const number = (name) => of.every((each) => each[name] === undefined || typeof each[name] === "number");
  const columns = [...new Set(of.flatMap((each) => Object.keys(each)))].sort((a, b) => number(a) - number(b)).slice(0, 8);
  return html`<div class="scroll"><table class="ledger flush"><thead><tr>${columns.map((name) => html`<th class=${number(name) ? "num" : null}>${spaced(name)}</th>`)}</tr></thead><tbody>${of.slice(0, 200).map((each) => html`<tr>${columns.map((name) => html`<td class=${number(name) ? "num" : null}>${each[name] === undefined ? "" : one(each[name])}</td>`)}</tr>`)}</tbody></table></div>${of.length > 200 && html`<p class="muted">${count(of.length - 200, "row")} more</p>`}`;
}
