// Why an instance does not move: the short form of a row, and names set as code in a sentence.
import { html } from "./html.js";
import { visible } from "./format.js";

const KINDS = { message: "a message", timer: "the timer", queue: "a worker of", child: "its child", effect: "the effect", event: "the event" };

// "message ship, timer nap" as "for a message `ship`, the timer `nap`". `noun`: the dialect of the workflow.
export function Reason({ of, noun = "" }) {
  const { reason, status } = of;
  if (!reason) return status === "waiting" && noun === "cell" ? html`<span class="muted">for its next event</span>` : null;
  if (status === "stuck" || status === "failed") {
    const [type, ...place] = reason.split(" at ");
    const at = place.join(" at ");
    const place_ = html`<code>${visible(at)}</code>`;
    if (type === "OutcomeUnknown" && at) return html`the outcome of ${place_} is unknown`;
    return at ? html`${visible(type)} at ${place_}` : visible(type);
  }
  const parts = reason.split(", ").map((text) => awaited(text, noun));
  return html`for ${parts.map((part, n) => html`${n > 0 && ", "}${part}`)}`;
}

function awaited(text, noun) {
  const [kind, ...rest] = text.split(" ");
  const name = rest.join(" ");
  if (kind === "child" && name === "perdure.task") return "a person's task";
  if (kind === "message" && name === "ctx" && noun === "playbook") return html`a change of <code>ctx</code>`;
  if (text === "paused") return "its resume: it is paused";
  if (!KINDS[kind]) return visible(text);
  if (kind !== "message") return html`${KINDS[kind]} <code>${visible(name)}</code>`;
  return html`a message ${name.split(" or ").map((each, n) => html`${n > 0 && " or "}<code>${visible(each)}</code>`)}`;
}

// What stands before a name in a sentence: only there it is one, so that a message `a` does not mark each article.
const BEFORE = "message|step|timer|at|task|child|queue|executor|workflow|or|version|gate|gate of|until|node|use|effect|runs,";
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// A sentence with these names as code.
export function Sentence({ text, names }) {
  const known = [...new Set(names.filter(Boolean))].sort((a, b) => b.length - a.length);
  if (!known.length) return visible(text);
  const pattern = new RegExp(`(?<=(?:^|[\\s(])(?:${BEFORE}) )'?(?:${known.map(escaped).join("|")})'?(?=[\\s,.;:()]|$)`, "gi");
  const found = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    found.push(visible(text.slice(at, match.index)), html`<code>${visible(match[0].replace(/^'|'$/g, ""))}</code>`);
    at = match.index + match[0].length;
  }
  return [...found, visible(text.slice(at))];
}
