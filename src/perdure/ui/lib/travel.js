// Time travel: a slider over the entries of one instance. The entry is in the URL, so that a link shows the same.
import { html } from "./html.js";
import { command, moment, visible } from "./format.js";
import { set } from "./router.js";
import { Icon } from "./parts.js";

const TICKS = 200;

export function Travel({ show, history, entry, past, act }) {
  const total = show.entries;
  const now = entry === 0 || entry >= total;
  const at = now ? total : entry;
  const go = (n) => set({ entry: n >= total ? "" : Math.max(1, n) });
  const line = past?.changed ?? history.history.find((each) => each.number === at);
  const every = Math.max(1, Math.ceil(total / TICKS));
  const x = (n) => `${(total < 2 ? 0 : ((n - 1) / (total - 1)) * 100).toFixed(2)}%`;
  const ticks = history.history.filter((each) => each.error || (each.number - 1) % every === 0).slice(0, 2 * TICKS);
  const open = past ? past.operations.filter((each) => !each.closed).at(-1) : null;
  return html`<section class=${`travel${now ? "" : " is-past"}`} aria-label="Time travel"><div class="at"><button class="btn only quiet" type="button" aria-label="Entry before" title="Entry before: [" data-key="[" disabled=${at <= 1} onClick=${() => go(at - 1)}><${Icon} name="left" /></button><span>entry <b>${at}</b> of ${total}</span><button class="btn only quiet" type="button" aria-label="Entry after" title="Entry after: ]" data-key="]" disabled=${now} onClick=${() => go(at + 1)}><${Icon} name="right" /></button></div>
  <div class="rail"><svg class="ticks" aria-hidden="true">${ticks.map((each) => html`<line class=${each.error ? "t-bad" : each.outcome || each.event === "started" ? "t-out" : each.opened.some((text) => text.startsWith("step")) ? "t-run" : "t-wait"} x1=${x(each.number)} x2=${x(each.number)} y1=${each.error || each.outcome ? 0 : 6} y2="14" />`)}</svg>
    <input class="range" type="range" min="1" max=${total} value=${at} aria-label="Entry" aria-valuetext=${`entry ${at} of ${total}${now ? ", now" : ""}`} onInput=${(event) => go(Number(event.target.value))} /></div>
  <div class="do">${!now && html`<button class="btn small first" type="button" onClick=${() => go(total)}>Back to now</button>`}
    ${!now && open && show.may.rewind === "" && html`<button class="btn small" type="button" onClick=${() => act("rewind", { location: open.location })}><${Icon} name="rewind" />Rewind to here…</button>`}
    ${!now && open && show.may.fork === "" && html`<button class="btn small" type="button" onClick=${() => act("fork", { location: open.location })}><${Icon} name="fork" />Fork here…</button>`}
    <${Debug} id=${show.id} at=${at} /></div>
  <p class="what">${line && html`<span class="muted">${now ? "last" : "changed here"}, ${moment(line.at)}:</span> ${line.event} <code>${visible(line.location)}</code> ${line.status}${line.opened.length > 0 && html` → ${visible(line.opened.join(", "))}`}${line.outcome && html` → ${line.outcome}`}`}</p></section>`;
}

function Debug({ id, at }) {
  const text = command("debug", id, "--against", "MODULE", "--at", at);
  return html`<button class="btn small" type="button" title=${text} onClick=${() => navigator.clipboard?.writeText(text)}><${Icon} name="copy" />debug --at ${at}</button>`;
}
