// A dialog for one verb: what it does, its fields, a reason, the command and the request that do the same.
import { html, useState, useEffect, useLayoutEffect, useRef } from "./html.js";
import { visible } from "./format.js";
import { Cmd, Trouble } from "./parts.js";

export function Dialog({ title, says, preview, fields = [], run, cmd, label, risk = false, close }) {
  const start = Object.fromEntries(fields.map((each) => [each.name, each.value ?? ""]));
  const [given, setGiven] = useState(start);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [dry, setDry] = useState("");
  useEffect(() => {
    if (!preview) return undefined;
    let gone = false;
    preview(given).then((text) => gone || setDry(text), (problem) => gone || setDry(problem.message));
    return () => { gone = true; };
  }, [given.location]);
  const box = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await run(given);
      close(true);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<dialog class="dialog" ref=${box} aria-labelledby="h-dialog" onCancel=${() => close(false)} onClose=${() => close(false)}>
    <form onSubmit=${submit}>
    <header><h2 id="h-dialog">${title}</h2></header>
    ${says && html`<div class="part"><h3 class="label">what will happen</h3><p>${says}</p>${dry && html`<p class="strong" id="dry">${visible(dry)}</p>`}</div>`}
    ${fields.length > 0 && html`<div class="part form">${fields.map((field) => html`<div class="line" key=${field.name}>
      <label for=${`d-${field.name}`}>${field.label}${field.optional && html` <span class="opt">optional</span>`}</label>
      ${field.options
        ? html`<select class="field" id=${`d-${field.name}`} value=${given[field.name]} onChange=${(e) => setGiven({ ...given, [field.name]: e.target.value })}>
            ${field.options.map((each) => html`<option value=${each}>${each}</option>`)}</select>`
        : field.long
          ? html`<textarea class="field mono" rows="4" id=${`d-${field.name}`} value=${given[field.name]} onInput=${(e) => setGiven({ ...given, [field.name]: e.target.value })} spellcheck="false"></textarea>`
          : html`<input class="field" id=${`d-${field.name}`} value=${given[field.name]} onInput=${(e) => setGiven({ ...given, [field.name]: e.target.value })} required=${!field.optional} autocomplete="off" />`}
      ${field.help && html`<span class="help">${field.help}</span>`}</div>`)}</div>`}
    ${error && html`<div class="part"><${Trouble} error=${error} /></div>`}
    <div class="part"><h3 class="label">the same as a command</h3><${Cmd} text=${cmd(given)} /></div>
    <footer><button class="btn quiet" type="button" onClick=${() => close(false)}>Leave it</button>
      <button class=${`btn ${risk ? "risk-fill" : "first"}`} type="submit" disabled=${busy}>${label}</button></footer>
    </form></dialog>`;
}
