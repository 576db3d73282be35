// What went wrong: attempts by place, the author's frames of a traceback, a divergence in two columns, the ways out.
import { html } from "./html.js";
import { get } from "./api.js";
import { figure, moment, quoted, visible } from "./format.js";
import { href, set } from "./router.js";
import { Status, useLoaded } from "./parts.js";

const FRAME = /^\s*File "(.+)", line (\d+), in (.+)$/;
const LIBRARY = /\/(site-packages|lib\/python[\d.]+|perdure\/(kernel|runtime|flows|codec|executors|app|graphs|playbooks|processes|tasks|cells))\/|^</;

// Frames of a recorded traceback: file, line, function and source, and whether they are the author's.
export function frames(text) {
  const found = [];
  const lines = text.split("\n");
  for (let n = 0; n < lines.length; n++) {
    const [, file, line, name] = lines[n].match(FRAME) ?? [];
    if (!file) continue;
    const source = lines[n + 1] && !FRAME.test(lines[n + 1]) && /^\s{4}/.test(lines[n + 1]) ? lines[n + 1].trim() : "";
    found.push({ file, line, name, source, own: !LIBRARY.test(file) });
  }
  return found;
}

// `ways`: none of an entry of the past.
export function Errors({ show, errors, ways }) {
  const places = new Map();
  for (const each of errors) places.set(each.location, [...(places.get(each.location) ?? []), each]);
  if (!show.error && !errors.length) return html`<div class="sheet"><div class="empty"><h2>No error so far</h2><p class="second">Failed attempts and what made the instance stuck stand here.</p></div></div>`;
  return html`<div class="stack errors">${show.error && html`<${Failure} title=${show.status === "stuck" ? `It is stuck${show.stuck_at ? ` at ${show.stuck_at}` : ""}` : "It has failed"} error=${show.error} others=${show} ways=${ways} />`}
    ${[...places].map(([location, list]) => html`<${Failure} key=${location} title=${location} error=${list.at(-1).error} tries=${list} />`)}</div>`;
}

function Failure({ title, error, tries = [], others, ways }) {
  return html`<section class="sheet card" aria-label=${title}><header><h3 class=${others ? "sans" : null}>${visible(title)}</h3>${others && ways && html`<span class="end"><${Alike} show=${others} /></span>`}</header>
    <div class="part"><p class="said"><b class="strong">${visible(error.type)}</b> ${visible(error.message.split("\n")[0])}</p>${error.message.includes("\n") && html`<pre class="json second">${visible(error.message.split("\n").slice(1).join("\n"))}</pre>`}${error.type === "Divergence" && html`<${Two} text=${error.message} />`}
      ${ways && html`<div class="row-btns">${ways}</div>`}</div>
    ${tries.length > 0 && html`<div class="part"><table class="tries"><thead><tr><th>attempt</th><th>receipt</th><th>error</th><th class="num">when</th><th class="num">entry</th></tr></thead><tbody>${tries.slice(-20).map((each) => html`<tr><td>${each.attempt}</td><td><${Status} of=${each.status} /></td><td>${visible(each.error.type)}${each.error.message !== error.message && html` <span class="muted">${visible(each.error.message.slice(0, 120))}</span>`}</td><td class="num">${moment(each.closed_at)}</td><td class="num"><button class="plain link" type="button" onClick=${() => set({ entry: each.closed })}>${each.closed}</button></td></tr>`)}</tbody></table></div>`}
    ${error.data !== null && error.data !== undefined && html`<div class="part"><h4>data</h4><pre class="json">${visible(JSON.stringify(error.data, null, 1))}</pre></div>`}
    ${error.traceback && html`<div class="part"><${Traceback} shut=${error.type === "Divergence"} text=${error.traceback} /></div>`}</section>`;
}

function Traceback({ text, shut }) {
  const all = frames(text);
  const own = all.filter((each) => each.own);
  return html`${own.length > 0 && html`<ol class="frames">${own.map((each) => html`<li><span class="mono">${visible(each.file.split("/").slice(-2).join("/"))}:${each.line}</span> <span class="muted">in ${visible(each.name)}</span>${each.source && html`<code class="line">${visible(each.source)}</code>`}</li>`)}</ol>`}
    <details open=${own.length === 0 && !shut}><summary>the whole traceback${all.length > own.length && own.length ? `, ${all.length} frames` : ""}</summary><pre class="json">${visible(text)}</pre></details>`;
}

// The words of a filter for all that are stuck, or have failed, as this one.
const alike = (show) => {
  const [type, ...place] = show.reason.split(" at ");
  return [`status:${show.status} workflow:${quoted(show.workflow)}`, type && `error_type:${quoted(type)}`, place.length && `error_at:${quoted(place.join(" at "))}`].filter(Boolean).join(" ");
};

export function Alike({ show }) {
  const q = alike(show);
  const { value } = useLoaded(() => get("/instances/count", { q }), [q]);
  const others = typeof value?.count === "number" ? value.count - 1 : value?.count;
  if (!others) return value ? html`<span class="muted">no other ${show.status === "stuck" ? "is stuck" : "has failed"} like this</span>` : null;
  return html`<a href=${href("/instances", { q })}>${others === 1 ? "1 other" : `${figure(others)} others`} ${show.status === "stuck" ? (others === 1 ? "is stuck" : "are stuck") : (others === 1 ? "has failed" : "have failed")} at the same place</a>`;
}

// What the journal has, and what the code asks for now.
function Two({ text }) {
  const [, recorded, current, source] = text.match(/recorded is ([^]+?), but the code now asks for ([^]+?)(?: at (\S+:\d+))?; nothing was run/) ?? [];
  if (!recorded || !current) return null;
  return html`<div class="two"><div><h4>the journal has</h4><code>${visible(recorded.trim())}</code></div><div><h4>the code asks for</h4><code>${visible(current.trim())}</code>${source && html`<p class="muted mono">${visible(source)}</p>`}</div></div>`;
}
