// The text of a filter as words: `status:stuck -workflow:probe* tag.note:'two words'`. A chip is one word.
import { html, useEffect, useRef, useState } from "./html.js";
import { visible } from "./format.js";
import { Icon } from "./parts.js";

const WORD = /(?:[^\s'"]|'[^']*'|"(?:\\.|[^"\\])*")+/g;
export const STATUSES = ["running", "waiting", "stuck", "completed", "failed", "cancelled"];
const SIGNS = { ":": "is", "<": "before", ">": "after" };

export const words = (text) => text.match(WORD) ?? [];

export function read(word) {
  const [, not, field, sign, value] = word.match(/^(-?)([a-z_]+|tag\.[^:<>\s]+)([:<>])(.*)$/s) ?? [];
  return field ? { not: Boolean(not), field, sign, value: value.replace(/^(['"])(.*)\1$/s, "$2") } : { not: false, field: "key", sign: ":", value: word };
}

// Whether a value of a field passes the words that name the field: one of those, none of the negated ones.
export function passes(all, field) {
  const mine = all.map(read).filter((each) => each.field === field && each.sign === ":").map((each) => ({ ...each, like: new RegExp(`^${each.value.split("*").map((text) => text.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`) }));
  const wanted = mine.filter((each) => !each.not);
  return (value) => (!wanted.length || wanted.some((each) => each.like.test(value))) && !mine.some((each) => each.not && each.like.test(value));
}

const FIELDS = [["status", "status"], ["workflow", "workflow"], ["key_prefix", "key begins with"], ["started", "started"], ["changed", "changed"], ["ended", "ended"], ["waits_for", "waits for"], ["error_type", "error"], ["error_at", "error at"], ["version", "version"], ["dialect", "dialect"], ["queue", "queue"], ["tag.", "tag"]];
const TIMES = new Set(["started", "changed", "ended"]);
const name = (field) => field.replaceAll("_", " ").replace("tag.", "tag ");

export function Chips({ q, change }) {
  const [adds, setAdds] = useState(false);
  const all = words(q);
  return html`<div class="chips"><span class="chips" role=${all.length ? "list" : null} aria-label=${all.length ? "Filters" : null}>${all.map((word, n) => {
    const { not, field, sign, value } = read(word);
    const without = all.filter((_, at) => at !== n);
    const turned = all.map((each, at) => (at === n ? (not ? each.slice(1) : `-${each}`) : each));
    const said = `${name(field)} ${not ? `${SIGNS[sign]} not` : sign === ":" && field === "key" && !/[:]/.test(word) ? "begins with" : SIGNS[sign]}`;
    return html`<span class=${`chip${not ? " not" : ""}`} role="listitem" key=${word}><button class="k" type="button" title=${not ? "Take it as it is" : "Turn it into its opposite"} onClick=${() => change(turned.join(" "))}>${visible(said)}</button><span class="v">${visible(TIMES.has(field) ? value.replace("T", " ").replace(/Z$/, " UTC") : value)}</span><button type="button" aria-label=${`Drop ${word}`} title="Drop it" onClick=${() => change(without.join(" "))}><${Icon} name="close" /></button></span>`;
  })}</span>${adds ? html`<${Add} close=${() => setAdds(false)} add=${(word) => { setAdds(false); change([...all, word].join(" ")); }} />` : html`<button class="btn quiet small" type="button" onClick=${() => setAdds(true)}><${Icon} name="plus" />Filter</button>`}</div>`;
}

// One more word, made of a field, a sign and a value.
function Add({ add, close }) {
  const [field, setField] = useState("status");
  const [sign, setSign] = useState(":");
  const first = useRef(null);
  useEffect(() => first.current.focus(), []);
  const time = TIMES.has(field);
  const signs = time ? [["<", "before"], [">", "after"]] : [[":", "is"], ["-", "is not"], ...(field === "tag." ? [["<", "below"], [">", "above"]] : [])];
  const now = signs.some(([each]) => each === sign) ? sign : signs[0][0];
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const value = time ? new Date(given.get("value")).toISOString().slice(0, 16) + "Z" : given.get("value").trim();
    add(`${now === "-" ? "-" : ""}${field}${given.get("tag")?.trim() ?? ""}${now === "-" ? ":" : now}${/^[\w./*@+:~-]+$/.test(value) ? value : `'${value.replaceAll("'", `'"'"'`)}'`}`);
  };
  return html`<form class="chip add" aria-label="One more filter" onSubmit=${submit} onKeyDown=${(event) => { if (event.key === "Escape") { event.stopPropagation(); close(); } }}>
    <select aria-label="Field" ref=${first} value=${field} onChange=${(event) => setField(event.target.value)}>${FIELDS.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
    ${field === "tag." && html`<input name="tag" required aria-label="Name of the tag" placeholder="name" size="8" />`}
    <select aria-label="How" value=${now} onChange=${(event) => setSign(event.target.value)}>${signs.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
    ${field === "status" ? html`<select name="value" aria-label="Value">${STATUSES.map((each) => html`<option>${each}</option>`)}</select>` : html`<input name="value" required aria-label="Value" type=${time ? "datetime-local" : "text"} placeholder=${time ? "" : "value, * stands for anything"} size="14" />`}
    <button class="ok" type="submit">Add</button><button type="button" aria-label="Leave it" onClick=${close}><${Icon} name="close" /></button></form>`;
}
