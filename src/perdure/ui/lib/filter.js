// The text of a filter as words: `status:stuck -workflow:probe* tag.note:'two words'`. A chip is one word.
import { html } from "./html.js";
import { visible } from "./format.js";
import { Icon } from "./parts.js";

const WORD = /(?:[^\s'"]|'[^']*'|"(?:\\.|[^"\\])*")+/g;
const SIGNS = { ":": "is", "<": "before", ">": "after" };

export const words = (text) => text.match(WORD) ?? [];

export function read(word) {
  const [, not, field, sign, value] = word.match(/^(-?)([a-z_]+|tag\.[^:<>\s]+)([:<>])(.*)$/s) ?? [];
  return field ? { not: Boolean(not), field, sign, value: value.replace(/^(['"])(.*)\1$/s, "$2") } : { not: false, field: "key", sign: ":", value: word };
}

export const Chips = ({ q, change }) => {
  const all = words(q);
  if (!all.length) return null;
  return html`<div class="chips" role="list" aria-label="Filters">${all.map((word, n) => {
    const { not, field, sign, value } = read(word);
    const without = all.filter((_, at) => at !== n);
    const turned = all.map((each, at) => (at === n ? (not ? each.slice(1) : `-${each}`) : each));
    const said = `${field.replaceAll("_", " ").replace("tag.", "tag ")} ${not ? `${SIGNS[sign]} not` : sign === ":" && field === "key" && !/[:]/.test(word) ? "begins with" : SIGNS[sign]}`;
    return html`<span class=${`chip${not ? " not" : ""}`} role="listitem"><button class="k" type="button" title=${not ? "Take it as it is" : "Turn it into its opposite"} onClick=${() => change(turned.join(" "))}>${visible(said)}</button><span class="v">${visible(value)}</span><button type="button" aria-label=${`Drop ${word}`} onClick=${() => change(without.join(" "))}><${Icon} name="close" /></button></span>`;
  })}</div>`;
};
