// Small charts: starts, ends and failures over a day, each as a strip of steps; starts by hour as bars.
import { html } from "./html.js";
import { clock, figure } from "./format.js";
import { href } from "./router.js";

const HEIGHT = 44;

function Strip({ name, values, minutes, bad, marks, list, over }) {
  const most = Math.max(1, ...values);
  const per = (n) => { const rate = n / minutes; return rate === 0 ? "0" : rate < 10 ? rate.toFixed(1) : figure(Math.round(rate)); };
  const y = (n) => (HEIGHT - 2 - (n / most) * (HEIGHT - 6)).toFixed(1);
  const steps = values.map((n, at) => `${at ? "V" : "M0 "}${y(n)}H${at + 1}`).join("");
  const total = values.reduce((a, b) => a + b, 0);
  return html`<div class="strip-name"><b class="strong">${total ? html`<a class="fig" href=${href("/instances", { q: list })} title=${`${figure(total)} in all`}>${name}</a>` : name}</b><span class="muted">max ${per(Math.max(0, ...values))}</span></div>
    <svg class=${`strip${bad ? " fail" : ""}`} viewBox=${`0 0 ${values.length} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${name}, ${over}: ${total} in all`}>
      ${marks.map(([, x]) => html`<path class="grid" d=${`M${((values.length * x) / 100).toFixed(1)} 0V${HEIGHT}`} />`)}<path class="area" d=${`${steps}V${HEIGHT}H0z`} /><path class="edge" d=${steps} /></svg>
    <div class="strip-now"><b class="strong" title=${`${figure(total)} in all`}>${per(values.at(-1))}</b><span class="muted">now</span></div>`;
}

const LEAST = 6e5; // ten minutes

// The whole sixths of a day, of six hours or of one that are told below the strips, and how far each is from the left.
function sixths(length) {
  const begin = Date.now() - length;
  const found = [];
  for (let at = Math.ceil(begin / LEAST) * LEAST; at < Date.now(); at += LEAST) {
    const [hours, minutes] = clock(at).split(":").map(Number);
    if ((hours * 60 + minutes) % (length / 6 / 6e4) === 0) found.push([clock(at).slice(0, 5), ((at - begin) / length) * 100]);
  }
  return found;
}

export function Strips({ of, lists }) {
  const minutes = of.seconds / 60;
  const length = of.seconds * of.starts.length * 1000;
  const marks = sixths(length);
  const over = length > 36e5 ? `last ${length / 36e5} hours` : "last hour"; // a young database has no day yet
  return html`<section class="sect" aria-labelledby="h-rates"><div class="sect-head"><h2 id="h-rates">Per minute, ${over}</h2>${of.partial && html`<span class="muted">there are more than were counted</span>`}</div>
    <div class="strips">${["starts", "ends", "failures"].map((name) => html`<${Strip} name=${name} values=${of[name]} minutes=${minutes} bad=${name === "failures"} marks=${marks} list=${lists[name]} over=${over} />`)}
    <svg class="axis" aria-hidden="true">${marks.filter(([, x]) => x > 6 && x < 82).map(([text, x]) => html`<text x=${`${x.toFixed(1)}%`} y="12" text-anchor="middle">${text}</text>`)}<text x="100%" y="12" text-anchor="end">now</text></svg></div></section>`;
}

// A bar an hour; the last one is not over yet.
export function Spark({ name, values = [] }) {
  const total = values.reduce((a, b) => a + b, 0);
  if (!total) return html`<span class="spark-none" aria-label=${`${name}: no start in the last day`} role="img"></span>`;
  const most = Math.max(...values);
  return html`<svg class="spark" viewBox=${`0 0 ${values.length * 5} 18`} preserveAspectRatio="none" role="img" aria-label=${`${name}: ${figure(total)} starts in the last day, ${figure(most)} in one hour at most`}><title>${figure(total)} starts, at most ${figure(most)} in one hour</title>
    ${values.map((n, at) => { const height = n ? Math.max(1.5, (n / most) * 17) : 0.5; return html`<rect class=${at === values.length - 1 ? "last" : n ? null : "none"} x=${at * 5} width="4" y=${(18 - height).toFixed(1)} height=${height.toFixed(1)} />`; })}</svg>`;
}
