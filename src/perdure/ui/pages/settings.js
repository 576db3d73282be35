// Settings: my rights, keys, grants and the audit.
import { html, useState } from "../lib/html.js";
import { get, send } from "../lib/api.js";
import { ago, json, moment, visible } from "../lib/format.js";
import { Bones, Cmd, Trouble, useLoaded } from "../lib/parts.js";
import { Dialog } from "../lib/dialog.js";

const ROLES = ["viewer", "operator", "author", "admin"];

export default function Settings({ me }) {
  const admin = me.grants.some((each) => each.role === "admin");
  return html`<div class="head"><h1>Settings</h1></div><div class="stack far"><section class="sect"><div class="sect-head"><h2>You</h2></div>
    <dl class="facts"><dt>name</dt><dd class="mono">${me.id}</dd><dt>login</dt><dd>by ${me.via}</dd><dt>grants</dt><dd>${me.grants.map((each) => html`<div>${each.role} on <code>${each.workflows.join(", ")}</code>${each.values ? "" : ", without values"}</div>`)}</dd>${me.roles.length > 0 && html`<dt>task roles</dt><dd>${me.roles.join(", ")}</dd>`}</dl></section>
  ${admin && html`<${Admin} />`}</div>`;
}

function Admin() {
  const { value, error, again } = useLoaded(async () => {
    const [keys, grants, audit] = await Promise.all([get("/access/keys"), get("/access/grants"), get("/audit")]);
    return { keys: keys.items, people: Object.entries(grants.people), audit: audit.items };
  }, []);
  const [dialog, setDialog] = useState(null);
  const [made, setMade] = useState(null);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const close = () => { setDialog(null); again(); };
  const words = (text) => text.split(/[\s,]+/).filter(Boolean);
  return html`<section class="sect"><div class="sect-head"><h2>Keys</h2><span class="end"><button class="btn" type="button" onClick=${() => setDialog("key")}>Make a key…</button></span></div>
    ${made && html`<div class="note"><p>This key is shown once:</p><${Cmd} text=${made} /></div>`}
    ${value.keys.length === 0 ? html`<p class="muted">No key was made. Programs use keys: <code>Authorization: Bearer pdk_…</code></p>` : html`<div class="scroll"><table class="ledger flush"><thead><tr><th>key</th><th>actor</th><th>grants</th><th>made by</th><th class="num">used</th><th class="num">ends</th><th></th></tr></thead><tbody>
    ${value.keys.map((each) => html`<tr><td class="mono">${each.id}</td><td>${visible(each.actor)}</td><td>${each.executor ? `executor ${each.executor}` : each.grants.map((grant) => `${grant.role} on ${grant.workflows.join(", ")}`).join("; ") || each.roles.join(", ")}</td><td>${each.made_by}</td><td class="num">${each.used_at ? ago(each.used_at) : "never"}</td><td class="num">${each.revoked_at ? "revoked" : each.expires_at ? moment(each.expires_at) : "never"}</td>
      <td class="num">${!each.revoked_at && html`<button class="btn small risk" type="button" onClick=${() => send("DELETE", `/access/keys/${each.id}`).then(again)}>Revoke</button>`}</td></tr>`)}</tbody></table></div>`}</section>
  <section class="sect"><div class="sect-head"><h2>Grants</h2><span class="end"><button class="btn" type="button" onClick=${() => setDialog("grant")}>Grant…</button></span></div>
    ${value.people.length === 0 ? html`<p class="muted">No grant was made. A login by a link of the owner is one of an admin.</p>` : html`<table class="ledger flush"><thead><tr><th>actor</th><th>grants</th><th>task roles</th></tr></thead><tbody>${value.people.map(([name, person]) => html`<tr><td>${visible(name)}</td><td>${person.grants.map((grant) => `${grant.role} on ${grant.workflows.join(", ")}`).join("; ")}</td><td>${person.roles.join(", ")}</td></tr>`)}</tbody></table>`}</section>
  <section class="sect"><div class="sect-head"><h2>Audit</h2></div><div class="scroll"><table class="ledger flush"><thead><tr><th class="num">entry</th><th>when</th><th>who</th><th>what</th><th>details</th></tr></thead><tbody>
    ${value.audit.slice(0, 100).map((each) => html`<tr><td class="num">${each.number}</td><td class="nowrap">${moment(each.at)}</td><td>${visible(each.by)}</td><td>${visible(each.what)}</td><td class="cut muted">${visible(json(each.details))}</td></tr>`)}</tbody></table></div></section>
  ${dialog === "key" && html`<${Dialog} title="Make a key" label="Make it" says="The key is shown once, kept as a hash, and ends after 90 days." close=${close} cmd=${(g) => `curl -X POST …/api/v1/access/keys -d '{"actor": "${g.actor}"}'`}
    fields=${[{ name: "actor", label: "Actor" }, { name: "role", label: "Role", options: ROLES, value: "viewer" }, { name: "workflows", label: "Workflows", value: "*", help: "Patterns, such as shop-*" }, { name: "roles", label: "Task roles", optional: true }]}
    run=${async (g) => setMade((await send("POST", "/access/keys", { actor: g.actor, grants: [{ role: g.role, workflows: words(g.workflows) }], roles: words(g.roles) })).key)} />`}
  ${dialog === "grant" && html`<${Dialog} title="Grant rights" label="Grant" says="They hold from now on, instead of what this actor had." close=${close} cmd=${(g) => `curl -X PUT …/api/v1/access/grants/${g.actor}`}
    fields=${[{ name: "actor", label: "Actor" }, { name: "role", label: "Role", options: ROLES, value: "viewer" }, { name: "workflows", label: "Workflows", value: "*" }, { name: "roles", label: "Task roles", optional: true }]}
    run=${(g) => send("PUT", `/access/grants/${encodeURIComponent(g.actor)}`, { grants: [{ role: g.role, workflows: words(g.workflows) }], roles: words(g.roles) })} />`}`;
}
