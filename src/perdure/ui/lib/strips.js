// Starts, ends and failures over a day, each as a strip of steps.
import { html } from "./html.js";
import { figure } from "./format.js";

const HEIGHT = 44;

function Strip({ name, values, minutes, bad }) {
  const most = Math.max(1, ...values);
  const per = (n) => { const rate = n / minutes; return rate === 0 ? "0" : rate < 10 ? rate.toFixed(1) : figure(Math.round(rate)); };
  const y = (n) => (HEIGHT - 2 - (n / most) * (HEIGHT - 6)).toFixed(1);
  const steps = values.map((n, at) => `${at ? "V" : "M0 "}${y(n)}H${at + 1}`).join("");
  const total = values.reduce((a, b) => a + b, 0);
  return html`<div class="strip-name"><b class="strong">${name}</b><span class="muted">max ${per(Math.max(0, ...values))}</span></div>
    <svg class=${`strip${bad ? " fail" : ""}`} viewBox=${`0 0 ${values.length} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${name} over the last day: ${total} in all`}>
      ${[1, 2, 3, 4, 5].map((n) => html`<path class="grid" d=${`M${(values.length / 6) * n} 0V${HEIGHT}`} />`)}<path class="area" d=${`${steps}V${HEIGHT}H0z`} /><path class="edge" d=${steps} /></svg>
    <div class="strip-now"><b class="strong">${figure(total)}</b><span class="muted">in all</span></div>`;
}

export function Strips({ of }) {
  const minutes = of.seconds / 60;
  const hour = (n) => { const at = new Date(Date.now() - (1 - n / 6) * of.seconds * of.starts.length * 1000); return `${String(at.getHours()).padStart(2, "0")}:00`; };
  return html`<section class="sect" aria-labelledby="h-rates"><div class="sect-head"><h2 id="h-rates">Per minute, last 24 hours</h2>${of.partial && html`<span class="muted">there are more than were counted</span>`}</div>
    <div class="strips"><${Strip} name="starts" values=${of.starts} minutes=${minutes} /><${Strip} name="ends" values=${of.ends} minutes=${minutes} /><${Strip} name="failures" values=${of.failures} minutes=${minutes} bad=${true} />
    <div class="axis">${[0, 2, 4].map((n) => html`<span>${hour(n)}</span>`)}<span>now</span></div></div></section>`;
}
