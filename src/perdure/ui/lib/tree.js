// The operations of an instance as a tree by location: scopes, branches, attempts in one row, loops folded.
const FOLD = 4; // so many rows of one loop are one row, until it is opened
const BACKOFF = /^backoff#\d+$/;

const base = (name) => name.replace(/([~&])\d+/g, "$1").replace(/#\d+(?=\/|$)/g, "");
const time = (text) => Date.parse(text);

export function tree(list) {
  const root = { path: "", name: "", kids: [], own: [], pauses: [] };
  const nodes = new Map([["", root]]);
  const at = (path) => {
    const known = nodes.get(path);
    if (known) return known;
    const cut = path.lastIndexOf("/");
    const node = { path, name: path.slice(cut + 1), kids: [], own: [], pauses: [] };
    nodes.set(path, node);
    at(cut < 0 ? "" : path.slice(0, cut)).kids.push(node);
    return node;
  };
  for (const each of list) {
    const cut = each.location.lastIndexOf("/");
    const above = BACKOFF.test(each.location.slice(cut + 1)) ? nodes.get(each.location.slice(0, Math.max(0, cut))) : null;
    if (above?.own.length) above.pauses.push(each); // the pause between two attempts is drawn between them
    else at(each.location).own.push(each);
  }
  return folded(squeezed(root));
}

// A scope with one place inside is one row with it.
function squeezed(node) {
  const kids = node.kids.map(squeezed);
  if (node.path && !node.own.length && kids.length === 1) return { ...kids[0], name: `${node.name}/${kids[0].name}` };
  return { ...node, kids };
}

function folded(node) {
  const groups = new Map();
  for (const kid of node.kids) {
    const name = base(kid.name);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(folded(kid));
  }
  const kids = [];
  for (const [name, group] of groups)
    if (group.length < FOLD) kids.push(...group);
    else kids.push({ path: `${node.path}/${name}…`, name: range(group[0].name, group.at(-1).name), loop: true, own: [], pauses: [], kids: group });
  if (groups.size > 1) kids.sort((a, b) => first(a) - first(b));
  return { ...node, kids };
}

// "~0/hold" to "~11/hold" is "~0…~11/hold"; "hold" to "hold#12" is "hold…#12".
function range(first, last) {
  const number = /([~&#])(\d+)(?!.*[~&#]\d)/;
  const end = last.match(number)?.[0] ?? last;
  return number.test(first) ? first.replace(number, (begin) => `${begin}…${end}`) : `${first}…${end}`;
}

const first = (node) => (node.own.length ? node.own[0].opened : first(node.kids[0]));

function inside(node, found = []) {
  for (const each of node.own) found.push(each);
  for (const kid of node.kids) inside(kid, found);
  return found;
}

const holds = (node, location) => node.kids.some((kid) => kid.path === location || holds(kid, location));

// The rows that are to be seen. `turned`: those that a person opened or closed. A scope is open, a loop is closed. Rows of
// a child, and of its children, have its id before their locations.
export function rows(node, { turned, selected = "", more = () => null, depth = 0, of = "" }, found = []) {
  for (const kid of node.kids) {
    const last = kid.own.at(-1);
    const below = more(last?.child);
    const location = of ? `${of}: ${kid.path}` : kid.path;
    const can = kid.kids.length > 0 || (last?.child && last.kind === "child");
    const open = can && ((turned.has(location) !== (!kid.loop && kid.kids.length > 0)) || (!of && selected !== "" && holds(kid, selected)));
    const all = kid.own.length ? kid.own : (kid.all ??= inside(kid));
    found.push({ location, name: kid.name, depth, attempts: all, pauses: kid.pauses, scope: !kid.own.length, loop: kid.loop, of: kid.kids.length, can, open, foreign: of });
    if (!open) continue;
    rows(kid, { turned, selected, more, depth: depth + 1, of }, found);
    if (below) rows(below, { turned, more, depth: depth + 1, of: last.child }, found);
  }
  return found;
}

export const begin = (row) => row.attempts.reduce((least, each) => Math.min(least, time(each.opened_at)), Infinity);
export function end(row, now) {
  if (row.pauses.some((each) => !each.closed_at)) return now;
  return row.attempts.reduce((most, each) => Math.max(most, each.closed_at ? time(each.closed_at) : now), 0);
}

const WORST = ["unknown", "running", "held", "waiting"];
export function status(row) {
  if (row.pauses.some((each) => !each.closed_at)) return "backing off";
  if (!row.scope) return row.attempts.at(-1).status;
  return WORST.find((word) => row.attempts.some((each) => each.status === word)) ?? "ok";
}
