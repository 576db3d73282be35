// Source code to read: numbered lines, words and texts in other inks, and what changed between two versions.
import { html, useState } from "./html.js";
import { count, visible } from "./format.js";

const TEXTS = String.raw`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`;
const PYTHON = new RegExp(String.raw`("""[^]*?"""|'''[^]*?'''|${TEXTS})|(#[^\n]*)|\b(async|await|def|return|if|elif|else|for|while|in|not|and|or|import|from|as|with|try|except|finally|raise|class|match|case|lambda|yield|None|True|False|pass|break|continue|is)\b`, "g");
const YAML = new RegExp(String.raw`(${TEXTS})|((?<=^|\s)#[^\n]*)|((?<=^|[\s{,[-])[\w.$/-]+(?=:(?:\s|$)))`, "gm");
const JSONS = new RegExp(String.raw`(${TEXTS})(?!\s*:)|(//[^\n]*)|(${TEXTS})(?=\s*:)`, "g");
const TOKENS = { "text/x-python": PYTHON, "application/yaml": YAML, "application/json": JSONS };

// Lines of `[class, text]`. A text that runs over several lines is cut at their ends.
export function inked(text, media) {
  const lines = [[]];
  const add = (ink, part) => part.split("\n").forEach((piece, n) => { if (n) lines.push([]); if (piece) lines.at(-1).push([ink, piece]); });
  let at = 0;
  for (const found of TOKENS[media] ? text.matchAll(TOKENS[media]) : []) {
    add("", text.slice(at, found.index));
    add(found[1] ? "s" : found[2] ? "c" : "kw", found[0]);
    at = found.index + found[0].length;
  }
  add("", text.slice(at));
  return lines;
}

export function Code({ text, media, line = 1, label = "Source" }) {
  const lines = inked(text.replace(/\n$/, ""), media);
  return html`<pre class="src sheet" tabindex="0" aria-label=${label} style=${{ counterReset: `line ${line - 1}` }}>${lines.map((line) => html`<span class="l">${line.map(([ink, piece]) => (ink ? html`<span class=${ink}>${visible(piece)}</span>` : visible(piece)))}${"\n"}</span>`)}</pre>`;
}

// The shortest list of lines that were taken away and put in (longest common subsequence): `[sign, text, before, after]`.
export function changes(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  if (a.length * b.length > 4e6) return null;
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) found.push([" ", a[i], ++i, ++j]);
    else if (i < a.length && (j === b.length || table[i + 1][j] >= table[i][j + 1])) found.push(["-", a[i], ++i, 0]);
    else found.push(["+", b[j], 0, ++j]);
  }
  return found;
}

const AROUND = 3; // lines that are shown around a change

// Runs of lines that are the same are folded: `[{ lines, folded }]`.
function parts(lines) {
  const near = lines.map((_, n) => lines.slice(Math.max(0, n - AROUND), n + AROUND + 1).some(([sign]) => sign !== " "));
  const found = [];
  lines.forEach((line, n) => { if (found.at(-1)?.folded === !near[n]) found.at(-1).lines.push(line); else found.push({ folded: !near[n], lines: [line] }); });
  return found;
}

export function Changes({ before, after, label = "What changed" }) {
  const [open, setOpen] = useState(() => new Set());
  const lines = changes(before, after);
  if (!lines) return html`<p class="muted">They are too long to be compared here.</p>`;
  if (lines.every(([sign]) => sign === " ")) return html`<p class="muted">They are the same.</p>`;
  return html`<pre class="src versus-src sheet" tabindex="0" aria-label=${label}>${parts(lines).map(({ folded, lines }, n) => (folded && lines.length > 2 && !open.has(n) ? html`<button class="plain fold" type="button" onClick=${() => setOpen(new Set([...open, n]))}>${count(lines.length, "line")} the same</button>` : lines.map(([sign, text, old, now]) => html`<span class=${`l ${sign === "+" ? "plus" : sign === "-" ? "minus" : ""}`}><span class="n">${old || ""}</span><span class="n">${now || ""}</span>${sign} ${visible(text)}${"\n"}</span>`)))}</pre>`;
}
