// One verb on many instances: the dialog with its dry run, and how far a bulk is.
import { html } from "./html.js";
import { send } from "./api.js";
import { command, count, figure, visible } from "./format.js";
import { go, href } from "./router.js";
import { Dialog } from "./dialog.js";

export const VERBS = {
  retry: { label: "Retry…", icon: "retry", fields: [] },
  wake: { label: "Wake…", icon: "wake", fields: [] },
  send: { label: "Send…", icon: "send", fields: [{ name: "name", label: "Name of the message", dry: true }, { name: "body", label: "Body, as JSON", json: true, optional: true, value: "{}", dry: true }] },
  tag: { label: "Tag…", icon: "tag", fields: [{ name: "name", label: "Name of the tag", dry: true }, { name: "value", label: "Value", optional: true, help: "Empty removes the tag.", dry: true }] },
  cancel: { label: "Cancel…", icon: "cancel", risk: true, fields: [] },
};

const title = (verb) => verb[0].toUpperCase() + verb.slice(1);

function params(verb, given) {
  if (verb === "send") return { name: given.name, body: given.body?.trim() ? JSON.parse(given.body) : null };
  if (verb === "tag") return { name: given.name, value: given.value || null };
  return {};
}

const attempt = (made) => { try { return made(); } catch { return {}; } };

// `selection` is `{ q }` or `{ ids }`; `size` is how many the page counts.
export function BulkDialog({ verb, selection, size, close }) {
  const { fields, risk } = VERBS[verb];
  const body = (given, more) => ({ verb, selection, params: params(verb, given), reason: given.reason, rate: Number(given.rate) || 50, errors_max: Number(given.errors) || 20, ...more });
  const preview = async (given) => {
    if (fields.some((each) => !each.optional && !given[each.name])) return null;
    const found = await send("POST", "/bulk", body(given, { dry_run: true }));
    const refused = found.sample.filter((each) => each.refused);
    const kinds = new Map();
    for (const each of found.sample.filter((one) => !one.refused)) { const text = each.would.join("; "); kinds.set(text, [...(kinds.get(text) ?? []), each.id]); }
    const would = [`${title(verb)} ${count(found.count, "instance")}.`, ...[...kinds].slice(0, 5).map(([text, ids]) => `${ids[0]}${ids.length > 1 ? ` and ${ids.length - 1} more of the first ${found.sample.length}` : ""}: ${text}`)];
    if (refused.length) would.push(`${refused.length} of the first ${found.sample.length} would be refused: ${refused[0].refused}`);
    return { would, plan: found.plan };
  };
  const said = selection.q ? ["--where", selection.q] : selection.ids.flatMap((id) => ["--id", id]);
  const more = (given) => { const found = given.name || !fields.length ? attempt(() => params(verb, given)) : {}; return Object.keys(found).length ? ["--params", JSON.stringify(found)] : []; };
  return html`<${Dialog} title=${`${title(verb)} ${count(size, "instance")}`} label=${`${title(verb)} ${figure(size)}`} risk=${risk} count=${risk && typeof size === "number" ? size : null} close=${close} preview=${preview}
    fields=${[...fields, { name: "reason", label: "Reason", optional: true, help: "Recorded with each event, with your name." }, { name: "rate", label: "Events a second", value: "50", numeric: true, half: true }, { name: "errors", label: "Stop after so many refusals", value: "20", numeric: true, half: true }]}
    cmd=${(given) => command("bulk", "start", verb, ...said, ...more(given), ...(given.reason ? ["--reason", given.reason] : []))} request=${(given, plan) => ["POST", "/bulk", body(given, plan ? { plan } : {})]}
    moved=${async (problem) => [problem.message]}
    run=${async (given, plan) => { const made = await send("POST", "/bulk", body(given, plan ? { plan } : {})); go(href("/bulk", { id: made.id })); }} />`;
}

export const Progress = ({ of }) => {
  const part = (n) => `${((n / Math.max(1, of.total)) * 100).toFixed(2)}%`;
  const bad = of.refused.length;
  return html`<svg class="progress" role="img" aria-label=${`${of.done} of ${of.total} done, ${bad} refused`}><rect class="ground" width="100%" height="100%" /><rect class="done" width=${part(of.total - of.left)} height="100%" />${bad > 0 && html`<rect class="bad" width=${part(bad)} height="100%" />`}</svg>`;
};

// "tag shop: north", "send ship {}".
export const told = ({ verb, params = {} }) => {
  const { name, ...others } = params;
  if (verb === "tag") return visible(params.value === null ? `remove the tag ${name}` : `tag ${name}: ${params.value}`);
  return visible([verb, name, "body" in others ? JSON.stringify(others.body) : Object.keys(others).length ? JSON.stringify(others) : ""].filter(Boolean).join(" "));
};
