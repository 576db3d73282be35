// Bulks: one verb on many instances, how far each is, and what was refused.
import { html, useEffect, useState } from "../lib/html.js";
import { get, part, send } from "../lib/api.js";
import { ago, command, figure, moment, visible } from "../lib/format.js";
import { href, set } from "../lib/router.js";
import { Bones, Cmd, Empty, Icon, Id, Status, Trouble, useLoaded, useTick } from "../lib/parts.js";
import { Progress, told } from "../lib/bulk.js";
import { Dialog } from "../lib/dialog.js";
import { calm, watch } from "../lib/stream.js";

const LIVE = new Set(["running", "waiting"]);

export default function Bulks({ query, setLive }) {
  const { value, error, again } = useLoaded(() => get("/bulk"), []);
  const [ends, setEnds] = useState(null);
  const running = (value?.items ?? []).filter((each) => LIVE.has(each.status)).map((each) => `bulk:${each.id}`);
  useEffect(() => watch(["list:workflow:perdure.bulk", ...running], calm(again, 500), setLive), [running.join()]);
  useTick(10000);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  const chosen = value.items.find((each) => each.id === query.get("id"));
  return html`<div class="inst-head"><nav class="path" aria-label="Where"><a href=${href("/instances")}>Instances</a></nav><div class="head"><h1>Bulks</h1><span class="muted">${value.items.filter((each) => LIVE.has(each.status)).length || "none"} running now</span></div></div>
  ${value.items.length === 0 ? html`<div class="sheet"><${Empty} title="No bulk was started"><p class="second">Select instances in a list, or all that match its filter, and choose what is done to them. As a command:</p><${Cmd} text=${command("bulk", "start", "retry", "--where", "status:stuck workflow:order")} /><//></div>` : html`
  <div class="sheet scroll"><table class="ledger bulks"><thead><tr><th>status</th><th>verb</th><th>on</th><th class="wide-only">progress</th><th class="num">done</th><th class="num">refused</th><th class="wide-only">by</th><th class="num wide-only">started</th><th><span class="sr">open</span></th></tr></thead><tbody>
  ${value.items.map((each) => html`<tr key=${each.id} aria-selected=${each === chosen ? "true" : null}><td class="nowrap"><${Status} of=${each.status} /></td><td><a data-row href=${href("/bulk", { id: each.id })}>${told(each)}</a></td><td class="mono cut">${visible(each.where)}</td><td class="wide-only"><${Progress} of=${each} /></td><td class="num">${figure(each.done)} of ${figure(each.total)}</td><td class="num">${each.refused.length ? html`<span class="st-failed">${each.refused.length}</span>` : html`<span class="muted">0</span>`}</td><td class="wide-only">${visible(each.by)}</td><td class="num muted wide-only">${ago(each.started_at)}</td>
    <td class="num">${LIVE.has(each.status) && html`<button class="btn small risk" type="button" onClick=${() => setEnds(each)}><${Icon} name="cancel" />Stop…</button>`}</td></tr>`)}</tbody></table></div>`}
  ${chosen && html`<${One} of=${chosen} />`}
  ${ends && html`<${Dialog} title=${`Stop the bulk ${ends.id}`} says=${`What was done to ${figure(ends.done)} instances stays done. The other ${figure(ends.left)} are left alone.`} label="Stop it" risk=${true} cmd=${() => command("bulk", "cancel", ends.id)} request=${() => ["POST", `/bulk/${part(ends.id)}/-/cancel`, {}]}
    run=${() => send("POST", `/bulk/${part(ends.id)}/-/cancel`)} close=${() => { setEnds(null); again(); }} />`}`;
}

function One({ of }) {
  return html`<section class="sheet card" aria-label="One bulk"><header><h2>${told(of)}</h2><span class="end"><button class="copy" type="button" aria-label="Close" onClick=${() => set({ id: "" })}><${Icon} name="close" /></button></span></header>
    <div class="part"><${Progress} of=${of} /><dl class="facts"><dt>selection</dt><dd class="mono">${visible(of.where)}, counted ${moment(of.counted_at)}</dd><dt>rate</dt><dd>${of.rate} events a second; it stops after ${of.errors_max} refusals</dd>${of.reason && html`<dt>reason</dt><dd>${visible(of.reason)}</dd>`}${of.error && html`<dt>ended</dt><dd class="st-failed">${visible(of.error)}</dd>`}<dt>instance</dt><dd><${Id} id=${`perdure.bulk/${of.id}`} /></dd></dl></div>
    ${of.refused.length > 0 && html`<div class="part"><h4>refused</h4><table class="ledger flush"><tbody>${of.refused.slice(0, 200).map((each) => html`<tr><td class="cut"><${Id} id=${each.id} /></td><td class="mono">${each.code}</td><td>${visible(each.text)}</td></tr>`)}</tbody></table></div>`}
    <div class="part"><${Cmd} text=${command("bulk", "show", of.id)} /></div></section>`;
}
