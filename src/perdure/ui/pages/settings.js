// Settings: what this browser keeps, my rights, keys, grants and the audit.
import { html, useState } from "../lib/html.js";
import { get, part, root, send } from "../lib/api.js";
import { ago, command, count, json, keepZone, moment, visible, zone } from "../lib/format.js";
import { Bones, Cmd, Empty, Shape, Trouble, useLoaded } from "../lib/parts.js";
import { Dialog } from "../lib/dialog.js";
import { choose, density, keepDensity, theme } from "../lib/theme.js";
import { go, set } from "../lib/router.js";

const ROLES = ["viewer", "operator", "author", "admin"];
const words = (text) => text.split(/[\s,]+/).filter(Boolean);
const grantsOf = (given) => [{ role: given.role, workflows: words(given.workflows), values: given.values === "yes" }];
const rule = (given) => `${given.role} ${words(given.workflows).join(",")}${given.values === "yes" ? "" : " no-values"}`;
const told = (grant) => `${grant.role} on ${grant.workflows.join(", ")}${grant.values === false ? ", without values" : ""}`;
const GRANTED = [{ name: "actor", label: "Actor" }, { name: "role", label: "Role", options: ROLES, value: "viewer" }, { name: "workflows", label: "Workflows", value: "*", help: "Patterns, such as shop-*" }, { name: "values", label: "Sees recorded values", options: ["yes", "no"], value: "yes" }, { name: "roles", label: "Task roles", optional: true }];

// What an actor has now, as the fields of the dialog: the first of its grants.
const grantedNow = (of, field) => (!of ? field.value : { actor: of.name, role: of.grants[0]?.role ?? field.value, workflows: of.grants[0]?.workflows.join(", ") ?? field.value, values: of.grants[0]?.values === false ? "no" : "yes", roles: of.roles.join(", ") }[field.name]);

export default function Settings({ me, query }) {
  const admin = me.grants.some((each) => each.role === "admin");
  const again = () => go(location.pathname + location.search, { replace: true });
  const seg = (name, options, now, keep) => html`<dt>${name}</dt><dd><span class="seg" role="group" aria-label=${name}>${options.map(([value, label]) => html`<button type="button" aria-pressed=${now === value} onClick=${() => { keep(value); again(); }}>${label}</button>`)}</span></dd>`;
  return html`<div class="head"><h1>Settings</h1></div><div class="stack far"><div class="cols two"><section class="sect"><div class="sect-head"><h2>You</h2></div>
    <dl class="facts"><dt>name</dt><dd class="mono">${me.id}</dd><dt>login</dt><dd>by ${me.via}</dd><dt>grants</dt><dd>${me.grants.map((each) => html`<div>${told(each)}</div>`)}</dd>${me.roles.length > 0 && html`<dt>task roles</dt><dd>${me.roles.join(", ")}</dd>`}</dl></section>
  <section class="sect"><div class="sect-head"><h2>This browser</h2></div><dl class="facts prefer">${seg("theme", [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]], theme(), choose)}${seg("times", [["local", "Of this place"], ["utc", "UTC"]], zone(), keepZone)}${seg("rows", [["compact", "Compact"], ["roomy", "Roomy"]], density(), keepDensity)}</dl></section></div>
  <${Rights} me=${me} />
  ${admin && html`<${Admin} query=${query} me=${me} />`}</div>`;
}

// What this login may do, verb by verb, and why not the rest.
function Rights({ me }) {
  const { value, error, again } = useLoaded(() => get("/verbs").then((found) => found.items), []);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : null;
  const [may, not] = [value.filter((each) => each.allowed), value.filter((each) => !each.allowed)];
  const why = new Map();
  for (const each of not) why.set(each.why, [...(why.get(each.why) ?? []), each.name]);
  return html`<section class="sect"><div class="sect-head"><h2>What you may do</h2><span class="muted">${may.length} of ${count(value.length, "verb")}${me.read_only ? "; this server is read-only" : ""}</span></div>
    ${not.length === 0 ? html`<p class="st st-completed ok-line"><${Shape} name="completed" />Every verb, on the workflows of your grants.</p>` : html`<dl class="facts rights">${[...why].map(([text, names]) => html`<dt>not ${count(names.length, "verb")}</dt><dd><details><summary>${visible(text || "not for you")}</summary><code>${names.join(", ")}</code></details></dd>`)}</dl>`}</section>`;
}

// The details of an entry in words: grants as they stand in the table.
const said = (details) => Object.entries(details ?? {}).map(([name, one]) => (one?.grants ? [...one.grants.map(told), ...(one.roles?.length ? [`task roles ${one.roles.join(", ")}`] : [])].join("; ") : name === "grants" && Array.isArray(one) ? one.map(told).join("; ") : `${name} ${one !== null && typeof one === "object" ? json(one) : one}`)).join(", ");

const AUDITED = 200; // rows that are shown

function Admin({ query, me }) {
  const { value, error, again } = useLoaded(async () => {
    const [keys, grants, audit] = await Promise.all([get("/access/keys"), get("/access/grants"), get("/audit")]);
    return { keys: keys.items, people: Object.entries(grants.people), audit: audit.items };
  }, []);
  const [dialog, setDialog] = useState(null);
  const [made, setMade] = useState(null);
  const [link, setLink] = useState(null);
  const [find, what, who] = ["find", "what", "who"].map((each) => query.get(each) ?? "");
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const close = () => { setDialog(null); again(); };
  const key = (given) => ["POST", "/access/keys", { actor: given.actor, grants: grantsOf(given), roles: words(given.roles), days: Number(given.days) || 90 }];
  const audit = value.audit.filter((each) => (!find || `${each.by} ${each.what} ${json(each.details)}`.toLowerCase().includes(find.toLowerCase())) && (!what || each.what === what) && (!who || each.by === who));
  const choice = (name, now, all) => html`<label class="st">${name} <select class="field" value=${now} onChange=${(event) => set({ [name]: event.target.value })}><option value="">all</option>${[...new Set(all)].sort().map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`;
  return html`<section class="sect"><div class="sect-head"><h2>Keys</h2><span class="muted">for programs</span><span class="end"><button class="btn small" type="button" onClick=${() => setDialog({ verb: "key" })}>Make a key…</button></span></div>
    ${made && html`<div class="note made" role="status"><div><p><b class="strong">This key is shown once.</b> Send it as <code>Authorization: Bearer</code>:</p><${Cmd} text=${made} /></div></div>`}
    ${value.keys.length === 0 ? html`<p class="muted">No key was made. Programs use keys: <code>Authorization: Bearer pdk_…</code></p>` : html`<div class="scroll"><table class="ledger flush"><thead><tr><th>key</th><th>actor</th><th>grants</th><th>made by</th><th class="num">used</th><th class="num">ends</th><th><span class="sr">revoke</span></th></tr></thead><tbody>
    ${value.keys.map((each) => html`<tr><td class="mono">${each.id}</td><td>${visible(each.actor)}</td><td>${each.executor ? `executor ${each.executor}` : each.grants.map(told).join("; ") || each.roles.join(", ")}</td><td>${each.made_by}</td><td class="num">${each.used_at ? `${ago(each.used_at)} ago` : "never"}</td><td class="num">${each.revoked_at ? html`<span class="st-failed">revoked</span>` : each.expires_at ? moment(each.expires_at) : "never"}</td>
      <td class="num">${!each.revoked_at && html`<button class="btn small risk" type="button" onClick=${() => setDialog({ verb: "revoke", key: each })}>Revoke…</button>`}</td></tr>`)}</tbody></table></div>`}</section>
  <section class="sect"><div class="sect-head"><h2>Grants</h2><span class="muted">for people</span><span class="end"><button class="btn small" type="button" onClick=${() => setDialog({ verb: "link" })}>Make a login link…</button><button class="btn small" type="button" onClick=${() => setDialog({ verb: "grant" })}>Grant…</button></span></div>
    ${link && html`<div class="note made" role="status"><div><p><b class="strong">This link is shown once.</b> It logs ${visible(link.actor)} in, within ten minutes, one time:</p><${Cmd} text=${link.url} /></div></div>`}
    ${value.people.length === 0 ? html`<p class="muted">No grant was made. A login by a link of the owner is one of an admin.</p>` : html`<div class="scroll"><table class="ledger flush"><thead><tr><th>actor</th><th>grants</th><th>task roles</th><th><span class="sr">change</span></th></tr></thead><tbody>${value.people.map(([name, person]) => html`<tr><td>${visible(name)}</td><td>${person.grants.map(told).join("; ") || html`<span class="muted">none</span>`}</td><td>${person.roles.join(", ")}</td><td class="num"><button class="btn small" type="button" onClick=${() => setDialog({ verb: "grant", of: { name, ...person } })}>Change…</button></td></tr>`)}</tbody></table></div>`}</section>
  <section class="sect"><div class="sect-head"><h2>Audit</h2><span class="muted">${audit.length} of ${value.audit.length}</span><span class="end audit-bar">${choice("who", who, value.audit.map((each) => each.by))}${choice("what", what, value.audit.map((each) => each.what))}<input class="field" type="search" data-filter aria-label="Find in the audit" placeholder="any text" value=${find} onInput=${(event) => set({ find: event.target.value })} /></span></div>
    ${audit.length === 0 ? html`<div class="sheet"><${Empty} title="No entry is like this"><p class="second">Logins, keys, grants, exports and denied writes stand here.</p><//></div>` : html`<div class="scroll"><table class="ledger flush audit"><thead><tr><th class="num">entry</th><th>when</th><th>who</th><th>what</th><th>details</th></tr></thead><tbody>
    ${audit.slice(0, AUDITED).map((each) => html`<tr><td class="num">${each.number}</td><td class="nowrap">${moment(each.at)}</td><td class="nowrap">${visible(each.by)}</td><td class="nowrap">${each.what.startsWith("denied") ? html`<span class="st st-failed"><${Shape} name="failed" />${visible(each.what)}</span>` : visible(each.what)}</td><td class="cut muted" title=${json(each.details)}>${visible(said(each.details))}</td></tr>`)}</tbody></table></div>${audit.length > AUDITED && html`<p class="muted">${count(audit.length - AUDITED, "older entry").replace("entrys", "entries")}: narrow the filter.</p>`}`}</section>
  ${dialog?.verb === "key" && html`<${Dialog} title="Make a key" label="Make it" says="The key is shown once and kept as a hash. It has never more rights than you have." close=${close}
    fields=${[...GRANTED, { name: "days", label: "It ends after so many days", value: "90", numeric: true }]} cmd=${(given) => command("access", "key", given.actor || "ACTOR", "--grant", rule(given), ...words(given.roles).flatMap((each) => ["--role", each]), "--days", given.days)} request=${key}
    run=${async (given) => setMade((await send(...key(given))).key)} />`}
  ${dialog?.verb === "revoke" && html`<${Dialog} title=${`Revoke the key ${dialog.key.id}`} label="Revoke it" risk=${true} says=${`${dialog.key.actor} is a stranger from now on. This cannot be taken back.`} close=${close} cmd=${() => command("access", "revoke", dialog.key.id)} request=${() => ["DELETE", `/access/keys/${part(dialog.key.id)}`]} />`}
  ${dialog?.verb === "link" && html`<${Dialog} title="Make a login link" label="Make it" says="Who opens it is this actor, with the grants that it has." close=${close} fields=${[{ name: "actor", label: "Actor", suggest: value.people.map(([name]) => name) }]} cmd=${(given) => command("access", "link", "--actor", given.actor || "ACTOR", "--url", location.origin + root)} request=${(given) => ["POST", "/access/link", { actor: given.actor }]}
    run=${async (given) => setLink({ actor: given.actor, url: `${location.origin}${root}${(await send("POST", "/access/link", { actor: given.actor })).path}` })} />`}
  ${dialog?.verb === "grant" && html`<${Dialog} title="Grant rights" label="Grant" says="They hold from now on, instead of what this actor had." close=${close} fields=${GRANTED.map((each) => ({ ...each, value: grantedNow(dialog.of, each) }))} cmd=${(given) => command("access", "grant", given.actor || "ACTOR", "--grant", rule(given), ...words(given.roles).flatMap((each) => ["--role", each]))}
    request=${(given) => ["PUT", `/access/grants/${part(given.actor || "ACTOR")}`, { grants: grantsOf(given), roles: words(given.roles) }]} />`}`;
}
