// Keys of all pages: `/` search, `g` and a letter for a page, `j k` rows, `x` select, `?` help, Ctrl-K anything.
import { html, useModal, useRef } from "./html.js";
import { go, href } from "./router.js";

export function keys(pages, { help, palette }) {
  let before = "";
  const pressed = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); return palette(); }
    const field = event.target.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select, dialog");
    if (event.key === "Escape" && field?.matches("input, textarea")) field.blur();
    if (field || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    const page = before === "g" && pages.find((each) => each.key === event.key);
    before = event.key;
    if (page) go(href(page.path));
    else if (event.key === "/") { event.preventDefault(); const filter = document.querySelector("[data-filter]"); if (filter) filter.focus(); else palette(); }
    else if (event.key === "?") help();
    else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
    else if (event.key === "x") document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]")?.click();
    else document.querySelector(`[data-key="${CSS.escape(event.key)}"]`)?.click();
    return undefined;
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

function step(by) {
  const links = [...document.querySelectorAll("[data-row]")];
  const row = document.activeElement?.closest("tr")?.querySelector("[data-row]") ?? document.activeElement;
  links[Math.min(links.length - 1, Math.max(0, links.indexOf(row) + by))]?.focus();
}

const GROUPS = (pages) => [
  ["anywhere", [["Ctrl K", "find or do anything"], ["/", "search on this page"], ["?", "this list"], ["Esc", "close, leave a field, drop a selection"]]],
  ["rows", [["j k", "next row, row before"], ["Enter", "open the row"], ["x", "select the row"]]],
  ["one instance", [["[ ]", "entry before, entry after"], ["+ - 0", "zoom the timeline, show all"], ["Shift ← →", "move the timeline"], ["← →", "close or open a row of the tree"]]],
  ["pages", pages.map((each) => [`g ${each.key}`, each.name.toLowerCase()])],
];

export function Keys({ pages, close }) {
  const box = useRef(null);
  useModal(box);
  return html`<dialog class="dialog wide" id="keys" ref=${box} aria-labelledby="h-keys" onClose=${close}><header><h2 id="h-keys">Keys</h2></header>
    <div class="part keys">${GROUPS(pages).map(([name, rows]) => html`<section><h3 class="label">${name}</h3><dl class="facts">${rows.map(([key, text]) => html`<dt>${key.split(" ").map((each) => html`<kbd>${each}</kbd> `)}</dt><dd>${text}</dd>`)}</dl></section>`)}</div>
    <footer><button class="btn first" type="button" onClick=${close}>Close</button></footer></dialog>`;
}
