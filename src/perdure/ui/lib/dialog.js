// A dialog for one verb: what the dry run says, its fields, a reason, and the command and the request that do the same.
import { html, useState, useEffect, useRef, useModal } from "./html.js";
import { figure, visible } from "./format.js";
import { send } from "./api.js";
import { Cmd, Icon, Request, Shape, Trouble } from "./parts.js";

// `request(given)` is `[method, path, body, headers]`; it is shown, and sent when `run` is not given.
// `preview(given)` gives `{ would, plan }` of the dry run, and `none`: why there is nothing to do. `count` must be typed, if it is given.
// A field with `form(given)` is drawn by what that answers, unless it answers nothing: `{ wrong(), view(edit, problems) }`.
// `moved(problem)` tells, after a version conflict, what came in between, and takes it as seen.
export function Dialog({ title, says, preview, fields = [], request, run, cmd, label, risk = false, count = null, wide = false, moved, close }) {
  const [given, setGiven] = useState(() => Object.fromEntries(fields.map((each) => [each.name, each.value ?? ""])));
  const [state, setState] = useState({ error: null, wrong: {}, busy: false, since: null });
  const [dry, setDry] = useState(null);
  const box = useRef(null);
  const asked = JSON.stringify(fields.filter((each) => each.dry).map((each) => given[each.name]));
  const first = useRef(asked);
  useEffect(() => {
    if (!preview) return undefined;
    let gone = false;
    const look = () => preview(given).then((found) => gone || setDry(found && { ...found, of: asked }), (problem) => gone || setDry({ refused: problem.message }));
    const later = setTimeout(look, asked === first.current ? 0 : 300); // not at every key
    return () => { gone = true; clearTimeout(later); };
  }, [asked]);
  useModal(box);
  const plan = dry?.of === asked ? dry.plan : undefined; // of what stands in the fields now
  const submit = async (event) => {
    event.preventDefault();
    const wrong = problems(fields, given);
    if (count !== null && given.count_typed?.replaceAll(/[,. ]/g, "") !== String(count)) wrong.count_typed = `Type ${count}.`;
    setState({ error: null, wrong, busy: Object.keys(wrong).length === 0, since: null });
    if (Object.keys(wrong).length) return;
    try {
      await (run ? run(given, plan) : send(...request(given, plan)));
      close(true);
    } catch (problem) {
      const at = Object.fromEntries((problem.problem?.errors ?? []).map((each) => [each.pointer?.split("/").at(-1), each.detail]).filter(([name]) => fields.some((field) => field.name === name)));
      const since = ["version-conflict", "selection-changed"].includes(problem.problem?.code) && moved ? await moved(problem) : null;
      if (since) setDry(null); // its plan is void
      setState({ error: problem, wrong: at, busy: false, since });
      if (since && preview) preview(given).then((found) => setDry(found && { ...found, of: asked }), () => {});
    }
  };
  const edit = (name, value) => setGiven({ ...given, [name]: value });
  return html`<dialog class=${`dialog${wide ? " wide" : ""}`} ref=${box} aria-labelledby="h-dialog" onCancel=${() => close(false)} onClose=${() => close(false)}>
    <form onSubmit=${submit} novalidate>
    <header><h2 id="h-dialog">${title}</h2></header>
    ${(says || dry) && html`<div class="part"><h3 class="label">what will happen</h3>${says && html`<p>${says}</p>`}${dry && html`<${Would} of=${dry} />`}</div>`}
    ${fields.length > 0 && html`<div class="part form">${fields.map((field) => html`<${Line} key=${field.name} field=${field} given=${given} value=${given[field.name]} problem=${state.wrong[field.name]} edit=${edit} />`)}</div>`}
    ${count !== null && html`<div class="part form"><${Line} field=${{ name: "count_typed", label: `This cannot be undone. Type ${figure(count)}, the number of instances`, numeric: true }} value=${given.count_typed ?? ""} problem=${state.wrong.count_typed} edit=${edit} /></div>`}
    ${state.since && html`<div class="part" role="alert"><div class="note bad"><${Icon} name="info" /><div><p><b class="strong">It moved while this was open.</b> <span class="muted">${state.error.problem?.code}</span></p><ol class="since">${state.since.map((text) => html`<li>${visible(text)}</li>`)}</ol><p>If it is still what you want, ask for it again.</p></div></div></div>`}
    ${state.error && !state.since && html`<div class="part"><${Trouble} error=${state.error} /></div>`}
    <div class="part"><h3 class="label">the same as ${[cmd && "a command", request && "a request"].filter(Boolean).join(", and as ")}</h3>${cmd && html`<${Cmd} text=${cmd(given)} />`}${request && html`<${Request} of=${asRequest(request, given, plan)} />`}</div>
    <footer><button class="btn quiet" type="button" onClick=${() => close(false)}>Leave it</button>
      <button class=${`btn ${risk ? "risk-fill" : "first"}`} type="submit" disabled=${state.busy || Boolean(dry?.none)}>${label}</button></footer>
    </form></dialog>`;
}

function Would({ of }) {
  if (of.refused) return html`<p class="st-failed" id="dry">${visible(of.refused)}</p>`;
  return html`<ul class="would" id="dry">${(of.would ?? []).map((text) => html`<li>${visible(text)}</li>`)}</ul>${of.none && html`<p class="st-failed">${visible(of.none)}</p>`}`;
}

function asRequest(request, given, plan) {
  try { return request(given, plan); } catch { return null; }
}

// What a form refuses by itself: what is needed, and text that is to be JSON.
function problems(fields, given) {
  const found = {};
  for (const field of fields) {
    const text = String(given[field.name] ?? "").trim();
    const form = field.form?.(given);
    if (form) Object.keys(form.wrong()).length && (found[field.name] = form.wrong());
    else if (!text && !field.optional && (!field.options || field.options.includes(""))) found[field.name] = "This is needed.";
    else if (text && field.json) try { JSON.parse(text); } catch { found[field.name] = "This is not JSON."; }
  }
  return found;
}

function Line({ field, given, value, problem, edit }) {
  const form = field.form?.(given);
  if (form) return form.view(edit, problem ?? {});
  const id = `d-${field.name}`;
  const common = { id, class: `field${field.json || field.text ? " mono" : ""}${field.numeric ? " num" : ""}`, value, "aria-invalid": problem ? "true" : null, "aria-describedby": problem ? `p-${id}` : null, autocomplete: "off", spellcheck: "false", onInput: (event) => edit(field.name, event.target.value) };
  return html`<div class=${`line${field.half ? " half" : ""}`}><label for=${id}>${field.label}${field.optional && html` <span class="opt">optional</span>`}</label>
    ${field.options ? html`<select ...${common} onInput=${null} onChange=${(event) => { edit(field.name, event.target.value); field.changed?.(event.target.value); }}>${field.options.map((each) => html`<option value=${each}>${each || "choose"}</option>`)}</select>`
      : field.json || field.text || field.lines ? html`<textarea rows=${field.lines ?? (field.text ? 16 : 4)} ...${common}></textarea>` : html`<input ...${common} type=${field.type ?? null} list=${field.suggest?.length ? `l-${id}` : null} />${field.suggest?.length > 0 && html`<datalist id=${`l-${id}`}>${field.suggest.map((each) => html`<option value=${each} />`)}</datalist>`}`}
    ${field.help && html`<span class="help">${field.help}</span>`}${problem && html`<span class="problem" id=${`p-${id}`}><${Shape} name="failed" /><span>${visible(problem)}</span></span>`}</div>`;
}
