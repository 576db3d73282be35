// Where a moment stands on the timeline: idle time is folded, a range may be zoomed, a chain of causes is critical.
const WIDE = 95; // percent; the rest is for the word at the end
const FOLDED = 6;
const IDLE_SHARE = 0.06;
const IDLE_LEAST = 5000;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5];

// Stretches in which no step runs and nothing is recorded, up to the last mark. Of a list they are found once: its rows are
// drawn at each turn of the wheel.
const known = new WeakMap();
function quiet(list) {
  const found = known.get(list);
  if (found) return found;
  const marks = [];
  const busy = [];
  for (const each of list) {
    marks.push(Date.parse(each.opened_at));
    if (each.closed_at) marks.push(Date.parse(each.closed_at));
    if (each.kind === "step") for (const part of each.parts) if (part.kind === "running") busy.push([Date.parse(part.begin), part.end ? Date.parse(part.end) : Infinity]);
  }
  marks.sort((a, b) => a - b);
  busy.sort((a, b) => a[0] - b[0]);
  const gaps = [];
  let n = 0;
  let covered = marks[0];
  const cover = (until) => { while (n < busy.length && busy[n][0] <= until) covered = Math.max(covered, busy[n++][1]); return covered; };
  for (let at = 1; at < marks.length; at++) if (marks[at] - marks[at - 1] >= IDLE_LEAST && cover(marks[at - 1]) <= marks[at - 1]) gaps.push([marks[at - 1], marks[at]]);
  const last = marks.at(-1);
  const made = { gaps, first: marks[0], last, rests: last !== undefined && cover(last) <= last };
  known.set(list, made);
  return made;
}

function idle(list, from, to) {
  const { gaps, first, last, rests } = quiet(list);
  const least = Math.max(IDLE_LEAST, (to - from) * IDLE_SHARE);
  const all = [...(first > from ? [[from, first]] : []), ...gaps, ...(rests && last < to ? [[last, to]] : [])];
  return all.filter(([a, b]) => b - a >= least && b <= to);
}

export function scale(list, from, to, { fold = true, zoom = [0, 100] } = {}) {
  let folds = fold ? idle(list, from, to).slice(0, 8) : [];
  let rest = to - from - folds.reduce((sum, [a, b]) => sum + b - a, 0);
  if (rest < 1) [folds, rest] = [[], to - from]; // nothing but idle time
  const share = (WIDE - folds.length * FOLDED) / Math.max(1, rest);
  const parts = [];
  let [at, x] = [from, 0];
  for (const [a, b] of [...folds, [to, to]]) {
    parts.push({ from: at, to: a, x0: x, x1: x += (a - at) * share });
    if (b > a) parts.push({ from: a, to: b, x0: x, x1: x += FOLDED, fold: true });
    at = b;
  }
  const [left, right] = zoom;
  const zoomed = (percent) => ((percent - left) / (right - left)) * 100;
  const place = (moment) => {
    const part = parts.find((each) => moment <= each.to) ?? parts.at(-1);
    const size = part.to - part.from;
    return zoomed(part.x0 + (size ? ((Math.min(moment, part.to) - part.from) / size) * (part.x1 - part.x0) : 0));
  };
  const shown = parts.map((each) => ({ ...each, x0: zoomed(each.x0), x1: zoomed(each.x1) })).filter((each) => each.x1 > 0 && each.x0 < 100);
  return { place, folds: shown.filter((each) => each.fold), ticks: ticks(shown, from, to), end: zoomed(WIDE) };
}

// Of a run of less than a minute ticks count from its begin; of a longer one they are times of the day.
function ticks(parts, from, to) {
  const found = [];
  const short = to - from < 6e4;
  for (const part of parts.filter((each) => !each.fold && each.x1 - each.x0 > 6)) {
    const long = (part.to - part.from) / ((part.x1 - part.x0) / 12);
    const step = STEPS.find((each) => each >= long) ?? STEPS.at(-1);
    const since = step < 1000 || short; // of a step below a second a time of the day says nothing
    const zone = since ? from : new Date(part.from).getTimezoneOffset() * 6e4;
    for (let at = Math.ceil((part.from - zone) / step) * step + zone; at < part.to; at += step) {
      const x = part.x0 + ((at - part.from) / (part.to - part.from)) * (part.x1 - part.x0);
      if (x > 1 && x < 99) found.push({ at, x, step, since });
    }
  }
  return found;
}

// From the last operation back to the start: each was opened by the entry that closed the one before it.
export function critical(list) {
  const closed = new Map(list.filter((each) => each.closed !== null).map((each) => [each.closed, each]));
  const open = list.filter((each) => each.closed === null);
  const found = new Set();
  let at = open.length ? open.at(-1) : list.reduce((last, each) => (!last || each.closed > last.closed ? each : last), null);
  while (at && !found.has(at)) {
    found.add(at);
    at = closed.get(at.opened);
  }
  return found;
}
