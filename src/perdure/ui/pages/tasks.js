// The inbox: what people are asked for, and the form beside it.
import { html, useEffect, useState } from "../lib/html.js";
import { get, send } from "../lib/api.js";
import { command, json, moment, span, visible } from "../lib/format.js";
import { go, href } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Json, Menu, Status, Trouble, useLoaded, useTick } from "../lib/parts.js";
import { calm, watch } from "../lib/stream.js";
import { Dialog } from "../lib/dialog.js";
import { Form, checked, initial } from "../lib/form.js";

const VIEWS = { candidate: ["My roles", { candidate: true }], mine: ["Mine", { mine: true }], all: ["All I may see", {}] };
const ORDERS = { due: "Due first", priority: "Priority", created: "Oldest" };

export default function Tasks({ rest, query, me, setLive }) {
  const view = VIEWS[query.get("view")] ? query.get("view") : "candidate";
  const order = ORDERS[query.get("order")] ? query.get("order") : "due";
  const list = useLoaded(() => get("/tasks", { ...VIEWS[view][1], status: ["open", "assigned"], order, limit: 200 }), [view, order]);
  useEffect(() => watch(["tasks:mine"], calm(list.again, 500), setLive), [view, order]);
  useTick(15000);
  const items = list.value?.items ?? [];
  const late = items.filter((each) => each.due && Date.parse(each.due) < Date.now()).length;
  const link = (changes) => href(rest ? `/tasks/${rest}` : "/tasks", { view, order, ...changes });
  const next = () => { const other = items.find((each) => each.id !== rest); go(href(other ? `/tasks/${other.id}` : "/tasks", { view, order })); list.again(); };
  return html`<div class="head"><h1>Tasks</h1><span class="muted">${items.length} here${late ? `, ${late} overdue` : ""}</span><div class="end"><span class="seg">${Object.entries(ORDERS).map(([name, text]) => html`<a href=${link({ order: name })} aria-current=${order === name ? "true" : null}>${text}</a>`)}</span></div></div>
  <div class=${`inbox${rest ? " has-task" : ""}`}>
  <section class="sect todo-side" aria-label="Inbox"><nav class="tabs" aria-label="Which tasks">${Object.entries(VIEWS).map(([name, [text]]) => html`<a href=${link({ view: name })} aria-current=${view === name ? "true" : null}>${text}</a>`)}</nav>
    ${list.error && html`<${Trouble} error=${list.error} again=${list.again} />`}
    ${!list.value && !list.error && html`<${Bones} rows=${5} />`}
    ${list.value && items.length === 0 && html`<div class="sheet"><${Empty} title="No task waits for you"><p class="second">A workflow asks people with a task; those that you may take stand here. In a flow:</p><div class="cmd"><code>await ctx.task("approve", roles=["manager"])</code></div><//></div>`}
    ${groups(items).map(([name, group]) => html`<div class="todo-group"><span>${name}</span><span>${group.length}</span></div><ol class="todo">${group.map((each) => html`<li key=${each.id}><a href=${href(`/tasks/${each.id}`, { view, order })} data-row aria-current=${each.id === rest ? "true" : null}><span class="t">${visible(each.title)}</span><${Status} of=${each.status} /><span class="sub"><${Id} id=${each.owner} plain=${true} />${each.due && html`<span class=${`due${Date.parse(each.due) < Date.now() ? " late" : ""}`}>${due(each.due)}</span>`}</span></a></li>`)}</ol>`)}
  </section>
  ${rest ? html`<${Task} key=${rest} id=${rest} me=${me} done=${next} changed=${list.again} back=${href("/tasks", { view, order })} />` : items.length > 0 && html`<section class="sheet task wide-only"><${Empty} title="Choose a task"><p class="second">Its data and its form stand here.</p><//></section>`}
  </div>`;
}

function groups(items) {
  const now = Date.now();
  const name = (each) => (!each.due ? "no due date" : Date.parse(each.due) < now ? "overdue" : Date.parse(each.due) < now + 86400000 ? "within a day" : "later");
  const found = new Map();
  for (const each of items) found.set(name(each), [...(found.get(name(each)) ?? []), each]);
  return [...found];
}

const due = (text) => {
  const left = Date.parse(text) - Date.now();
  return left < 0 ? `${span(left)} late` : `in ${span(left)}`;
};

function Task({ id, me, done, changed, back }) {
  const { value: task, error, again } = useLoaded(() => get(`/tasks/${id}`), [id]);
  const draft = `perdure.draft.${id}`;
  const [answer, setAnswer] = useState(null);
  const [problems, setProblems] = useState({});
  const [trouble, setTrouble] = useState(null);
  const [asked, setAsked] = useState(null);
  useEffect(() => {
    if (!task) return;
    const kept = localStorage.getItem(draft);
    setAnswer((old) => old ?? (kept ? JSON.parse(kept) : initial(task.form)));
  }, [task]);
  if (!task) return html`<article class="sheet task">${error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} rows=${6} />`}</article>`;
  const act = async (verb, body) => {
    setTrouble(null);
    try { await send("POST", `/tasks/${id}/-/${verb}`, body); again(); changed(); return true; } catch (problem) { setTrouble(problem); return false; }
  };
  const complete = async (event) => {
    event.preventDefault();
    const [value, wrong] = checked(task.form, answer);
    setProblems(wrong);
    if (Object.keys(wrong).length) return;
    try {
      await send("POST", `/tasks/${id}/-/complete`, { answer: task.form ? value : null });
      localStorage.removeItem(draft);
      done();
    } catch (problem) {
      setTrouble(problem);
      setProblems(Object.fromEntries((problem.problem?.errors ?? []).map((each) => [each.pointer, each.detail])));
    }
  };
  const edit = (value) => { setAnswer(value); localStorage.setItem(draft, JSON.stringify(value)); };
  const may = (verb) => task.may.includes(verb);
  const ended = !["open", "assigned"].includes(task.status);
  const plain = json(checked(task.form, answer ?? {})[0]);
  return html`<article class="sheet task" aria-labelledby="h-task">
  <header class="task-head"><a class="btn quiet back" href=${back}><${Icon} name="left" />All tasks</a>
  <div class="head"><h1 id="h-task">${visible(task.title)}</h1><div class="end">
    ${may("claim") && !task.assignee && html`<button class="btn first" type="button" onClick=${() => act("claim")}>Claim</button>`}
    ${may("release") && task.assignee && html`<button class="btn" type="button" onClick=${() => act("release")}>Release</button>`}
    ${OTHERS.some(may) && html`<${Menu} label="More">${OTHERS.filter(may).map((verb) => html`<button class="plain" type="button" onClick=${() => setAsked(verb)}>${MORE[verb].label}</button>`)}<//>`}</div></div>
  <dl class="meta"><div><dt class="sr">status</dt><dd><${Status} of=${task.status} /> ${task.assignee && html`to ${task.assignee === me.id ? "you" : task.assignee}${task.held_since && html` since ${moment(task.held_since)}`}`}${task.ended_at && html`${moment(task.ended_at)} by ${task.ended_by.join(", ")}${task.outcome && html`: <b class="strong">${visible(task.outcome)}</b>`}`}</dd></div>
    <div><dt>task</dt><dd><code>${task.id}</code></dd></div>${task.due && html`<div><dt>due</dt><dd class=${Date.parse(task.due) < Date.now() && !ended ? "late strong" : ""}>${moment(task.due)}, ${due(task.due)}</dd></div>`}
    ${task.expires && html`<div><dt>expires</dt><dd>${moment(task.expires)}</dd></div>`}<div><dt>priority</dt><dd>${task.priority}</dd></div>
    <div><dt>for</dt><dd>${[...task.roles.map((role) => `role ${role}`), ...task.users].join(", ") || "no one"}</dd></div><div><dt>asked by</dt><dd><${Id} id=${task.owner} /> at <code>${visible(task.location)}</code></dd></div></dl></header>
  <div class="task-body"><section class="task-data stack" aria-label="What it is about">
    ${task.description && html`<p>${visible(task.description)}</p>`}
    ${task.data !== null && html`<div><h2 class="label">data</h2><${Facts} value=${task.data} /></div>`}
    ${task.exclude.length > 0 && html`<div class="note"><${Icon} name="info" /><p>Four eyes: ${task.exclude.join(", ")} may not do this task.${task.exclude.includes(me.id) ? " That is you: another person has to." : ""}</p></div>`}
    <div><h2 class="label">history</h2><ol class="past">${[...task.history].reverse().map((each) => html`<li><time title=${each.at}>${moment(each.at)}</time><span>${each.by && html`<b class="strong">${visible(each.by)}</b> `}${visible(each.verb ?? each.what ?? "")}${each.text && html`<q>${visible(each.text)}</q>`}</span></li>`)}</ol></div>
  </section>
  <section class="task-form" aria-label="Your answer">${ended ? html`<${Empty} title=${`It is ${task.status}`}><p class="second">Nothing more is asked.</p><//>` : html`<form class="form" onSubmit=${complete} novalidate>
    ${trouble && html`<div class="note bad" role="alert"><${Icon} name="info" /><p><b class="strong">The answer was not taken.</b> ${visible(trouble.message)}</p></div>`}
    ${task.quorum && html`<div class="note"><${Icon} name="info" /><p>Several people decide: ${task.votes} voted so far. Your answer is a vote.</p></div>`}
    ${!may("complete") && html`<div class="note"><${Icon} name="info" /><p>${task.assignee && task.assignee !== me.id ? `${task.assignee} has this task.` : "You may look at this task, and not answer it."}</p></div>`}
    ${task.form && answer !== null && html`<${Form} schema=${task.form} value=${answer} change=${edit} problems=${problems} disabled=${!may("complete")} />`}
    ${may("complete") && html`<div class="finish"><button class="btn first" type="submit">${task.quorum ? "Vote" : "Complete"}, then next task</button></div>`}
    <div class="wide-only"><h2 class="label">the same as a command</h2><${Cmd} text=${command("tasks", "complete", task.id, ...(task.form ? [plain] : []), "--as", me.id, ...me.roles.filter((role) => task.roles.includes(role)).flatMap((role) => ["--role", role]))} /></div></form>`}</section></div>
  ${asked && html`<${Dialog} title=${`${MORE[asked].label.replace("…", "")}: ${task.title}`} label=${MORE[asked].do} risk=${asked === "cancel"} says=${MORE[asked].says} fields=${MORE[asked].fields(task)} cmd=${(g) => command("tasks", asked, task.id, ...MORE[asked].words(g), "--as", me.id, ...me.roles.flatMap((role) => ["--role", role]))} request=${(g) => ["POST", `/tasks/${task.id}/-/${asked}`, MORE[asked].body(g)]} close=${(done) => { setAsked(null); if (done) { again(); changed(); } }} />`}</article>`;
}

const words = (text) => text.split(/[\s,]+/).filter(Boolean);

// What else can be done with a task, and what each asks for.
const MORE = {
  assign: { label: "Assign…", do: "Assign", says: "This person has the task from now on.", fields: () => [{ name: "to", label: "Person" }], words: (g) => [g.to || "PERSON"], body: (g) => ({ to: g.to }) },
  comment: { label: "Comment…", do: "Comment", says: "The comment stands in the history of the task.", fields: () => [{ name: "text", label: "Comment" }], words: (g) => [g.text || "TEXT"], body: (g) => ({ text: g.text }) },
  change: { label: "Change priority…", do: "Change", says: "Tasks with a higher priority stand first.", fields: (task) => [{ name: "priority", label: "Priority, 0 to 100", value: String(task.priority), numeric: true }], words: (g) => ["--priority", g.priority], body: (g) => ({ priority: Number(g.priority) }) },
  escalate: { label: "Escalate…", do: "Escalate", says: "More people may take the task.", fields: () => [{ name: "roles", label: "Roles", optional: true }, { name: "users", label: "People", optional: true }], words: (g) => [...words(g.roles).flatMap((each) => ["--add-role", each]), ...words(g.users).flatMap((each) => ["--add-user", each])], body: (g) => ({ roles: words(g.roles), users: words(g.users) }) },
  cancel: { label: "Cancel…", do: "Cancel it", says: "The task ends without an answer. The instance that asked goes on as its code says.", fields: () => [{ name: "reason", label: "Reason", help: "Told to those who wait for the task." }], words: (g) => ["--reason", g.reason || "REASON"], body: (g) => ({ reason: g.reason }) },
};
const OTHERS = Object.keys(MORE);

function Facts({ value }) {
  if (!value || typeof value !== "object" || Array.isArray(value)) return html`<${Json} value=${value} />`;
  return html`<dl class="facts">${Object.entries(value).map(([name, each]) => html`<dt>${visible(name)}</dt><dd>${each && typeof each === "object" ? html`<${Json} value=${each} />` : visible(String(each))}</dd>`)}</dl>`;
}
