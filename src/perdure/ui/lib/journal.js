// The journal of one instance: what came, and what it led to. Compact: a row an operation; words: a row an entry; raw: as it is kept.
import { html, steady, useEffect, useRef, useState } from "./html.js";
import { get, instancePath } from "./api.js";
import { clock, command, day, figure, json, span, visible, weekday } from "./format.js";
import { set } from "./router.js";
import { Cmd, Copy, Icon, Json, Status, Trouble } from "./parts.js";
import { useWindow } from "./window.js";

const PAGE = 500;
const ROW = 28;
const MODES = { compact: "Compact", words: "Words", raw: "Raw" };

// Pages of entries, fetched when they are near the eye.
function usePages(id, total, find, known, form) {
  const [pages, setPages] = useState({});
  useEffect(() => setPages({}), [id, find, total, form]);
  const page = (n) => Math.floor(n / PAGE);
  const asked = useRef(null); // the list, and its pages that were asked for
  const want = async (n) => {
    const list = `${id} ${find} ${total} ${form}`;
    if (asked.current?.list !== list) asked.current = { list, pages: new Set() };
    if (n < 0 || n * PAGE >= total || known.length >= Math.min(total, (n + 1) * PAGE) || asked.current.pages.has(n)) return;
    asked.current.pages.add(n);
    try {
      const found = await get(instancePath(id, "history"), { after: n * PAGE, limit: PAGE, form });
      if (asked.current.list === list) setPages((old) => ({ ...old, [n]: form ? found.raw : found.history, asked: { ...old.asked, ...found.asked } }));
    } catch (error) {
      setPages((old) => ({ ...old, error }));
    }
  };
  const at = (n) => known[n] ?? pages[page(n)]?.[n % PAGE];
  return { at, want: (first, last) => { if (known.length >= total) return; want(page(first)); want(page(last)); want(page(last) + 1); }, asked: pages.asked ?? {}, error: pages.error };
}

export function Journal({ history, show, operations, query, limit }) {
  const mode = MODES[query.get("journal")] ? query.get("journal") : "words";
  const form = mode === "raw" ? "raw" : "";
  const find = query.get("find") ?? "";
  const [text, setText] = useState(find);
  const [found, setFound] = useState(null);
  const [jump, setJump] = useState(null);
  const follow = query.get("follow") === "1";
  useEffect(() => {
    if (!find) return setFound(null);
    get(instancePath(show.id, "history"), { find, limit: PAGE, form }).then(({ raw, history, asked }) => setFound({ list: (form ? raw : history).filter((each) => !limit || each.number <= limit), form, asked }), (error) => setFound({ list: [], form, error }));
  }, [find, form, limit, show.entries]);
  const hits = found?.form === form ? found : null;
  const total = hits ? hits.list.length : Math.min(limit || history.entries, history.entries);
  const known = hits ? hits.list : form ? [] : history.history;
  const pages = usePages(show.id, total, find, known, form);
  const error = hits?.error ?? pages.error;
  const asked = { ...history.asked, ...hits?.asked, ...pages.asked };
  return html`<div class="journal-bar"><span class="seg">${Object.entries(MODES).map(([name, label]) => html`<button type="button" aria-pressed=${mode === name} onClick=${() => set({ journal: name === "words" ? "" : name })}>${label}</button>`)}</span>
    <form onSubmit=${(event) => { event.preventDefault(); set({ find: text }); }}><input class="field" type="search" aria-label="Filter the journal" placeholder="kind, place or error" value=${text} onInput=${(e) => { setText(e.target.value); if (!e.target.value) set({ find: "" }); }} /></form>
    ${hits && html`<span class="muted">${figure(hits.list.length)} match</span>`}
    ${mode !== "compact" && html`<div class="end"><label class="st"><input type="checkbox" checked=${follow} onChange=${(event) => set({ follow: event.target.checked ? "1" : "" })} />follow</label>
      <form class="jump" onSubmit=${(event) => { event.preventDefault(); setJump({ to: Number(new FormData(event.target).get("entry")) || 1 }); }}><input class="field num" name="entry" inputmode="numeric" aria-label="Jump to entry" placeholder="entry" /><button class="btn small" type="submit">Jump</button></form></div>`}</div>
  ${error ? html`<${Trouble} error=${error} />` : mode === "compact" ? html`<${Compact} operations=${operations} total=${Math.min(limit || history.entries, history.entries)} known=${known} />` : html`<${Entries} total=${total} pages=${pages} asked=${asked} raw=${mode === "raw"} jump=${jump} follow=${follow} chosen=${Number(query.get("row")) || 0} />`}
  <div class="more"><${Cmd} text=${command("history", show.id)} /></div>`;
}

function Entries({ total, pages, asked, raw, jump, follow, chosen }) {
  const { box, first, last, above, below, to } = useWindow(total, ROW);
  useEffect(() => { if (jump) to(Math.min(total, jump.to) - 1); }, [jump]);
  useEffect(() => { if (follow) to(total); }, [follow, total]);
  useEffect(() => { pages.want(first, last); });
  const rows = [];
  let before = first > 0 ? pages.at(first - 1) : null;
  for (let n = first; n < last; n++) {
    const each = pages.at(n);
    if (each && (n === 0 || (before && day(before.at) !== day(each.at)))) rows.push(html`<tr class="day" key=${`day${each.number}`}><td colspan="6">${weekday(each.at)}</td></tr>`);
    rows.push(each ? html`<${Entry} key=${each.number} each=${each} before=${before} asked=${asked[each.number]} raw=${raw} hit=${jump?.to === each.number || (raw && chosen === each.number)} />` : html`<tr key=${`w${n}`}><td class="marg">${n + 1}</td><td colspan="5"><span class="bone w2"></span></td></tr>`);
    before = each;
  }
  return html`<div class="sheet tall" ref=${box} tabindex="0" role="region" aria-label="Entries"><table class=${`ledger journal${raw ? " is-raw" : ""}`} aria-rowcount=${total}><thead><tr><th class="marg">entry</th><th class="c-when">when</th><th class="c-gap num">${raw ? "bytes" : "after"}</th><th class="came">event${raw ? ", as it is kept" : ": what came"}</th><th class="led">decision${raw ? ", as it is kept" : ": what it led to"}</th><th class="c-who">${raw ? "place" : "from"}</th></tr></thead><tbody>
    ${above > 0 && html`<tr aria-hidden="true"><td colspan="6" style=${{ height: `${above}px` }}></td></tr>`}${rows}${below > 0 && html`<tr aria-hidden="true"><td colspan="6" style=${{ height: `${below}px` }}></td></tr>`}</tbody></table></div>
  ${raw && chosen > 0 && pages.at(chosen - 1) && html`<${Bytes} each=${pages.at(chosen - 1)} />`}`;
}

const decoded = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
const hex = (n, wide) => n.toString(16).padStart(wide, "0");
const MOST = 4096; // bytes that are written out

// One entry as it is kept: decoded, and its bytes.
function Bytes({ each }) {
  const { bytes, ...body } = each.body;
  const all = decoded(bytes ?? "");
  const lines = Array.from({ length: Math.ceil(Math.min(MOST, all.length) / 16) }, (_, n) => {
    const part = [...all.slice(n * 16, n * 16 + 16)];
    return `${hex(n * 16, 4)}  ${part.map((byte) => hex(byte, 2)).join(" ").padEnd(47)}  ${part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("")}`;
  });
  return html`<section class="sheet card bytes" aria-label=${`Entry ${each.number} as it is kept`}><header><h3>entry ${each.number}</h3><span class="muted">${figure(all.length)} bytes, number ${each.seq} of its shard</span><span class="end"><${Copy} text=${bytes ?? ""} label="Copy the bytes, in base64" /><button class="copy" type="button" aria-label="Close" title="Close: Esc" data-key="Escape" onClick=${() => set({ row: "" })}><${Icon} name="close" /></button></span></header>
    <div class="part both"><${Json} value=${body} /><pre class="hex scroll" tabindex="0" role="region" aria-label="Bytes">${lines.join("\n")}${all.length > MOST ? `\n… ${figure(all.length - MOST)} more` : ""}</pre></div></section>`;
}

const Entry = steady(({ each, before, asked, raw, hit }) => {
  const gap = before ? span(Date.parse(each.at) - Date.parse(before.at)) : "";
  if (raw) {
    const { event = {}, decision, bytes } = each.body;
    const { kind, ...rest } = event;
    const go = () => set({ row: hit ? "" : each.number });
    return html`<tr aria-selected=${hit ? "true" : null}><td class="marg"><button class="plain" type="button" aria-expanded=${Boolean(hit)} title="The whole entry, and its bytes" onClick=${go}>${each.number}</button></td><td class="c-when">${clock(each.at, true)}</td><td class="c-gap num muted">${figure(Math.floor(((bytes ?? "").replace(/=+$/, "").length * 3) / 4))}</td><td class="came mono"><b class="strong">${kind}</b> <span class="ev">${visible(json(rest)).slice(0, 400)}</span></td><td class="led mono"><span class="ev">${decision ? visible(json(decision)).slice(0, 400) : "nothing"}</span></td><td class="c-who mono">${each.seq}</td></tr>`;
  }
  const value = each.value === undefined || each.value === null || each.value?.$withheld ? "" : json(each.value);
  return html`<tr class=${each.error ? "bad" : null} aria-selected=${hit ? "true" : null}><td class="marg"><button class="plain" type="button" title="Go to this entry" onClick=${() => set({ entry: each.number })}>${each.number}</button></td><td class="c-when">${clock(each.at, true)}</td><td class="c-gap num muted">${gap}</td>
    <td class="came">${each.event} ${each.location && html`<code>${visible(each.location)}</code>`} ${each.status} ${each.error && !each.outcome && html`<span class="ev">${visible(each.error.type)}: ${visible(each.error.message.split("\n")[0].slice(0, 140))}</span>`}${value && html`<span class="ev">${visible(value.length > 160 ? `${value.slice(0, 160)}…` : value)}</span>`}</td>
    <td class="led">${led(each)}</td><td class="c-who mono" title=${asked?.via}>${asked && visible(asked.by)}${asked?.reason && html`<span class="muted"> ${visible(asked.reason)}</span>`}</td></tr>`;
});

function led(each) {
  const parts = each.opened.map((text) => {
    const [kind, ...place] = text.split(" ");
    return html`${kind} <code>${visible(place.join(" "))}</code>`;
  });
  for (const name of each.announced) parts.push(html`event <code>${visible(name)}</code>`);
  if (each.outcome) parts.push(html`<${Status} of=${each.outcome} />${each.error && html` ${visible(each.error.type)}: ${visible(each.error.message.split("\n")[0].slice(0, 140))}`}`);
  if (!parts.length) return html`<span class="muted">nothing</span>`;
  return parts.map((part, n) => html`${n > 0 && ", "}${part}`);
}

// A row an operation. Each entry belongs to one; what belongs to none is the instance's own.
function Compact({ operations: list, total, known }) {
  const taken = new Set(list.flatMap((each) => each.entries));
  const own = list.length < 10000 ? Array.from({ length: total }, (_, n) => n + 1).filter((n) => !taken.has(n)) : [];
  const operations = own.length ? [{ kind: "", location: "", what: "the instance itself", attempt: "", opened: 0, opened_at: known.find((each) => each.number === own[0])?.at, entries: own }, ...list] : list;
  const { box, first, last, above, below } = useWindow(operations.length, ROW);
  return html`<div class="sheet tall" ref=${box} tabindex="0" role="region" aria-label="Operations, a row each"><table class="ledger" aria-rowcount=${operations.length}><thead><tr><th>entries</th><th>opened</th><th>operation</th><th>status</th><th class="num">attempt</th><th class="num">took</th></tr></thead><tbody>
    ${above > 0 && html`<tr aria-hidden="true"><td colspan="6" style=${{ height: `${above}px` }}></td></tr>`}
    ${operations.slice(first, last).map((each) => html`<tr key=${`${each.location}#${each.attempt}#${each.opened}`}><td class="mono muted">${each.entries.length > 4 ? `${each.entries.slice(0, 3).join(", ")}…${each.entries.at(-1)}` : each.entries.join(", ")}</td><td class="nowrap">${each.opened_at && clock(each.opened_at, true)}</td><td>${each.location ? html`${each.kind} <code>${visible(each.location)}</code>` : each.what}</td><td class="nowrap">${each.status && html`<${Status} of=${each.status} />`}</td><td class="num">${each.attempt}</td><td class="num">${each.closed_at ? span(Date.parse(each.closed_at) - Date.parse(each.opened_at)) : ""}</td></tr>`)}
    ${below > 0 && html`<tr aria-hidden="true"><td colspan="6" style=${{ height: `${below}px` }}></td></tr>`}</tbody></table></div>`;
}
