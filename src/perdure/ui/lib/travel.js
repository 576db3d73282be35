// Time travel: a slider over the entries of one instance. The entry is in the URL, so that a link shows the same.
import { html, useMemo, useState } from "./html.js";
import { command, figure, moment, visible } from "./format.js";
import { set } from "./router.js";
import { Icon } from "./parts.js";

const TICKS = 200;

// What is drawn of each entry above the slider. Of a long history operations tell it: not all of its entries are here.
function marksOf(history, operations, total) {
  if (history.history.length >= total) return history.history.map((each) => ({ n: each.number, bad: each.error, kind: each.outcome || each.event === "started" ? "out" : each.opened.some((text) => text.startsWith("step")) ? "run" : "wait" }));
  const bad = new Set(operations.filter((each) => each.error).map((each) => each.closed));
  const run = new Set(operations.filter((each) => each.kind === "step").map((each) => each.opened));
  return Array.from({ length: total }, (_, n) => ({ n: n + 1, bad: bad.has(n + 1), kind: n === 0 ? "out" : run.has(n + 1) ? "run" : "wait" }));
}

export function Travel({ show, history, operations, entry, past, act }) {
  const total = show.entries;
  const marks = useMemo(() => marksOf(history, operations, total), [history, operations, total]);
  if (total < 2) return null; // there is no other entry
  const now = entry === 0 || entry >= total;
  const at = now ? total : entry;
  const go = (n) => set({ entry: n >= total ? "" : Math.max(1, n) });
  const line = past?.changed ?? (at === total && history.last ? history.last : history.history.find((each) => each.number === at));
  const every = Math.max(1, Math.ceil(total / TICKS));
  const x = (n) => `${(total < 2 ? 0 : ((n - 1) / (total - 1)) * 100).toFixed(2)}%`;
  const ticks = marks.filter((each) => each.bad || (each.n - 1) % every === 0).slice(0, 2 * TICKS);
  const open = past ? past.operations.filter((each) => !each.closed).at(-1) : null;
  return html`<section class=${`travel${now ? "" : " is-past"}`} aria-label="Time travel"><div class="at"><button class="btn only quiet" type="button" aria-label="Entry before" title="Entry before: [" data-key="[" disabled=${at <= 1} onClick=${() => go(at - 1)}><${Icon} name="left" /></button><span>entry <b>${figure(at)}</b> of ${figure(total)}</span><button class="btn only quiet" type="button" aria-label="Entry after" title="Entry after: ]" data-key="]" disabled=${now} onClick=${() => go(at + 1)}><${Icon} name="right" /></button></div>
  <div class="rail"><svg class="ticks" aria-hidden="true">${ticks.map((each) => html`<line class=${each.bad ? "t-bad" : `t-${each.kind}`} x1=${x(each.n)} x2=${x(each.n)} y1=${each.bad || each.kind === "out" ? 0 : 6} y2="14" />`)}</svg>
    <input class="range" type="range" min="1" max=${total} value=${at} aria-label="Entry" aria-valuetext=${`entry ${at} of ${total}${now ? ", now" : ""}`} onInput=${(event) => go(Number(event.target.value))} /></div>
  <div class="do">${!now && html`<button class="btn small first" type="button" onClick=${() => go(total)}>Back to now</button>`}
    ${!now && open && show.may.rewind === "" && html`<button class="btn small" type="button" onClick=${() => act("rewind", { location: open.location })}><${Icon} name="rewind" />Rewind to here…</button>`}
    ${!now && open && show.may.fork === "" && html`<button class="btn small" type="button" onClick=${() => act("fork", { location: open.location })}><${Icon} name="fork" />Fork here…</button>`}
    <${Debug} id=${show.id} at=${at} /></div>
  <p class="what">${line && html`<span class="muted">${now ? "last" : "changed here"}, ${moment(line.at)}:</span> ${line.event} <code>${visible(line.location)}</code> ${line.status}${line.opened.length > 0 && html` → ${visible(line.opened.join(", "))}`}${line.outcome && html` → ${line.outcome}`}`}</p></section>`;
}

function Debug({ id, at }) {
  const text = command("debug", id, "--against", "MODULE", "--at", at);
  const [copied, setCopied] = useState(0); // the entry whose command was copied
  const copy = () => { navigator.clipboard?.writeText(text); setCopied(at); };
  return html`<button class="btn small" type="button" title=${text} onClick=${copy}><${Icon} name="copy" />debug --at ${at}${copied === at && html`<span class="muted" role="status">copied</span>`}</button>`;
}
