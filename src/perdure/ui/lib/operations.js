// Operations: a tree by location beside a timeline, and all that is known of the one that is selected.
import { html, steady, useEffect, useMemo, useRef, useState } from "./html.js";
import { get, instancePath } from "./api.js";
import { clock, count, day, figure, moment, span, visible } from "./format.js";
import { go, href, set } from "./router.js";
import { Copy, Icon, Id, Json, Status } from "./parts.js";
import { critical, scale } from "./timeline.js";
import { begin, end, rows, status, tree } from "./tree.js";
import { useWindow } from "./window.js";

const ROW = 28;
const BACKOFF = /(^|\/)backoff#\d+$/;
const KINDS = { step: "step", timer: "sleep", wait: "message", child: "child", task: "task" };
const BARS = { ok: "p-ok", error: "p-bad", timeout: "p-bad", unknown: "p-unknown", running: "p-run", held: "p-held", queued: "p-queue", waiting: "p-wait", dropped: "p-held", cancelled: "p-held" };
const KEY = [["p-held", "held"], ["p-queue", "queued"], ["p-run", "running"], ["p-ok", "done"], ["p-wait", "waiting"], ["p-bad", "failed attempt"], ["p-unknown", "outcome unknown"]];

export function Operations({ list, show, query, act, until, seg, kin, total, heard, node }) {
  const made = useMemo(() => tree(list), [list]);
  const path = useMemo(() => critical(list), [list]);
  const [inline, setInline] = useState({});
  const selected = query.get("at") ?? "";
  const turns = query.get("open") ?? "";
  const turned = new Set(turns.split("\n").filter(Boolean));
  const all = useMemo(() => rows(made, { turned, selected, more: (child) => inline[child] }), [made, turns, selected, inline]);
  const shownChildren = all.filter((row) => row.open && row.attempts.at(-1).kind === "child").map((row) => row.attempts.at(-1).child);
  useEffect(() => { // those in line, again whenever the instance or a child of it has moved
    let gone = false;
    for (const child of shownChildren) get(instancePath(child, "operations")).then((found) => gone || setInline((old) => ({ ...old, [child]: tree(found.operations) })), () => {});
    return () => { gone = true; };
  }, [shownChildren.join("\n"), list]);
  const now = until ?? Date.now();
  const from = Date.parse(show.started_at);
  const to = Math.max(from + 1, show.ended_at ? Date.parse(show.ended_at) : now);
  const fold = query.get("idle") !== "shown";
  const chain = query.get("path") !== "hidden";
  const zoom = (query.get("zoom") ?? "").match(/^[\d.]+-[\d.]+$/) ? query.get("zoom").split("-").map(Number) : [0, 100];
  const drawn = scale(list, from, to, { fold, zoom });
  const chosen = all.find((each) => each.location === selected && !each.scope);
  const open = useMemo(() => list.filter((each) => !each.closed).length, [list]);
  const kinds = useMemo(() => kindsOf(list), [list]);
  const turn = (row) => {
    const next = new Set(turned);
    if (!next.delete(row.location)) next.add(row.location);
    set({ open: [...next].join("\n"), at: row.open && selected !== row.location ? "" : selected });
  };
  const choose = (row) => (row.scope ? turn(row) : row.foreign ? null : set({ at: row.location === selected ? "" : row.location }));
  const look = (a, b) => set({ zoom: b - a > 99 ? "" : `${Math.max(0, a).toFixed(2)}-${Math.min(100, b).toFixed(2)}` });
  const nearer = (by, middle = (zoom[0] + zoom[1]) / 2) => {
    const size = Math.min(100, Math.max(0.05, (zoom[1] - zoom[0]) * by));
    const left = Math.min(100 - size, Math.max(0, middle - ((middle - zoom[0]) / (zoom[1] - zoom[0])) * size));
    look(left, left + size);
  };
  const pan = (by) => { const size = zoom[1] - zoom[0]; const left = Math.min(100 - size, Math.max(0, zoom[0] + by * size)); look(left, left + size); };
  return html`<div class=${chosen ? "work" : "stack"}>
  <section class="sheet ops" aria-label="Operations and timeline"><div class="ops-bar"><h2>Operations</h2><span class="muted">${all.length > 0 && html`${total > list.length ? `the last ${figure(list.length)} of ${figure(total)}` : figure(list.length)} in ${count(all.length, "row")}${open ? `, ${open} open` : ""}`}</span>
    <div class="end">${seg}${all.length > 0 && html`<span class="seg wide-only"><button type="button" aria-pressed=${chain} onClick=${() => set({ path: chain ? "hidden" : "" })}>Critical path</button><button type="button" aria-pressed=${fold} onClick=${() => set({ idle: fold ? "shown" : "", zoom: "" })}>Fold idle</button></span>
    <span class="btns wide-only"><button class="btn only small" type="button" aria-label="Zoom out" data-key="-" title="Zoom out: -" onClick=${() => nearer(2)}><${Icon} name="minus" /></button><button class="btn only small" type="button" aria-label="Show all" data-key="0" title="Show all: 0" onClick=${() => look(0, 100)}><${Icon} name="fit" /></button><button class="btn only small" type="button" aria-label="Zoom in" data-key="+" title="Zoom in: +, or Ctrl and the wheel" onClick=${() => nearer(0.5)}><${Icon} name="plus" /></button></span>`}</div></div>
  ${all.length === 0 ? html`<p class="ops-none muted">It has asked for nothing yet: no step, timer, message or child.</p>` : html`
  <${Rows} all=${all} drawn=${drawn} now=${now} path=${chain ? path : null} kin=${kin} selected=${selected} choose=${choose} turn=${turn} zoom=${zoom} look=${look} nearer=${nearer} pan=${pan} ended=${show.ended_at}
    axis=${html`<${Axis} drawn=${drawn} from=${from} to=${to} ended=${show.ended_at} end=${until ? "then" : "now"} zoom=${zoom} look=${look} />`} />
  <${Key} kinds=${kinds} chain=${chain} folds=${drawn.folds.length > 0} />`}</section>
  ${chosen && html`<${Chosen} row=${chosen} show=${show} act=${act} heard=${heard} node=${node} />`}</div>`;
}

// The rows near the eye. While they scroll only this is drawn again, and of its rows those that come.
function Rows({ all, drawn, now, path, kin, selected, choose, turn, zoom, look, nearer, pan, ended, axis }) {
  const [here, setHere] = useState(""); // the row that Tab comes to: one of them, the arrows go on from there
  const { box, first, last, above, below } = useWindow(all.length, ROW);
  const keys = (event) => {
    const at = all[Number(event.target.closest("[data-n]")?.dataset.n)];
    const key = event.shiftKey && event.key.startsWith("Arrow") ? `Shift${event.key}` : event.key;
    const does = { "+": () => nearer(0.5), "-": () => nearer(2), 0: () => look(0, 100), ShiftArrowLeft: () => pan(-0.25), ShiftArrowRight: () => pan(0.25),
      ...(at ? { ArrowRight: () => at.can && !at.open && turn(at), ArrowLeft: () => at.can && at.open && turn(at), ArrowDown: () => step(1), ArrowUp: () => step(-1), Home: () => step(-Infinity), End: () => step(Infinity), Enter: () => choose(at), " ": () => choose(at) } : {}) }[key];
    if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    does();
  };
  const step = (by) => {
    const shown = [...box.current.querySelectorAll("[data-n]")];
    shown[Math.max(0, Math.min(shown.length - 1, shown.indexOf(document.activeElement.closest("[data-n]")) + by))]?.focus();
  };
  const shown = all.slice(first, last);
  const stop = [here, selected].find((location) => location && shown.some((row) => row.location === location)) ?? shown[0]?.location;
  const wheel = (event) => {
    const line = event.target.closest(".tl");
    if (!line || !(event.ctrlKey || event.shiftKey)) return;
    event.preventDefault();
    const frame = line.getBoundingClientRect();
    const middle = zoom[0] + ((event.clientX - frame.left) / frame.width) * (zoom[1] - zoom[0]);
    nearer((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, middle);
  };
  return html`<div role="treegrid" class="tall" style=${{ "--ground": ground(drawn, ended) }} ref=${box} aria-label="Operations" aria-rowcount=${all.length} onKeyDown=${keys} onFocusIn=${(event) => setHere(event.target.closest("[data-at]")?.dataset.at ?? here)} onWheel=${wheel}>
  <div class="ops-row ops-top" role="row"><div class="op" role="columnheader"><span>location</span><span>status</span><span class="dur">took</span></div>${axis}</div>
  ${above > 0 && html`<div aria-hidden="true" style=${{ height: `${above}px` }}></div>`}
  ${shown.map((row, n) => html`<${Row} key=${row.location} stop=${row.location === stop} row=${row} n=${first + n} now=${now} drawn=${drawn} path=${path} selected=${row.location === selected} choose=${choose} turn=${turn} kin=${kin} />`)}
  ${below > 0 && html`<div aria-hidden="true" style=${{ height: `${below}px` }}></div>`}</div>`;
}

// Behind each bar: folded time, the ticks and the line of now. One background for all rows: it costs no element.
function ground(drawn, ended) {
  const fill = (ink, x, width) => `linear-gradient(var(${ink}), var(${ink})) ${x.toFixed(2)}% 0 / ${width} 100% no-repeat`;
  const lines = [...(ended ? [] : [[drawn.end, "--focus"]]), ...drawn.folds.flatMap((each) => [[each.x0, "--rule-strong"], [each.x1, "--rule-strong"]]), ...drawn.ticks.map((each) => [each.x, "--rule"])];
  const folds = drawn.folds.map((each) => [Math.max(0, each.x0), Math.min(100, each.x1) - Math.max(0, each.x0)]).filter(([, width]) => width < 100);
  return [...lines.filter(([x]) => x >= 0 && x <= 100).map(([x, ink]) => fill(ink, x, "1px")), ...folds.map(([x, width]) => fill("--well", (100 * x) / (100 - width), `${width.toFixed(2)}%`))].join(", ") || "none";
}

// What the colours and lines mean: of those that there are.
function Key({ kinds, chain, folds }) {
  return html`<ul class="key-list wide-only" aria-label="Key to the timeline">${KEY.filter(([kind]) => kinds.has(kind)).map(([kind, text]) => html`<li><svg aria-hidden="true"><rect class=${kind} x="0.5" y="1.5" width="23" height="9" rx="1" /></svg>${text}</li>`)}${kinds.has("p-back") && html`<li><svg aria-hidden="true"><line class="p-back" x1="0" x2="24" y1="6" y2="6" /></svg>backing off</li>`}
    ${chain && html`<li><svg aria-hidden="true"><rect class="p-crit" x="0" y="5" width="24" height="2" /></svg>critical path</li>`}${folds && html`<li><svg aria-hidden="true"><rect class="tl-fold" width="24" height="12" /><line class="tl-fold-edge" x1="0.5" x2="0.5" y1="0" y2="12" /><line class="tl-fold-edge" x1="23.5" x2="23.5" y1="0" y2="12" /></svg>idle time, folded</li>`}</ul>`;
}

// A time since the begin, as exactly as the step of the ticks asks for it.
const since = (ms, step) => (ms < 1000 && step < 100 ? `${ms} ms` : ms < 6e4 ? `${(ms / 1000).toFixed(step < 10 ? 3 : step < 100 ? 2 : step < 1000 ? 1 : 0)} s` : span(ms));

const pc = (n) => `${Math.max(-50, Math.min(150, n)).toFixed(2)}%`;

// Times above the bars. A range that is drawn with the pointer is zoomed.
function Axis({ drawn, from, to, ended, end, zoom, look }) {
  const box = useRef(null);
  const [drag, setDrag] = useState(null);
  const place = (event) => { const frame = box.current.getBoundingClientRect(); return ((event.clientX - frame.left) / frame.width) * 100; };
  const up = () => {
    if (drag && Math.abs(drag[1] - drag[0]) > 1) { const size = (zoom[1] - zoom[0]) / 100; look(zoom[0] + Math.min(...drag) * size, zoom[0] + Math.max(...drag) * size); }
    setDrag(null);
  };
  const words = (tick) => (tick.since ? `+${since(tick.at - from, tick.step)}` : day(tick.at) !== day(from) ? moment(tick.at) : tick.step < 6e4 ? clock(tick.at) : clock(tick.at).slice(0, 5));
  let before = zoom[0] === 0 ? 1 : -9;
  const near = (x) => drawn.folds.some((each) => each.x0 - x < 8 && x < each.x1);
  const told = drawn.ticks.filter((tick) => { if (tick.x - before < 9 || tick.x > Math.min(93, drawn.end - 8) || near(tick.x)) return false; before = tick.x; return true; });
  return html`<svg class="tl axis-top" aria-hidden="true" ref=${box} onPointerDown=${(event) => { event.currentTarget.setPointerCapture(event.pointerId); setDrag([place(event), place(event)]); }} onPointerMove=${(event) => drag && setDrag([drag[0], place(event)])} onPointerUp=${up} onPointerCancel=${() => setDrag(null)}>
    ${zoom[0] === 0 && html`<text class="q" x="0.8%" y="14">${moment(from)}</text>`}
    ${told.map((tick) => html`<text class="q" x=${pc(tick.x + 0.6)} y="14">${words(tick)}</text>`)}
    ${drawn.folds.filter((each) => (each.x1 - each.x0) * (box.current?.clientWidth ?? 1000) > 4400).map((each) => html`<text class="q" x=${pc((each.x0 + each.x1) / 2)} y="14" text-anchor="middle">${span(each.to - each.from).split(" ").slice(0, 2).join(" ")}</text>`)}
    ${drawn.end <= 101 && html`<text class=${ended ? "q" : "now"} x="99.5%" y="14" text-anchor="end">${ended ? span(to - from) : end}</text>`}
    ${drag && html`<rect class="tl-drag" x=${pc(Math.min(...drag))} width=${pc(Math.abs(drag[1] - drag[0]))} y="0" height="100%" />`}</svg>`;
}

const Row = steady(({ row, n, stop, now, drawn, path, selected, choose, turn, kin }) => {
  const last = row.attempts.at(-1);
  const [bad, again] = row.scope ? failures(row) : [0, 0];
  const word = !row.scope && last.child && kin[last.child] && !last.closed ? kin[last.child] : status(row);
  return html`<div class=${`ops-row d${Math.min(row.depth, 3)}`} role="row" aria-level=${row.depth + 1} aria-selected=${selected} aria-expanded=${row.can ? row.open : null} tabindex=${stop ? "0" : "-1"} data-row data-n=${n} data-at=${row.location} onClick=${() => choose(row)}>
    <div class="op" role="gridcell"><span class="name"><span class="tw" onClick=${(event) => { if (row.can) { event.stopPropagation(); turn(row); } }}>${row.can && html`<${Icon} name=${row.open ? "down" : "right"} />`}</span><${Icon} name=${row.loop ? "loop" : row.scope ? "scope" : KINDS[last.kind] ?? "step"} /><span class="loc" title=${row.loop ? `${row.of} times` : row.location}>${visible(row.name)}${last.child && last.kind === "child" && !row.scope && html` <span class="kind">→ ${visible(last.child)}</span>`}</span>${!row.scope && row.attempts.length > 1 && html`<span class="x">×${row.attempts.length}</span>`}${bad > 0 && html`<span class="x">${figure(bad)} failed</span>`}${again > 0 && bad === 0 && html`<span class="x muted">${figure(again)} retried</span>`}</span>
    <${Status} of=${word} /><span class="dur">${span(end(row, now) - begin(row))}</span></div>
    <svg class="tl" aria-hidden="true">${row.scope ? html`<${Scope} row=${row} now=${now} drawn=${drawn} />` : row.attempts.map((each, at) => html`<${Bar} each=${each} before=${row.attempts[at - 1]} now=${now} drawn=${drawn} late=${path?.has(each)} />`)}
      ${row.pauses.filter((each) => !each.closed_at).map((each) => html`<line class="p-back" x1=${pc(drawn.place(Date.parse(each.opened_at)))} x2=${pc(drawn.place(now))} y1="14" y2="14" />`)}</svg></div>`;
});

// How many places inside failed in the end, and how many did but for a retry.
function failures(row) {
  const last = new Map();
  const tried = new Set();
  for (const each of row.attempts) {
    const wrong = each.status === "error" || each.status === "timeout";
    if (wrong) tried.add(each.location);
    last.set(each.location, wrong);
  }
  const bad = [...last.values()].filter(Boolean).length;
  return [bad, tried.size - bad];
}

// A closed scope or loop: a line from its first opening to its last end, and in it where something failed.
function Scope({ row, now, drawn }) {
  const [a, b] = [drawn.place(begin(row)), drawn.place(end(row, now))];
  const failed = row.open ? [] : row.attempts.filter((each) => each.error && each.closed_at).slice(0, 200);
  return html`<path class="p-scope" d="" /><line class="p-scope" x1=${pc(a)} x2=${pc(Math.max(b, a + 0.4))} y1="14" y2="14" /><line class="p-scope" x1=${pc(a)} x2=${pc(a)} y1="10" y2="18" /><line class="p-scope" x1=${pc(b)} x2=${pc(b)} y1="10" y2="18" />
    ${failed.map((each) => { const x = drawn.place(Date.parse(each.closed_at)); return html`<rect class="p-bad" x=${pc(x)} width="0.3%" y="10" height="8" />`; })}`;
}

// How a part of an operation is drawn.
const barOf = (each, part) => (part === each.parts.at(-1) && each.kind === "step" && part.kind === "running" ? BARS[each.status] : BARS[part.kind]) ?? "p-run";
const kindsOf = (list) => new Set(list.flatMap((each) => (BACKOFF.test(each.location) ? ["p-back"] : each.parts.map((part) => barOf(each, part)))));

function Bar({ each, before, now, drawn, late }) {
  const bars = each.parts.map((part) => {
    const a = drawn.place(Date.parse(part.begin));
    const b = drawn.place(part.end ? Date.parse(part.end) : now);
    const kind = barOf(each, part);
    const thin = ["p-wait", "p-held", "p-queue"].includes(kind);
    return html`<rect class=${kind} x=${pc(a)} width=${pc(Math.max(0.35, b - a))} y=${thin ? 9.5 : 8} height=${thin ? 9 : 12} rx="1" />`;
  });
  const a = drawn.place(Date.parse(each.opened_at));
  const b = drawn.place(each.closed_at ? Date.parse(each.closed_at) : now);
  return html`${before?.closed_at && html`<line class="p-back" x1=${pc(drawn.place(Date.parse(before.closed_at)))} x2=${pc(a)} y1="14" y2="14" />`}${bars}${late && html`<rect class="p-crit" x=${pc(a)} width=${pc(Math.max(0.35, b - a))} y="23" height="2" />`}`;
}

// A task is known by its number, and an operation knows the name of its instance.
export const openTask = (id) => get(instancePath(id)).then((found) => go(href(`/tasks/${found.instance}`, { view: "all" })));

// What a running step has said so far: how far it is, and the end of what it sends. The journal has none of it.
export const Said = ({ of }) => html`${of.total > 0 && html`<svg class="progress" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=${`${figure(of.done)} of ${figure(of.total)}`}><rect class="ground" width="100" height="10" /><rect class="done" width=${(100 * of.done) / of.total} height="10" /></svg>`}
  ${of.done !== undefined && html`<p>${figure(of.done)}${of.total ? ` of ${figure(of.total)}` : ""}${of.note && html` <span class="muted">${visible(of.note)}</span>`}</p>`}${of.text && html`<pre class="json said-so-far">${visible(of.text)}</pre>`}`;

// The operation at a location, as the drawing shows it: none if nothing was asked for there yet.
export const rowAt = (list, location) => rows(tree(list), { turned: new Set(), selected: location }).find((row) => row.location === location && !row.scope);

// `node(location)`: what a report tells of it besides.
export function Chosen({ row, location = row.location, show, act, heard, node = () => null }) {
  const part = node(location); // of a drawing, which may rest while its last run has ended
  return html`<aside class="sheet card" aria-label="Selected operation"><header><h3>${visible(location)}</h3><span class="end"><${Copy} text=${location} label="Copy the location" /><button class="copy" type="button" aria-label="Close" title="Close: Esc" data-key="Escape" onClick=${() => set({ at: "" })}><${Icon} name="close" /></button></span></header>
  ${part}${row ? html`<${Told} row=${row} show=${show} act=${act} heard=${heard} run=${Boolean(part)} />` : html`<div class="part"><p class="muted">No operation is recorded here.</p></div>`}</aside>`;
}

function Told({ row, show, act, heard, run }) {
  const last = row.attempts.at(-1);
  const said = last.closed ? null : heard?.[row.location];
  const can = (verb) => show.may[verb] === "";
  const entries = [...new Set(row.attempts.flatMap((each) => each.entries))];
  return html`<div class="part"><dl class="facts"><dt>${run ? "last run" : "status"}</dt><dd><${Status} of=${status(row)} /></dd><dt>kind</dt><dd>${last.kind}${last.what && html`, <code>${visible(last.what)}</code>`}</dd>
    ${last.kind === "step" && html`<dt>policy</dt><dd>${[last.once ? "may not be repeated" : "may be repeated after a crash", last.timeout === null ? "" : `timeout ${span(last.timeout * 1000)}`, last.deliveries > 1 ? `delivered ${last.deliveries} times` : ""].filter(Boolean).join(", ")}</dd>`}
    ${last.key && html`<dt>key</dt><dd class="keyed"><code title=${last.key}>${last.key.slice(0, 12)}…</code><${Copy} text=${last.key} label="Copy the idempotency key" /></dd>`}
    ${last.due && html`<dt>due</dt><dd>${moment(last.due)}</dd>`}<dt>entries</dt><dd class="mono">${entries.slice(0, 30).map((each, n) => html`${n > 0 && ", "}<button class="plain link" type="button" title="Go to this entry" onClick=${() => set({ entry: each })}>${each}</button>`)}${entries.length > 30 && "…"}</dd>
    ${last.child && html`<dt>child</dt><dd>${last.kind === "task" ? html`<button class="plain link" type="button" onClick=${() => openTask(last.child)}>Open the task</button>` : html`<${Id} id=${last.child} />`}</dd>`}</dl></div>
  ${row.attempts.length > 1 && html`<div class="part"><h4>attempts</h4><table class="tries"><thead><tr><th>no</th><th>receipt</th><th class="num">took</th></tr></thead><tbody>${row.attempts.map((each) => html`<tr><td>${each.attempt}</td><td><${Status} of=${each.status} /></td><td class="num">${each.closed_at ? span(Date.parse(each.closed_at) - Date.parse(each.opened_at)) : ""}</td></tr>`)}</tbody></table></div>`}
  ${(last.kind === "step" || last.kind === "child") && html`<div class="part"><h4>input</h4>${last.input === null || last.input === undefined ? html`<p class="muted">Not recorded: the step runs in the process of its engine, and is called again with the same arguments.</p>` : html`<${Json} value=${last.input} />`}</div>`}
  ${said && html`<div class="part"><h4>what it says</h4><${Said} of=${said} /></div>`}
  ${last.error && html`<div class="part"><h4>error</h4><p><b class="strong">${last.error.type}</b> ${visible(last.error.message)}</p>${last.error.traceback && html`<details><summary>traceback</summary><pre class="json">${visible(last.error.traceback)}</pre></details>`}</div>`}
  ${last.status === "ok" && last.kind !== "timer" && html`<div class="part"><h4>output</h4><${Json} value=${last.value} /></div>`}
  <div class="part row-btns">${can("settle") && html`<button class="btn first" type="button" onClick=${() => act("settle", { location: row.location })}><${Icon} name="settle" />Settle…</button>`}
    ${can("wake") && last.kind === "timer" && !last.closed && html`<button class="btn" type="button" onClick=${() => act("wake", { location: row.location })}><${Icon} name="wake" />Wake</button>`}
    ${can("rewind") && html`<button class="btn" type="button" onClick=${() => act("rewind", { location: row.location })}><${Icon} name="rewind" />Rewind…</button>`}
    ${can("fork") && html`<button class="btn" type="button" onClick=${() => act("fork", { location: row.location })}><${Icon} name="fork" />Fork…</button>`}</div>`;
}
