// The world of cells: cells by definition, and what an event from outside led to.
import { html, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { ago, figure, moment, visible } from "../lib/format.js";
import { href, set } from "../lib/router.js";
import { Bones, Cmd, Empty, Id, Status, Trouble, useLoaded } from "../lib/parts.js";

export default function World({ query }) {
  const event = query.get("event") ?? "";
  const [text, setText] = useState(event);
  const { value, error, again } = useLoaded(async () => {
    const cells = (await get("/workflows")).items.filter((each) => each.noun === "cell");
    const lists = await Promise.all(cells.map((each) => get("/instances", { workflow: each.name, limit: 20 })));
    return cells.map((each, n) => ({ ...each, items: lists[n].items }));
  }, []);
  const trace = useLoaded(() => (event ? get(`/trace/${encodeURIComponent(event)}`) : Promise.resolve(null)), [event]);
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Bones} />`;
  return html`<div class="head"><h1>World</h1><span class="muted">${value.length} definitions of cells</span></div>
  ${value.length === 0 ? html`<div class="sheet"><${Empty} title="There are no cells"><p class="second">A cell is a keyed reducer; its definitions and their routing stand here. They begin with:</p><${Cmd} text="perdure manifest build MODULE -o world.yaml" /><//></div>` : html`
  <form class="query" role="search" onSubmit=${(e) => { e.preventDefault(); set({ event: text }); }}><div class="box"><input class="field mono" aria-label="Trace an event" placeholder="id or correlation of an event, or the number of an entry" value=${text} onInput=${(e) => setText(e.target.value)} /></div><button class="btn first" type="submit">Trace</button></form>
  ${trace.error && html`<${Trouble} error=${trace.error} />`}
  ${trace.value?.traces && html`<section class="sheet card"><header><h3>what ${visible(event)} led to</h3></header><div class="part">${trace.value.traces.length ? trace.value.traces.map((node) => html`<${Traced} node=${node} />`) : html`<p class="muted">No event has this id.</p>`}</div></section>`}
  ${value.map((each) => html`<section class="sect" key=${each.name}><div class="sect-head"><h2 class="mono"><a href=${href(`/workflows/${each.name}`)}>${each.name}</a></h2><span class="muted">${figure(Object.values(each.counts).reduce((a, b) => a + b, 0))} cells</span><span class="end"><a href=${href("/instances", { q: `workflow:${each.name}` })}>All</a></span></div>
    <table class="ledger flush"><tbody>${each.items.map((one) => html`<tr key=${one.instance}><td class="nowrap"><${Status} of=${one.status} /></td><td class="cut"><${Id} id=${one.id} row=${true} /></td><td class="num muted">${moment(one.started_at)}</td><td class="num muted">${ago(one.changed_at)}</td></tr>`)}</tbody></table></section>`)}`}`;
}

const Traced = ({ node }) => {
  const { led, children, ...own } = node;
  const below = led ?? children ?? [];
  return html`<ul class="trace"><li><code>${visible(Object.values(own).filter((each) => typeof each === "string" || typeof each === "number").join(" · "))}</code>${below.map((each) => html`<${Traced} node=${each} />`)}</li></ul>`;
};
