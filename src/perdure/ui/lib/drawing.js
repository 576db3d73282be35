// A drawing: the layout is the server's, here it becomes SVG. Nodes are reached by Tab and chosen by Enter.
import { html, useRef, useState } from "./html.js";
import { visible } from "./format.js";
import { Icon, Shape } from "./parts.js";

const LOOKS = { "not reached": "none", running: "running", open: "open", done: "done", failed: "failed", stuck: "stuck", dropped: "dropped", undone: "dropped" };
const MARKS = { "not reached": "none", running: "running", open: "waiting", done: "completed", failed: "failed", stuck: "stuck", dropped: "dropped", undone: "undone" };
const ICONS = { task: "task", call: "step", set: "set", subprocess: "child", continue: "loop", step: "step", agent: "person", cell: "scope", event: "message" };
const SMALL = new Set(["decision", "parallel", "join", "timer", "receive"]);

export function Drawing({ picture, selected, choose, name, seg }) {
  const [zoom, setZoom] = useState(0);
  const [list, setList] = useState(false);
  const box = useRef(null);
  const scale = 1.2 ** zoom;
  const states = [...new Set(picture.nodes.map((node) => node.state).filter(Boolean))];
  const step = (event) => {
    if (!["ArrowRight", "ArrowLeft"].includes(event.key)) return;
    const at = event.target.closest("[data-node]")?.dataset.node;
    if (at === undefined) return;
    const edge = picture.edges.find((each) => String(event.key === "ArrowRight" ? each.from : each.to) === at);
    const next = edge && box.current.querySelector(`[data-node="${event.key === "ArrowRight" ? edge.to : edge.from}"]`);
    if (next) { event.preventDefault(); next.focus(); }
  };
  return html`<section class="sheet" aria-label="Drawing"><div class="draw-bar">${seg}<span class="seg"><button type="button" aria-pressed=${!list} onClick=${() => setList(false)}>Picture</button><button type="button" aria-pressed=${list} onClick=${() => setList(true)}>As a list</button></span>
    <div class="end"><span class="muted wide-only"><kbd>Tab</kbd> nodes, <kbd>←</kbd> <kbd>→</kbd> edges</span><span class="btns"><button class="btn only small" type="button" aria-label="Zoom out" onClick=${() => setZoom(zoom - 1)}><${Icon} name="minus" /></button><button class="btn only small" type="button" aria-label="Show all" onClick=${() => setZoom(0)}><${Icon} name="fit" /></button><button class="btn only small" type="button" aria-label="Zoom in" onClick=${() => setZoom(zoom + 1)}><${Icon} name="plus" /></button></span></div></div>
  ${list ? html`<div class="scroll"><table class="ledger"><thead><tr><th>node</th><th>kind</th><th>state</th><th>leads to</th></tr></thead><tbody>${picture.nodes.map((node, n) => html`<tr><td class="mono">${visible(node.title)}</td><td class="muted">${node.kind}</td><td>${said(node)}</td><td>${picture.edges.filter((edge) => edge.from === n).map((edge) => `${picture.nodes[edge.to].title}${edge.label ? ` (${edge.label})` : ""}`).join(", ")}</td></tr>`)}</tbody></table></div>` : html`
  <div class="draw" role="group" tabindex="0" aria-label=${`Drawing of ${name}`} ref=${box} onKeyDown=${step}>
  <svg class="drawing" viewBox=${`0 0 ${picture.width} ${picture.height + 16}`} style=${{ width: `${picture.width * scale}px`, minWidth: `${Math.min(picture.width * 0.75, 720)}px`, maxWidth: zoom > 0 ? "none" : "100%", margin: "0 auto" }}>
    ${picture.frames.map((frame) => html`<rect class="g-lane" x=${frame.x} y=${frame.y} width=${frame.width} height=${frame.height} rx="4" /><text class="g-lane-name" x=${frame.x + 10} y=${frame.y + 16}>${visible(frame.title)}${frame.note && `: ${visible(frame.note)}`}</text>`)}
    ${picture.edges.map((edge) => html`<path class=${`g-edge${edge.went ? " went" : ""}${edge.dashed ? " off" : ""}`} d=${`M${edge.points.map((point) => point.join(" ")).join("L")}`} marker-end=${edge.went ? "url(#tip-went)" : "url(#tip)"} />`)}
    ${picture.edges.filter((edge) => edge.label).map((edge) => html`<text class="g-word" x=${edge.label_at[0]} y=${edge.label_at[1]}>${visible(edge.label)}</text>`)}
    ${picture.nodes.map((node, n) => html`<${Node} key=${n} n=${n} node=${node} picked=${node.location && node.location === selected} choose=${choose} />`)}
  </svg></div>`}
  ${states.length > 0 && html`<ul class="key-list" aria-label="Marks">${states.map((state) => html`<li><span class=${`st st-${ink(state)}`}><${Shape} name=${MARKS[state]} />${state}</span></li>`)}</ul>`}</section>`;
}

const ink = (state) => ({ running: "running", open: "waiting", done: "completed", failed: "failed", stuck: "stuck" })[state] ?? "cancelled";
const said = (node) => [node.state, node.note, node.tokens ? `${node.tokens} token${node.tokens > 1 ? "s" : ""}` : "", node.badge, node.gate && `gate ${node.gate}`].filter(Boolean).join(", ");

function Node({ node, n, picked, choose }) {
  const { x, y, width, height } = node;
  const look = `g-node ${LOOKS[node.state] ?? ""}${picked ? " picked" : ""}`;
  const pick = choose && node.location ? () => choose(node.location) : null;
  const acts = { "data-node": n, "data-location": node.location || null, tabindex: "0", role: pick ? "button" : "img", "aria-label": `${node.title}: ${said(node) || node.kind}`, onClick: pick, onKeyDown: (event) => { if (pick && event.key === "Enter") pick(); } };
  if (node.kind === "start" || node.kind === "end" || node.kind === "fail") {
    const radius = width / 2;
    return html`<g class=${look} ...${acts}><circle class="box" cx=${x + radius} cy=${y + radius} r=${radius} />${node.kind !== "start" && html`<circle class="box" cx=${x + radius} cy=${y + radius} r=${radius - 5} />`}<text class="sub" x=${x + radius} y=${y + height + 15} text-anchor="middle">${visible(node.title)}</text></g>`;
  }
  if (SMALL.has(node.kind)) {
    const [cx, cy] = [x + width / 2, y + height / 2];
    const shape = node.kind === "decision" || node.kind === "parallel" || node.kind === "join"
      ? html`<path class="box" d=${`M${cx} ${y}L${x + width} ${cy}L${cx} ${y + height}L${x} ${cy}Z`} />` : html`<circle class="box" cx=${cx} cy=${cy} r=${width / 2} />`;
    return html`<g class=${look} ...${acts}>${picked && html`<circle class="ring" cx=${cx} cy=${cy} r=${width / 2 + 5} />`}${shape}<text class="name" x=${cx} y=${y - 6} text-anchor="middle">${visible(node.title)}</text>${node.state && html`<text class="state" x=${cx} y=${y + height + 15} text-anchor="middle">${visible(said(node))}</text>`}</g>`;
  }
  const middle = node.subtitle ? y + height / 2 - 4 : y + height / 2 + 5;
  return html`<g class=${look} ...${acts}>${picked && html`<rect class="ring" x=${x - 4} y=${y - 4} width=${width + 8} height=${height + 8} rx="6" />`}<rect class="box" x=${x} y=${y} width=${width} height=${height} rx="3" />
    ${node.gate && html`<path class=${`g-gate ${node.gate}`} d=${`M${x - 4} ${y + 4}v${height - 8}`} />`}
    <svg class="kind" x=${x + 10} y=${middle - 11} width="14" height="14" viewBox="0 0 16 16"><use href=${`#i-${ICONS[node.kind] ?? "step"}`} /></svg>
    <text class="name" x=${x + 30} y=${middle}>${visible(node.title)}</text>
    ${node.subtitle && html`<text class="sub" x=${x + 11} y=${middle + 18}>${visible(node.subtitle)}</text>`}
    ${node.state && html`<svg class="mark" x=${x + width - 20} y=${y + 7} width="13" height="13" viewBox="0 0 16 16"><use href=${`#s-${MARKS[node.state]}`} /></svg>`}
    ${node.badge && html`<text class="sub" x=${x + width} y=${y - 5} text-anchor="end">${visible(node.badge)}</text>`}
    ${node.tokens > 0 && html`<g class="g-token"><circle cx=${x + 2} cy=${y} r="8" /><text x=${x + 2} y=${y + 4} text-anchor="middle">${node.tokens}</text></g>`}
    ${node.state && node.state !== "not reached" && html`<text class="state" x=${x + 2} y=${y + height + 15}>${visible([node.state, node.note].filter(Boolean).join(", "))}</text>`}</g>`;
}
