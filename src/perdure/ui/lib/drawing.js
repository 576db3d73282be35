// A drawing: the layout is the server's, here it becomes SVG, to pan, to zoom and to walk by keys. The same as a list.
import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { count, visible } from "./format.js";
import { Icon, Shape } from "./parts.js";
import { place, set } from "./router.js";

const LOOKS = { "not reached": "none", running: "running", open: "open", done: "done", failed: "failed", stuck: "stuck", dropped: "dropped", undone: "dropped" };
const MARKS = { "not reached": "none", running: "running", open: "waiting", done: "completed", failed: "failed", stuck: "stuck", dropped: "dropped", undone: "undone" };
const ICONS = { task: "task", call: "step", set: "set", subprocess: "child", continue: "loop", step: "step", agent: "person", cell: "scope", event: "message" };
const SMALL = new Set(["decision", "parallel", "join", "timer", "receive"]);
const LOUD = ["stuck", "failed", "running", "open", "done", "undone", "dropped", "not reached"];
const FOLD = 300; // above so many nodes groups begin folded
const [LEAST, MOST, FACTOR] = [20, 400, 1.25];

// `scale` of the address: percent; without it the drawing fits the page.
function useZoom(box, picture) {
  const percent = Number(place().query.get("scale"));
  const scale = percent >= LEAST && percent <= MOST ? percent / 100 : 0;
  const anchor = useRef(null);
  useLayoutEffect(() => {
    const [at, svg] = [anchor.current, box.current?.querySelector("svg.drawing")];
    anchor.current = null;
    if (!at || !svg) return;
    box.current.scrollLeft = at.x * svg.clientWidth - at.left;
    box.current.scrollTop = at.y * svg.clientHeight - at.top;
  }, [scale]);
  // The place of the picture below (left, top) of the box stays where it is.
  const zoom = (factor, left = box.current.clientWidth / 2, top = box.current.clientHeight / 2) => {
    const svg = box.current.querySelector("svg.drawing");
    if (!svg) return;
    anchor.current = { left, top, x: (box.current.scrollLeft + left) / svg.clientWidth, y: (box.current.scrollTop + top) / svg.clientHeight };
    set({ scale: Math.round(Math.min(MOST, Math.max(LEAST, (100 * svg.clientWidth * factor) / picture.width))) });
  };
  return [scale, zoom];
}

export function Drawing({ picture, selected, choose, name, seg, children }) {
  const list = place().query.get("shown") === "list";
  const [opened, setOpened] = useState(() => new Set());
  const box = useRef(null);
  const drag = useRef(null);
  const [scale, zoom] = useZoom(box, picture);
  const folded = foldedOf(picture, opened);
  const inside = (node) => node.frames.find((frame) => folded.has(frame));
  const states = [...new Set(picture.nodes.map((node) => node.state).filter(Boolean))];
  const focus = (n) => box.current.querySelector(inside(picture.nodes[n]) === undefined ? `[data-node="${n}"]` : `[data-frame="${inside(picture.nodes[n])}"]`)?.focus();
  const key = (event) => {
    if (event.key === "+" || event.key === "=") { event.stopPropagation(); return zoom(FACTOR); }
    if (event.key === "-") { event.stopPropagation(); return zoom(1 / FACTOR); }
    if (event.key === "0") { event.stopPropagation(); return set({ scale: "" }); }
    const at = Number(event.target.closest("[data-node]")?.dataset.node ?? NaN);
    const next = walk(picture, at, event.key);
    if (next !== undefined) { event.preventDefault(); focus(next); }
  };
  const wheel = (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const edge = box.current.getBoundingClientRect();
    zoom(event.deltaY < 0 ? FACTOR : 1 / FACTOR, event.clientX - edge.left, event.clientY - edge.top);
  };
  useLayoutEffect(() => { // not passive: the page itself must not zoom
    const now = box.current;
    now?.addEventListener("wheel", wheel, { passive: false });
    return () => now?.removeEventListener("wheel", wheel);
  });
  const grab = (event) => {
    if (event.button || event.pointerType === "touch") return;
    drag.current = { x: event.clientX, y: event.clientY, left: box.current.scrollLeft, top: box.current.scrollTop };
  };
  const pull = (event) => {
    const from = drag.current;
    if (!from) return;
    if (Math.abs(event.clientX - from.x) + Math.abs(event.clientY - from.y) > 3) box.current.setPointerCapture(event.pointerId);
    box.current.scrollLeft = from.left - (event.clientX - from.x);
    box.current.scrollTop = from.top - (event.clientY - from.y);
  };
  const drop = () => { drag.current = null; };
  const size = scale ? { width: `${picture.width * scale}px`, maxWidth: "none", minWidth: 0 } : { width: `${picture.width}px`, minWidth: `${Math.min(picture.width * 0.7, 1600)}px`, maxWidth: "100%" };
  return html`<section class="sheet" aria-label="Drawing"><div class="draw-bar">${seg}<span class="seg"><button type="button" aria-pressed=${!list} onClick=${() => set({ shown: "" })}>Picture</button><button type="button" aria-pressed=${list} onClick=${() => set({ shown: "list" })}>As a list</button></span>${children}
    ${!list && html`<div class="end"><span class="muted wide-only"><kbd>Tab</kbd> nodes, <kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd> edges</span><span class="btns"><button class="btn only small" type="button" aria-label="Zoom out" onClick=${() => zoom(1 / FACTOR)}><${Icon} name="minus" /></button><button class="btn only small" type="button" aria-label="Show all" onClick=${() => set({ scale: "" })}><${Icon} name="fit" /></button><button class="btn only small" type="button" aria-label="Zoom in" onClick=${() => zoom(FACTOR)}><${Icon} name="plus" /></button></span></div>`}</div>
  ${list ? html`<${List} picture=${picture} selected=${selected} choose=${choose} />` : html`
  <div class="draw" role="group" tabindex="0" aria-label=${`Drawing of ${name}: ${count(picture.nodes.length, "node")}`} ref=${box} onKeyDown=${key} onPointerDown=${grab} onPointerMove=${pull} onPointerUp=${drop} onPointerCancel=${drop}>
  <svg class="drawing" viewBox=${`0 0 ${picture.width} ${picture.height + 16}`} style=${{ ...size, margin: "0 auto" }}>
    ${picture.frames.map((frame, n) => !folded.has(n) && html`<g key=${`frame-${n}`}><rect class="g-lane" x=${frame.x} y=${frame.y} width=${frame.width} height=${frame.height} rx="4" /><text class="g-lane-name" x=${frame.x + 10} y=${frame.y + 16}>${visible(frame.title)}${frame.note && `: ${visible(frame.note)}`}</text>${opened.has(n) && html`<${Fold} n=${n} frame=${frame} fold=${() => setOpened(without(opened, n))} />`}</g>`)}
    ${picture.edges.map((edge, n) => (inside(picture.nodes[edge.from]) === undefined || inside(picture.nodes[edge.from]) !== inside(picture.nodes[edge.to])) && html`<path key=${`edge-${n}`} class=${`g-edge${edge.went ? " went" : ""}${edge.dashed ? " off" : ""}`} d=${`M${edge.points.map((point) => point.join(" ")).join("L")}`} marker-end=${edge.went ? "url(#tip-went)" : "url(#tip)"} />`)}
    ${picture.edges.map((edge, n) => edge.label && inside(picture.nodes[edge.from]) === undefined && html`<text key=${`word-${n}`} class="g-word" x=${edge.label_at[0]} y=${edge.label_at[1]}>${visible(edge.label)}</text>`)}
    ${picture.nodes.map((node, n) => inside(node) === undefined && html`<${Node} key=${n} n=${n} node=${node} picked=${node.location && node.location === selected} choose=${choose} />`)}
    ${picture.frames.map((frame, n) => folded.has(n) && !outer(picture, n).some((each) => folded.has(each)) && html`<${Folded} key=${`folded-${n}`} n=${n} frame=${frame} nodes=${picture.nodes.filter((node) => node.frames.includes(n))} open=${() => setOpened(new Set([...opened, n]))} />`)}
  </svg></div>`}
  ${states.length > 0 && html`<ul class="key-list" aria-label="Marks">${LOUD.filter((state) => states.includes(state)).reverse().map((state) => html`<li><span class=${`st st-${ink(state)}`}><${Shape} name=${MARKS[state]} />${state}</span></li>`)}</ul>`}</section>`;
}

const without = (found, n) => new Set([...found].filter((each) => each !== n));
const outer = (picture, n) => picture.nodes.find((node) => node.frames.includes(n))?.frames.slice(0, -1).filter((each) => each !== n) ?? [];
const foldedOf = (picture, opened) => new Set(picture.nodes.length > FOLD ? picture.frames.map((_, n) => n).filter((n) => !opened.has(n)) : []);

// The node that a key leads to: along an edge, back along one, or to the other end of the next edge from the same node.
export function walk(picture, at, key) {
  const out = (n) => picture.edges.filter((edge) => edge.from === n).map((edge) => edge.to);
  const came = picture.edges.find((edge) => edge.to === at)?.from;
  if (key === "ArrowRight") return out(at)[0];
  if (key === "ArrowLeft") return came;
  if ((key === "ArrowDown" || key === "ArrowUp") && came !== undefined) {
    const beside = out(came);
    return beside.length > 1 ? beside[(beside.indexOf(at) + (key === "ArrowDown" ? 1 : beside.length - 1)) % beside.length] : undefined;
  }
  return undefined;
}

function List({ picture, selected, choose }) {
  const leads = (n) => picture.edges.filter((edge) => edge.from === n).map((edge) => `${picture.nodes[edge.to].title}${edge.label ? ` (${edge.label})` : ""}`).join(", ");
  return html`<div class="scroll"><table class="ledger"><thead><tr><th>node</th><th>kind</th><th>in</th><th>state</th><th>leads to</th></tr></thead><tbody>${picture.nodes.map((node, n) => html`<tr aria-selected=${node.location && node.location === selected ? "true" : null}><td class="mono">${choose && node.location ? html`<button class="plain link" type="button" onClick=${() => choose(node.location)}>${visible(node.title)}</button>` : visible(node.title)}</td><td class="muted">${node.kind}${node.subtitle && html` <span class="second">${visible(node.subtitle)}</span>`}</td><td class="muted">${node.frames.map((frame) => visible(picture.frames[frame].title)).join(", ")}</td><td>${node.state ? html`<span class=${`st st-${ink(node.state)}`}><${Shape} name=${MARKS[node.state]} />${said(node)}</span>` : said(node)}</td><td>${visible(leads(n))}</td></tr>`)}</tbody></table></div>`;
}

const ink = (state) => ({ running: "running", open: "waiting", done: "completed", failed: "failed", stuck: "stuck" })[state] ?? "cancelled";
const said = (node) => [node.state, node.note, node.tokens ? `${node.tokens} token${node.tokens > 1 ? "s" : ""}` : "", node.badge, node.gate && `gate ${node.gate}`].filter(Boolean).join(", ");

// A group that is folded: one box, with the loudest state of what is in it.
function Folded({ n, frame, nodes, open }) {
  const state = LOUD.find((each) => nodes.some((node) => node.state === each));
  const of = nodes.filter((node) => node.state === state).length;
  const text = `${count(nodes.length, "node")}${state ? `, ${of} ${state}` : ""}`;
  const press = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } };
  return html`<g class=${`g-node g-folded ${LOOKS[state] ?? ""}`} data-frame=${n} tabindex="0" role="button" aria-label=${`${frame.title}: ${text}. Open the group`} onClick=${open} onKeyDown=${press}><rect class="box" x=${frame.x} y=${frame.y} width=${frame.width} height=${frame.height} rx="4" /><text class="name" x=${frame.x + frame.width / 2} y=${frame.y + frame.height / 2} text-anchor="middle">${visible(frame.title)}</text><text class="sub" x=${frame.x + frame.width / 2} y=${frame.y + frame.height / 2 + 18} text-anchor="middle">${text}</text></g>`;
}

const Fold = ({ n, frame, fold }) => html`<g class="g-fold" data-frame=${n} tabindex="0" role="button" aria-label=${`Fold ${frame.title}`} onClick=${fold} onKeyDown=${(event) => { if (event.key === "Enter") fold(); }}><rect x=${frame.x + frame.width - 30} y=${frame.y + 4} width="24" height="24" rx="3" /><path d=${`M${frame.x + frame.width - 23} ${frame.y + 16}h10`} /></g>`;

// What fits into a box: a sign of this type has about so many units.
const fit = (text, width, sign) => (text.length * sign > width ? `${text.slice(0, Math.max(1, Math.floor(width / sign) - 1))}…` : text);

function Node({ node, n, picked, choose }) {
  const { x, y, width, height } = node;
  const look = `g-node ${LOOKS[node.state] ?? ""}${picked ? " picked" : ""}`;
  const pick = choose && node.location ? () => choose(node.location) : null;
  const acts = { "data-node": n, "data-location": node.location || null, tabindex: "0", role: pick ? "button" : "img", "aria-label": `${node.title}: ${said(node) || node.kind}`, onClick: pick, onKeyDown: (event) => { if (pick && event.key === "Enter") pick(); } };
  const tip = html`<title>${visible([node.title, node.subtitle].filter(Boolean).join(": "))}</title>`;
  if (node.kind === "start" || node.kind === "end" || node.kind === "fail") {
    const radius = width / 2;
    return html`<g class=${look} ...${acts}>${tip}<circle class="box" cx=${x + radius} cy=${y + radius} r=${radius} />${node.kind !== "start" && html`<circle class="box" cx=${x + radius} cy=${y + radius} r=${radius - 5} />`}<text class="sub" x=${x + radius} y=${y + height + 15} text-anchor="middle">${visible(node.title)}</text></g>`;
  }
  if (SMALL.has(node.kind)) {
    const [cx, cy] = [x + width / 2, y + height / 2];
    const shape = node.kind === "decision" || node.kind === "parallel" || node.kind === "join"
      ? html`<path class="box" d=${`M${cx} ${y}L${x + width} ${cy}L${cx} ${y + height}L${x} ${cy}Z`} />` : html`<rect class="box" x=${x} y=${y} width=${width} height=${height} rx=${height / 2} />`; // as long as its layout is
    const sign = node.kind === "receive" ? "message" : node.kind === "timer" ? "sleep" : "";
    return html`<g class=${look} ...${acts}>${tip}${picked && html`<circle class="ring" cx=${cx} cy=${cy} r=${width / 2 + 5} />`}${shape}${sign && html`<svg class="kind" x=${cx - 8} y=${cy - 8} width="16" height="16" viewBox="0 0 16 16"><use href=${`#i-${sign}`} /></svg>`}<text class="name" x=${cx} y=${y - 6} text-anchor="middle">${visible(node.title)}</text>${node.state && html`<text class="state" x=${cx} y=${y + height + 15} text-anchor="middle">${visible(said(node))}</text>`}</g>`;
  }
  const middle = node.subtitle ? y + height / 2 - 4 : y + height / 2 + 5;
  return html`<g class=${look} ...${acts}>${tip}${picked && html`<rect class="ring" x=${x - 4} y=${y - 4} width=${width + 8} height=${height + 8} rx="6" />`}<rect class="box" x=${x} y=${y} width=${width} height=${height} rx="3" />
    ${node.gate && html`<path class=${`g-gate ${node.gate}`} d=${`M${x - 4} ${y + 4}v${height - 8}`} />`}
    <svg class="kind" x=${x + 10} y=${middle - 11} width="14" height="14" viewBox="0 0 16 16"><use href=${`#i-${ICONS[node.kind] ?? "step"}`} /></svg>
    <text class="name" x=${x + 30} y=${middle}>${visible(fit(node.title, width - 34 - (node.state ? 18 : 0), 7.9))}</text>
    ${node.subtitle && html`<text class="sub" x=${x + 11} y=${middle + 18}>${visible(fit(node.subtitle, width - 18, 6.6))}</text>`}
    ${node.state && html`<svg class="mark" x=${x + width - 20} y=${y + 7} width="13" height="13" viewBox="0 0 16 16"><use href=${`#s-${MARKS[node.state]}`} /></svg>`}
    ${node.badge && html`<text class="sub" x=${x + width} y=${y - 5} text-anchor="end">${visible(node.badge)}</text>`}
    ${node.tokens > 0 && html`<g class="g-token"><circle cx=${x + 2} cy=${y} r="8" /><text x=${x + 2} y=${y + 4} text-anchor="middle">${node.tokens}</text></g>`}
    ${node.state && node.state !== "not reached" && html`<text class="state" x=${x + 2} y=${y + height + 15}>${visible([node.state, node.note].filter(Boolean).join(", "))}</text>`}</g>`;
}
