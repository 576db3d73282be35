// One instance: why it waits, what was done, and the record of it.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { get, instancePath, part, send } from "../lib/api.js";
import { ago, command, count, figure, moment, quoted, span, visible } from "../lib/format.js";
import { go, href, set } from "../lib/router.js";
import { Bones, Cmd, Copy, Icon, Id, Json, Shape, Status, Trouble, Version, useLoaded, useTick } from "../lib/parts.js";
import { Dialog } from "../lib/dialog.js";
import { calm, watch } from "../lib/stream.js";
import { Data } from "../lib/data.js";
import { Alike, Errors } from "../lib/errors.js";
import { Drawing } from "../lib/drawing.js";
import { Form, checked, initial } from "../lib/form.js";
import { Chosen, Operations, Said, openTask, rowAt } from "../lib/operations.js";
import { Journal } from "../lib/journal.js";
import { offer } from "../lib/palette.js";
import { Sentence } from "../lib/reasons.js";
import { Travel } from "../lib/travel.js";

const SHAPES = { stuck: ["stuck", "stuck"], failed: ["failed", "failed"], completed: ["completed", "completed"], cancelled: ["cancelled", "cancelled"],
  step: ["running", "running"], queued: ["running", "queued"], held: ["running", "queued"], "no-engine": ["stuck", "stuck"], "unknown-workflow": ["stuck", "unknown"] };

export default function Instance({ rest: id, query, setLive }) {
  const loaded = useRef("");
  const { value, error, again } = useLoaded(async () => {
    const [show, why, operations, history] = await Promise.all(
      ["", "why", `operations?limit=${OPERATIONS}`, "history?limit=1000"].map((what) => get(...split(instancePath(id, what)))));
    const children = operations.operations.some((each) => each.kind === "child" && !each.closed) ? (await get(instancePath(id, "children"))).items : [];
    const drawn = DRAWN.has(show.noun) && loaded.current !== id ? await pictures(id, show.noun, query) : {}; // with the rest, so that the page does not jump
    loaded.current = id;
    if (history.entries > history.history.length) history.last = (await get(instancePath(id, "history"), { after: history.entries - 1, limit: 1 })).history[0];
    return { show, why, drawn, operations: operations.operations.map((each) => queued(each, show)), history, total: operations.total, kin: Object.fromEntries(children.map((each) => [each.id, each.status])) };
  }, [id]);
  const [verb, setVerb] = useState(null);
  const [answer, setAnswer] = useState(null);
  const open = Object.entries(value?.kin ?? {}).filter(([, status]) => ["running", "waiting", "stuck"].includes(status)).map(([child]) => `instance:${child}`).slice(0, 8);
  const there = Boolean(value);
  useEffect(() => (there ? watch([`instance:${id}`, ...open], calm(again, 300), setLive) : undefined), [id, open.join(), there]);
  const heard = useFrames(value?.show.id, value?.operations.some((each) => each.kind === "step" && !each.closed && each.status === "running"));
  useTick(5000);
  const entry = Number(query.get("entry") ?? 0) || 0;
  const total = value?.show.entries ?? 0;
  const travels = entry > 0 && entry < total;
  const then = useLoaded(() => (travels ? get(instancePath(id, `at/${entry}`)) : Promise.resolve(null)), [id, entry, travels]);
  useEffect(() => { // a verb that Ctrl-K or a link asks for
    if (!there || !query.get("do")) return;
    if (value.show.may[query.get("do")] === "") setVerb({ name: query.get("do"), given: { answered: setAnswer }, entries: value.show.entries });
    set({ do: "" });
  }, [there, query.get("do")]);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again}>${error.status === 404 && html`<a class="btn" href=${href("/instances")}>All instances</a>`}<//>` : html`<${Bones} />`;
  const { why, history } = value;
  const past = travels && then.value?.entry === entry ? then.value : null;
  const show = past ? { ...value.show, status: past.status, published: past.published, state: past.state ?? (value.show.noun === "cell" ? undefined : value.show.state), result: past.result, error: past.error, ended_at: null } : value.show;
  const operations = past ? past.operations : value.operations;
  const act = (name, given) => setVerb({ name, given: { answered: setAnswer, ...given }, entries: show.entries }); // of when the dialog opened: what came since is noticed
  return html`<div class="stack">
  <${Head} show=${show} act=${act} history=${history} past=${travels} />
  ${travels ? past && html`<${Then} past=${past} />` : html`<${Why} show=${show} why=${why} act=${act} />`}
  ${answer && html`<section class="sheet card" role="status"><header><h3>its answer</h3><span class="end"><button class="copy" type="button" aria-label="Close" onClick=${() => setAnswer(null)}><${Icon} name="close" /></button></span></header><div class="part"><${Json} value=${answer.answer} /></div></section>`}
  <${Travel} show=${value.show} history=${history} operations=${value.operations} entry=${entry} past=${past} act=${act} />
  ${then.error && travels && html`<${Trouble} error=${then.error} />`}
  <${Work} id=${id} list=${operations} show=${show} query=${query} act=${act} entry=${travels ? entry : 0} until=${past ? Date.parse(past.at) : null} kin=${past ? {} : value.kin} heard=${past ? {} : heard} total=${past ? operations.length : value.total} first=${value.drawn} />
  ${!travels && show.noun === "playbook" && html`<${Marking} id=${id} show=${show} act=${act} first=${value.drawn.marking} />`}
  <${Records} show=${show} why=${why} act=${act} history=${history} operations=${operations} query=${query} limit=${travels ? entry : 0} />
</div>${verb && html`<${Act} ...${verb} id=${show.id} waits=${show.waiting} stuck=${value.show.stuck_at} places=${[...new Set(operations.map((each) => each.location))].filter((each) => !each.includes("backoff#")).slice(-200)} close=${(done) => { setVerb(null); if (done) again(); }} />`}`;
}

const SAID = 2000; // of what a step sends its end is kept

// What running steps say, by location. It is drawn four times a second, however often they speak.
function useFrames(id, runs) {
  const [heard, setHeard] = useState({});
  useEffect(() => {
    if (!runs) return setHeard({});
    const found = {};
    const draw = calm(() => setHeard({ ...found }), 250);
    return watch([`frames:${id}`], (name, frame) => {
      if (name !== "frame") return;
      const last = found[frame.location]?.attempt === frame.attempt ? found[frame.location] : { attempt: frame.attempt };
      const { done, total, note, chunk } = frame;
      found[frame.location] = frame.kind === "progress" ? { ...last, done, total, note } : { ...last, text: `${last.text ?? ""}${typeof chunk === "string" ? chunk : `${JSON.stringify(chunk)}\n`}`.slice(-SAID) };
      draw();
    });
  }, [id, runs]);
  return heard;
}

const OPERATIONS = 10000; // of more, the last ones are read
const OURS = new Set(["inline", "thread", "process", "effects"]);

// A step that no worker of its queue has taken yet is queued.
function queued(each, show) {
  if (each.closed || each.kind !== "step" || each.status !== "running" || OURS.has(each.what)) return each;
  if (show.waiting.some((open) => open.location === each.location && open.worker)) return each;
  return { ...each, status: "queued", parts: each.parts.map((part) => (part.end ? part : { ...part, kind: "queued" })) };
}

const split = (path) => {
  const [name, query] = path.split("?");
  return [name, query ? Object.fromEntries(new URLSearchParams(query)) : undefined];
};

const BUTTONS = [["send", "Send…", "send"], ["ask", "Ask…", "ask"], ["tag", "Tag…", "tag"], ["wake", "Wake", "wake"], ["pause", "Pause…", "pause"], ["resume", "Resume…", "resume"], ["retry", "Retry…", "retry"], ["rewind", "Rewind…", "rewind"], ["fork", "Fork…", "fork"]];

function Head({ show, act, history, past }) {
  const paused = Boolean(show.published.paused);
  const possible = (verb) => show.may[verb] === "" && verb !== (paused ? "pause" : "resume");
  useEffect(() => offer([...BUTTONS, ["settle", "Settle…", "settle"], ["cancel", "Cancel…", "cancel"]].filter(([verb]) => possible(verb)).map(([verb, label, icon]) => ({ text: `${label.replace("…", "")} ${show.id}`, icon, run: () => act(verb) }))), [show]);
  const asked = history.asked["1"];
  const cut = show.workflow.length + 1;
  return html`<header class="inst-head">
  <nav class="path" aria-label="Where"><a href=${href("/instances")}>Instances</a>${show.path.map((id) => html`<span aria-hidden="true">›</span><${Id} id=${id} />`)}<span aria-hidden="true">›</span><a href=${href("/instances", { q: `workflow:${quoted(show.workflow)}` })}>${visible(show.workflow)}</a></nav>
  <div class="head"><div class="title"><h1><span class="wf">${visible(show.id.slice(0, cut))}</span>${visible(show.id.slice(cut))}</h1><${Status} of=${show.status} stamp=${true} /></div>
    <div class="end acts">${past ? html`<span class="muted">as it was at this entry</span>` : html`<span class="btns">${BUTTONS.filter(([verb]) => possible(verb)).map(([verb, label, icon]) => html`<button class="btn" type="button" onClick=${() => act(verb)}><${Icon} name=${icon} />${label}</button>`)}</span>
    <a class="btn quiet" href=${href("/compare", { a: show.id })}>Compare…</a>
    ${possible("cancel") && html`<span class="btns"><button class="btn risk" type="button" onClick=${() => act("cancel")}><${Icon} name="cancel" />Cancel…</button></span>`}`}</div></div>
  <dl class="meta"><div><dt>version</dt><dd><a href=${href(`/workflows/${show.workflow}`)}><${Version} of=${show.version} /></a></dd></div>
    ${show.generation > 1 && html`<div><dt>generation</dt><dd>${show.generation}</dd></div>`}
    <div><dt>started</dt><dd>${moment(show.started_at)}${asked && html` by <code>${visible(asked.by)}</code>`}</dd></div>
    <div><dt>changed</dt><dd>${ago(show.changed_at)}${ago(show.changed_at) === "now" ? "" : " ago"}</dd></div>
    ${show.ended_at && html`<div><dt>took</dt><dd>${span(Date.parse(show.ended_at) - Date.parse(show.started_at))}</dd></div>`}
    <div><dt>entries</dt><dd>${figure(show.entries)}</dd></div><div><dt>number</dt><dd class="mono">@${show.instance}</dd></div>
    ${show.trace && html`<div><dt>trace</dt><dd class="keyed"><code title=${show.trace}>${show.trace.slice(0, 12)}</code><${Copy} text=${show.trace} label="Copy the trace" /></dd></div>`}
    ${show.kept_until && html`<div><dt>kept until</dt><dd>${moment(show.kept_until)}</dd></div>`}
    ${Object.entries(show.tags).map(([name, value]) => html`<div class="t"><dt title=${visible(name)}>${visible(name)}</dt><dd><a class="mono" title="All with this tag" href=${href("/instances", { q: `tag.${name}:${quoted(value)}` })}>${visible(value)}</a></dd></div>`)}</dl></header>`;
}

const TITLES = { running: "It runs.", waiting: "It waits.", completed: "It has completed.", failed: "It has failed.", cancelled: "It was cancelled." };
const NUMBERS = ["no place", "one place", "two places", "three places", "four places", "five places", "six places"];
const places = (n) => NUMBERS[n] ?? `${figure(n)} places`;

// What a person sees first: how it stands, in one sentence.
function title(show, why) {
  if (show.status === "stuck") return show.waiting.length ? `It is stuck at one place, and waits at ${places(show.waiting.length).replace(/ places?$/, (word) => (show.waiting.length === 1 ? " other" : " others"))}.` : "It is stuck, and needs a person.";
  if (show.status === "waiting" && why.reasons.length > 1) return `It waits at ${places(why.reasons.length)}.`;
  return TITLES[show.status] ?? `It is ${show.status}.`;
}
const LABELS = { send: "Send…", wake: "Wake", resume: "Resume…", retry: "Retry…", settle: "Settle…", rewind: "Rewind…" };

// The button of an advice, if its verb is possible now.
function button(show, act, advice, reason) {
  if (advice.command[0] === "tasks") {
    const task = advice.command.find((word) => /^\d+$/.test(word));
    const asked = !task && reason.waiting?.kind === "task" ? reason.waiting.what : ""; // its instance
    if (asked) return html`<button class="btn" type="button" onClick=${() => openTask(asked)}><${Icon} name="task" />Open the task</button>`;
    return html`<a class="btn" href=${href(task ? `/tasks/${task}` : "/tasks", { view: "all" })}><${Icon} name="task" />${task ? "Open the task" : "Open tasks"}</a>`;
  }
  if (advice.command[0] === "playbooks" && advice.command[1] === "patch" && show.may.send === "") return html`<button class="btn first" type="button" onClick=${() => act("patch", { words: advice.command.slice(3) })}><${Icon} name="settle" />Patch…</button>`;
  if (advice.command[0] === "why") return html`<a class="btn" href=${href(`/instances/${part(advice.command[1])}`)}><${Icon} name="child" />Open the child</a>`;
  if (advice.command[0] === "cells" && advice.command[1] === "send" && show.may.tag === "") return html`<a class="btn" href=${href("/world", { do: "send" })}><${Icon} name="send" />Send an event…</a>`;
  const [verb, , ...words] = advice.command;
  if (!LABELS[verb] || show.may[verb] !== "") return null;
  const location = reason.waiting?.location ?? words[0];
  const given = verb === "send" ? { name: words[0] === "NAME" ? "" : words[0] } : { location };
  return html`<button class=${`btn${["resume", "settle"].includes(verb) || (verb === "retry" && show.may.settle !== "") ? " first" : ""}`} type="button" onClick=${() => act(verb, given)}><${Icon} name=${verb} />${verb === "send" && given.name ? `Send ${visible(given.name).slice(0, 24)}…` : LABELS[verb]}</button>`;
}

// One button a verb.
const buttons = (show, act, reason) => [...new Map(reason.todo.map((advice) => [advice.command[0], advice]).reverse()).values()].reverse().map((advice) => button(show, act, advice, reason));
const Ways = ({ show, why, act }) => why.reasons.flatMap((reason) => buttons(show, act, reason));

const last = (location) => location?.split("/").at(-1).split(":").at(-1).replace(/#\d+$/, "");
const named = (reason, show) => [reason.waiting?.location, ...(reason.waiting?.location.split("/").map(last) ?? []), ...reason.todo.filter((advice) => advice.command[1] === "patch").flatMap((advice) => advice.command.slice(3).map((word) => `ctx.${word.split("=")[0]}`)), ...(reason.waiting?.what.split(", ") ?? []), show.stuck_at, show.workflow, show.version, ...reason.todo.flatMap((advice) => advice.command.slice(1).filter((word) => /^[a-z]/i.test(word)))];

const CODE = /^\s*(if|else|await|async|with|for|return|perdure)\b.*[(:.]/;

// A sentence, or a line of the code that would help.
function Advice({ of }) {
  if (CODE.test(of.text)) return html`<code class="line">${visible(of.text)}</code>`;
  const text = of.text[0].toUpperCase() + of.text.slice(1);
  return html`<p class="second">${visible(text)}${of.command.length ? ":" : /[.:!?]$/.test(text) ? "" : "."}</p>`;
}

function Why({ show, why, act }) {
  return html`<section class=${`why-panel is-${show.status}`} aria-labelledby="h-why"><header><h2 id="h-why">${title(show, why)}</h2>
    ${["stuck", "failed"].includes(show.status) && show.reason && html`<span class="end"><${Alike} show=${show} /></span>`}</header>
  <ol class="why-list">${why.reasons.map((reason) => {
    const [ink, shape] = SHAPES[reason.kind] ?? ["waiting", "waiting"];
    return html`<li><span class=${`no st st-${ink}`}><${Shape} name=${reason.kind === "stuck" && show.error?.type === "OutcomeUnknown" ? "unknown" : shape} /></span><div class="say"><p><${Sentence} text=${reason.text} names=${named(reason, show)} /></p>
      ${reason.todo.map((advice) => html`<div class="way">${advice.text && html`<${Advice} of=${advice} />`}${advice.command.length > 0 && html`<${Cmd} text=${command(...advice.command)} />`}</div>`)}</div>
      <div class="do">${buttons(show, act, reason)}${reason.waiting?.job && html`<a class="btn" href=${href(`/queues/${part(reason.waiting.job.queue)}`)}><${Icon} name="right" />Queue ${visible(reason.waiting.job.queue)}</a>`}</div></li>`;
  })}</ol></section>`;
}

// What was open at an entry of the past.
function Then({ past }) {
  const open = past.operations.filter((each) => !each.closed);
  return html`<section class=${`why-panel is-${past.status}`} aria-label="Then"><header><h2>At entry ${past.entry}, ${moment(past.at)}, it was ${past.status}.</h2><span class="end muted">${count(open.length, "operation")} open</span></header>
    ${open.length > 0 && html`<ul class="why-list">${open.slice(0, 6).map((each) => html`<li><span class="no"><${Shape} name=${each.kind === "step" ? "running" : "waiting"} /></span><div class="say"><p>${each.kind} <code>${visible(each.location)}</code>${each.attempt > 1 && `, attempt ${each.attempt}`}, ${each.opened === past.entry ? "opened by this entry" : `since ${span(Date.parse(past.at) - Date.parse(each.opened_at))}`}</p></div></li>`)}</ul>`}</section>`;
}

// ---- operations, as a tree or as a drawing

const DRAWN = new Set(["graph", "playbook", "process"]);

const marking = async (id) => { const [tokens, ctx] = await Promise.all([get(instancePath(id, "tokens")), get(instancePath(id, "ctx"))]); return { tokens, ctx }; };

// What an instance with a drawing shows besides its operations. What cannot be had is told where it would stand.
async function pictures(id, noun, query) {
  const none = () => undefined;
  const [picture, report, tokens] = await Promise.all([
    query.get("view") !== "tree" && !query.get("entry") ? get(instancePath(id, "drawing")).catch(none) : undefined,
    noun === "graph" ? get(instancePath(id, "report")).catch(none) : undefined,
    noun === "playbook" ? marking(id).catch(none) : undefined,
  ]);
  return { picture, report, marking: tokens };
}

// The same operations as a tree with a timeline, or as a drawing of the definition with what became of each part.
function Work({ id, show, query, entry, first, ...rest }) {
  const drawn = DRAWN.has(show.noun);
  const view = drawn && query.get("view") !== "tree" ? "drawing" : "tree";
  const picture = useLoaded(() => (view === "drawing" ? get(instancePath(id, "drawing"), { at: entry || "" }) : Promise.resolve(null)), [id, view, entry, show.entries], first.picture);
  const graph = show.noun === "graph" && !entry;
  const report = useLoaded(() => (graph ? get(instancePath(id, "report")) : Promise.resolve(null)), [id, graph, show.entries], first.report);
  const seg = drawn && html`<span class="seg"><button type="button" aria-pressed=${view === "drawing"} onClick=${() => set({ view: "" })}>Drawing</button><button type="button" aria-pressed=${view === "tree"} onClick=${() => set({ view: "tree" })}>Tree and timeline</button></span>`;
  const selected = query.get("at") ?? "";
  const known = graph ? report.value : null;
  const node = (location) => { const row = known?.nodes.find((each) => each.node === location); return row && html`<${Node} row=${row} denials=${known.denials.filter((each) => each.node === location)} show=${show} />`; };
  const shown = picture.value?.picture.nodes.some((each) => each.location === selected) ? selected : "";
  return html`${view === "tree" ? html`<${Operations} show=${show} query=${query} seg=${seg} node=${node} ...${rest} />` : html`<div class=${shown ? "work" : "stack"}>${picture.value ? html`<${Drawing} seg=${seg} picture=${picture.value.picture} name=${id} selected=${selected} choose=${(location) => set({ at: location === selected ? "" : location })} />` : picture.error ? html`<${Trouble} error=${picture.error} />` : html`<${Bones} rows=${6} />`}
    ${shown && html`<${Chosen} row=${rowAt(rest.list, shown)} location=${shown} show=${show} act=${rest.act} heard=${rest.heard} node=${node} />`}</div>`}
  ${graph && (known ? html`<${Report} of=${known} show=${show} heard=${rest.heard} />` : report.error ? html`<p class="muted">${report.error.message}</p>` : html`<${Bones} rows=${4} />`)}`;
}

const ENDED = { completed: "ok", partial: "ok", failed: "error", cancelled: "cancelled", skipped: "dropped", denied: "error" };
const asked = (row, show) => show.waiting.filter((open) => open.kind === "task" && open.location.startsWith(`${row.node}/`));
const outcome = (row, show) => (row.outcome ? ENDED[row.outcome] ?? row.outcome : row.status !== "open" ? "not reached" : asked(row, show).length ? "waiting" : "running");
const amount = (name, n) => (name === "wall" ? span(n * 1000) : `${figure(n)} ${n === 1 ? name.replace(/s$/, "") : name}`);
const used = (of) => Object.entries(of ?? {}).map(([name, n]) => amount(name, n)).join(", ");

// What the report tells of one node: its budget, whether its result is trusted, what was denied it and at which stage, whom it asks.
function Node({ row, denials, show }) {
  const limits = row.limits ?? {};
  return html`<div class="part"><${Status} of=${outcome(row, show)} />${row.reason && html` <span class="second">${visible(row.reason)}</span>`}<dl class="facts"><dt>trust</dt><dd class=${row.trust === "trusted" ? null : "st-stuck"}>${visible(row.trust)}</dd>
    <dt>budget</dt><dd>${[...new Set([...Object.keys(limits), ...Object.keys(row.used)])].map((name) => html`<div>${name in limits ? html`${name === "wall" ? span(1000 * (row.used.wall ?? 0)) : figure(row.used[name] ?? 0)} of ${amount(name, limits[name])}<svg class="progress" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="ground" width="100" height="10" /><rect class="done" width=${Math.min(100, (100 * (row.used[name] ?? 0)) / limits[name])} height="10" /></svg>` : html`${amount(name, row.used[name])} <span class="muted">without a limit</span>`}</div>`)}${!Object.keys({ ...limits, ...row.used }).length && html`<span class="muted">nothing used, no limit of its own</span>`}</dd>
    ${row.submitter && html`<dt>submitted by</dt><dd class="mono">${visible(row.submitter)}</dd>`}</dl>
    ${asked(row, show).map((open) => html`<p><button class="btn" type="button" onClick=${() => openTask(open.what)}><${Icon} name="task" />Open the task</button></p>`)}</div>
  ${denials.length > 0 && html`<div class="part"><h4>denied</h4><table class="tries"><thead><tr><th>stage</th><th>what</th><th>why</th></tr></thead><tbody>${denials.map((each) => html`<tr><td>${visible(each.stage)}</td><td class="mono">${visible(each.subject)}</td><td>${visible(each.reason)}</td></tr>`)}</tbody></table></div>`}`;
}

// The nodes of a graph: what became of each, what it used of its budget, whether its result is trusted, what was denied.
function Report({ of, show, heard }) {
  const stages = Object.entries(Object.groupBy(of.denials, (each) => each.stage)).map(([stage, list]) => `${list.length} at ${stage}`);
  return html`<section class="sect nodes" aria-label="Nodes"><div class="sect-head"><h2>Nodes</h2><span class="muted">${of.nodes.length}${used(of.used) && `, ${used(of.used)} used`}</span></div><div class="scroll"><table class="ledger flush"><thead><tr><th>node</th><th>outcome</th><th>reason</th><th>trust</th><th class="num">used</th><th class="num">runs</th><th class="num">opened</th></tr></thead><tbody>
    ${of.nodes.map((row) => html`<tr key=${row.node}><td class="mono" title=${row.submitter ? `submitted by ${row.submitter}` : null}><button class="plain link" type="button" onClick=${() => set({ at: row.node })}>${visible(row.node)}</button></td><td class="nowrap"><${Status} of=${outcome(row, show)} /></td><td class="second">${heard[row.node] && row.status === "open" ? html`<${Said} of=${heard[row.node]} />` : visible(row.reason ?? "")}</td><td class=${row.trust === "trusted" ? "muted" : "st-stuck"}>${visible(row.trust ?? "")}</td><td class="num">${used(row.used)}</td><td class="num">${row.attempts}</td><td class="num muted">${row.opened_at ? moment(row.opened_at) : ""}</td></tr>`)}</tbody></table></div>
    ${of.denials.length > 0 && html`<div class="sect-head"><h2>Denied</h2><span class="muted">${stages.join(", ")}</span></div><div class="scroll"><table class="ledger flush"><thead><tr><th>stage</th><th>node</th><th>what</th><th>why</th><th class="num">when</th></tr></thead><tbody>${of.denials.map((each) => html`<tr><td>${visible(each.stage)}</td><td class="mono">${visible(each.node || "the graph")}</td><td class="mono">${visible(each.subject)}</td><td>${visible(each.reason)}</td><td class="num muted">${moment(each.at)}</td></tr>`)}</tbody></table></div>`}</section>`;
}

// Where the tokens of a playbook stand, and what its gates read.
function Marking({ id, show, act, first }) {
  const { value } = useLoaded(() => marking(id), [id, show.entries], first);
  if (!value || (!value.tokens.tokens.length && value.ctx.state === null)) return null;
  return html`<div class="data-grid"><section class="sheet card" aria-label="Tokens"><header><h3>tokens</h3><span class="end muted">${Object.entries(value.tokens.counts).filter(([, n]) => n).map(([name, n]) => `${n} ${name}`).join(", ")}</span></header><div class="part">${value.tokens.tokens.length === 0 ? html`<p class="muted">None is left.</p>` : html`<table class="tries"><thead><tr><th>token</th><th>step</th><th>state</th></tr></thead><tbody>${value.tokens.tokens.map((each) => html`<tr><td class="mono">${each.id}</td><td class="mono">${visible(each.step)}</td><td>${visible(each.state)}</td></tr>`)}</tbody></table>`}</div></section>
    <section class="sheet card" aria-label="ctx"><header><h3>ctx</h3><span class="end">${value.ctx.ctx_version !== null && html`<span class="muted">version ${value.ctx.ctx_version}</span>`}${show.may.send === "" && value.ctx.state !== null && html`<button class="btn small" type="button" onClick=${() => act("patch", { words: Object.entries(value.ctx.state).slice(0, 1).map(([name, each]) => `${name}=${JSON.stringify(each)}`) })}>Patch…</button>`}</span></header><div class="part"><${Json} value=${value.ctx.state} /></div></section></div>`;
}

// ---- the record: journal, data, errors

function Records({ show, why, act, history, operations, query, limit }) {
  const errors = operations.filter((each) => each.error);
  const tab = query.get("tab") ?? "journal";
  const values = valuesOf(show);
  const tabs = [["journal", "Journal", limit || history.entries], ["data", "Data", values.length], ["errors", "Errors", errors.length + (show.error ? 1 : 0)]];
  return html`<section class="sect" aria-label="Records"><div class="tabs" role="tablist" aria-label="Records">${tabs.map(([name, text, n]) => html`<a href=${href(location.pathname.slice(document.body.dataset.root.length), { ...Object.fromEntries(query), tab: name })} role="tab" aria-selected=${tab === name}>${text} <span class="n">${figure(n)}</span></a>`)}</div>
  ${tab === "journal" ? html`<${Journal} history=${history} show=${show} operations=${operations} query=${query} limit=${limit} />` : tab === "data" ? html`<${Data} values=${values} query=${query} whole=${(name) => whole(show.id, limit, name)} />` : html`<${Errors} show=${show} errors=${errors} ways=${limit ? null : html`<${Ways} show=${show} why=${why} act=${act} />`} />`}</section>`;
}

// The values that the page shows, by name.
function valuesOf(show) {
  const found = show.noun === "cell" ? [] : [{ name: "input", note: "recorded at the start", value: show.input }];
  if (show.status === "completed") found.push({ name: "result", note: "what it returned", value: show.result });
  if (show.state !== undefined) found.push({ name: "state", note: "now", value: show.state });
  if (Object.keys(show.tags).length) found.push({ name: "tags", note: "found by filters", value: show.tags });
  for (const [name, value] of Object.entries(show.published)) found.push({ name, note: "published", value });
  if (show.mailbox?.length) found.push({ name: "mailbox", note: "came, and was not taken yet", value: show.mailbox });
  return found;
}

async function whole(id, entry, name) {
  const found = await get(instancePath(id, entry ? `at/${entry}` : ""), { values: "whole" });
  return name in (found.published ?? {}) ? found.published[name] : found[name];
}

// ---- what can be done, each with its command

function Act({ name, given, id, waits, entries, stuck, places, close }) {
  const last = useRef(entries);
  const on = (verb) => instancePath(id, verb);
  const reason = { name: "reason", label: "Reason", optional: true, help: "Recorded in the journal, with your name." };
  const place = { name: "location", label: "Location", value: given.location ?? (name === "settle" && stuck ? stuck : places.at(-1)), options: name === "settle" && stuck ? [stuck] : places.length ? places : undefined, dry: true };
  const why = (g) => ({ "if-match": `"${last.current}"`, ...(g.reason ? { "x-reason": g.reason } : {}) });
  const parsed = (text) => (text?.trim() ? JSON.parse(text) : null);
  const post = (verb, body) => (g, plan) => ["POST", on(verb), { ...body(g), ...(plan ? { plan } : {}) }, why(g)];
  const dry = (verb, body) => async (g) => send("POST", on(verb), { ...body(g), dry_run: true });
  const moved = async () => {
    const found = await get(on("history"), { after: last.current, limit: 20 });
    last.current = found.entries;
    return found.history.map((each) => `entry ${each.number}: ${[each.event, each.location, each.status].filter(Boolean).join(" ")}${each.opened.length ? `, then ${each.opened.join(", ")}` : ""}${each.outcome ? `, ${each.outcome}` : ""}`);
  };
  const words = (g) => (g.reason ? ["--reason", g.reason] : []);
  const BODY = {
    retry: () => ({}),
    settle: (g) => ({ location: g.location, as: g.as, value: g.as === "ok" ? parsed(g.value) : g.value || null }),
    rewind: (g) => ({ location: g.location }),
    fork: (g) => ({ location: g.location, key: g.key || null, edit: parsed(g.edit) ?? {} }),
    cancel: (g) => ({ reason: g.reason ?? "" }),
  };
  const messages = [...new Set(waits.filter((open) => open.kind === "wait").map((open) => open.what))];
  const schema = (g) => waits.find((open) => open.kind === "wait" && open.what === g.name)?.schema;
  const filled = (g) => checked(schema(g), g.filled ?? initial(schema(g)));
  const said = (g) => (schema(g) ? filled(g)[0] : parsed(g.body));
  const form = (g) => schema(g) && { wrong: () => filled(g)[1], view: (edit, problems) => html`<${Form} schema=${schema(g)} value=${g.filled ?? initial(schema(g))} change=${(value) => edit("filled", value)} problems=${problems} />` };
  const spec = {
    send: { title: `Send a message to ${id}`, label: "Send", fields: [{ name: "name", label: "Name", value: given.name ?? (messages.length === 1 ? messages[0] : ""), suggest: messages }, { name: "body", label: "Body, as JSON", json: true, optional: true, form, value: given.name === "ctx" ? '{"set": {}}' : "{}" }],
      cmd: (g) => command("send", id, g.name || "NAME", schema(g) ? JSON.stringify(said(g)) : g.body || "null"), request: (g) => ["POST", on("messages"), { name: g.name, body: said(g) }] },
    ask: { title: `Ask ${id}`, label: "Ask", says: "A message whose answer is waited for, at most ten seconds.", fields: [{ name: "name", label: "Name" }, { name: "body", label: "Body, as JSON", json: true, optional: true, value: "null" }],
      request: (g) => ["POST", on("ask"), { name: g.name, body: parsed(g.body) }], run: async (g) => given.answered(await send("POST", on("ask"), { name: g.name, body: parsed(g.body) })) },
    patch: { title: `Patch ctx of ${id}`, says: "The values of ctx change, and gates that read them are looked at again.", label: "Patch", fields: [{ name: "set", label: "Values, as JSON by key", json: true, value: patched(given.words) }, reason],
      cmd: (g) => { let set = {}; try { set = JSON.parse(g.set); } catch { /* told when it is sent */ } return command("playbooks", "patch", id, ...Object.entries(set).map(([key, value]) => `${key}=${JSON.stringify(value)}`)); },
      request: (g) => ["PATCH", on("ctx"), { set: parsed(g.set) }, why(g)] },
    tag: { title: `Tag ${id}`, label: "Tag", fields: [{ name: "name", label: "Name" }, { name: "value", label: "Value", optional: true, help: "Empty removes the tag." }],
      cmd: (g) => command("tag", id, g.name || "NAME", ...(g.value ? [g.value] : [])), request: (g) => ["PATCH", on("tags"), { tags: { [g.name]: g.value || null } }] },
    wake: { title: `Wake ${id}`, says: `Its ${given.location ? `sleep at ${given.location}` : "sleeps"} ends now.`, label: "Wake", fields: [reason], cmd: () => command("wake", id, ...(given.location ? [given.location] : [])),
      request: post("wake", () => ({ location: given.location ?? "" })) },
    pause: { title: `Pause ${id}`, says: "No token is admitted and no attempt begins until it is resumed. What runs goes on to its end, and deadlines hold.", label: "Pause", fields: [reason], cmd: (g) => command("pause", id, ...words(g)), request: post("pause", () => ({})) },
    resume: { title: `Resume ${id}`, says: "What was held begins: tokens are admitted, attempts and iterations go on.", label: "Resume", fields: [reason], cmd: (g) => command("resume", id, ...words(g)), request: post("resume", () => ({})) },
    retry: { title: `Retry ${id}`, says: "It goes on where it stopped; what failed is done again, what is done stays done.", label: "Retry", fields: [reason], cmd: () => command("retry", id), preview: dry("retry", BODY.retry), request: post("retry", BODY.retry) },
    settle: { title: `Settle a step of ${id}`, says: "You say what happened. The flow goes on as if the step had answered so.", label: "Settle", fields: [place, { name: "as", label: "It ended", options: ["", "ok", "error"], dry: true }, { name: "value", label: "Result as JSON, or the error's text", dry: true, optional: true }, reason],
      preview: (g) => (g.as ? dry("settle", BODY.settle)(g) : Promise.resolve(null)), cmd: (g) => command("settle", id, g.location, g.as || "ok|error", ...(g.value ? [g.value] : [])), request: post("settle", BODY.settle) },
    rewind: { title: `Rewind ${id}`, says: "The operation at this location and all that came after it are dropped and done again. What came before stays.", label: "Rewind", risk: true, fields: [place, reason],
      preview: (g) => (g.location ? dry("rewind", BODY.rewind)(g) : Promise.resolve(null)), cmd: (g) => command("rewind", id, g.location || "LOCATION"), request: post("rewind", BODY.rewind) },
    fork: { title: `Fork ${id}`, says: "Another instance starts with the same past up to this location, and goes on from there. This one stays as it is.", label: "Fork", fields: [place, { name: "key", label: "Key of the new one", optional: true, dry: true }, { name: "edit", label: "Other values for earlier steps, as JSON by location", json: true, optional: true, dry: true, value: "{}" }],
      preview: (g) => (g.location ? dry("fork", BODY.fork)(g) : Promise.resolve(null)), cmd: (g) => command("fork", id, g.location || "LOCATION", ...(g.key ? ["--key", g.key] : [])), request: post("fork", BODY.fork),
      run: async (g) => { const made = await send("POST", on("fork"), BODY.fork(g)); go(href(`/instances/${made.id}`)); } },
    cancel: { title: `Cancel ${id}`, says: "It is asked to stop: it may clean up, and can only end cancelled. This cannot be taken back.", label: "Cancel it", risk: true, fields: [{ ...reason, optional: true }],
      preview: dry("cancel", BODY.cancel), cmd: (g) => command("cancel", id, ...words(g)), request: post("cancel", BODY.cancel) },
  }[name];
  return html`<${Dialog} ...${spec} moved=${moved} close=${close} />`;
}

// `budget=true` of an advised command, as JSON.
function patched(words = []) {
  const value = (text) => { try { return JSON.parse(text); } catch { return text; } };
  return JSON.stringify(Object.fromEntries(words.map((word) => { const [key, ...rest] = word.split("="); return [key, value(rest.join("="))]; })));
}
