// Two instances side by side: where their histories differ, the first difference first.
import { html, useState } from "../lib/html.js";
import { get, part } from "../lib/api.js";
import { command, json, visible } from "../lib/format.js";
import { href, set } from "../lib/router.js";
import { Bones, Cmd, Empty, Id, Status, Trouble, useLoaded } from "../lib/parts.js";

export default function Compare({ query }) {
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""];
  const [one, setOne] = useState(a);
  const [other, setOther] = useState(b);
  const { value, error, again } = useLoaded(() => (a && b ? get("/instances/diff", { a, b }) : Promise.resolve(null)), [a, b]);
  return html`<div class="head"><h1>Compare</h1>${value && html`<span class="muted">${value.same ? "no difference" : `${value.differences.length} differences`}</span>`}</div>
  <form class="versus" onSubmit=${(event) => { event.preventDefault(); set({ a: one, b: other }); }}><input class="field mono" aria-label="One instance" placeholder="order/o-17" value=${one} onInput=${(e) => setOne(e.target.value)} /><input class="field mono" aria-label="The other instance" placeholder="order/o-18" value=${other} onInput=${(e) => setOther(e.target.value)} /><button class="btn first" type="submit">Compare</button></form>
  ${error && html`<${Trouble} error=${error} again=${again} />`}
  ${!a || !b ? html`<div class="sheet"><${Empty} title="Name two instances of one workflow"><p class="second">Their operations are aligned by location and attempt, and the first difference stands first.</p><${Cmd} text="perdure diff order/o-17 order/o-18" /><//></div>` : value === undefined && !error ? html`<${Bones} />` : value && html`<${Differences} value=${value} />`}`;
}

function Differences({ value }) {
  if (value.same) return html`<div class="sheet"><${Empty} title="They are the same"><p class="second">Every place of both histories has the same outcome.</p><//></div>`;
  return html`<div class="sheet scroll"><table class="ledger compare"><thead><tr><th>place</th><th><${Id} id=${value.a.id} /></th><th><${Id} id=${value.b.id} /></th></tr></thead><tbody>
    <tr><td class="muted">status</td><td><${Status} of=${value.a.status} /></td><td><${Status} of=${value.b.status} /></td></tr>
    <tr><td class="muted">entries</td><td>${value.a.entries}</td><td>${value.b.entries}</td></tr>
    ${value.differences.map((each, n) => html`<tr class=${n === 0 ? "first-one" : null} key=${`${each.what}${each.location}${each.attempt}`}><td>${n === 0 && html`<span class="label">the first difference</span>`}${each.what} <code>${visible(each.location)}</code>${each.attempt > 1 && html` <span class="muted">attempt ${each.attempt}</span>`}</td><${Side} of=${each.a} id=${value.a.id} /><${Side} of=${each.b} id=${value.b.id} /></tr>`)}</tbody></table></div><${Cmd} text=${command("diff", value.a.id, value.b.id)} />`;
}

function Side({ of, id }) {
  if (of === null) return html`<td class="muted">nothing</td>`;
  return html`<td><span class="side"><a class="mono" title="This entry" href=${href(`/instances/${part(id)}`, { entry: of.entry })}>${of.entry}</a>${of.status && html`<${Status} of=${of.status} />`}${of.error ? html`<span class="st-failed">${visible(of.error.type ?? "")} ${visible(of.error.message ?? "")}</span>` : of.value === undefined || of.value === null ? "" : html`<code>${visible(json(of.value)).slice(0, 300)}${json(of.value).length > 300 ? "…" : ""}</code>`}</span></td>`;
}
