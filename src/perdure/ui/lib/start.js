// Start an instance: a form from the parameters of the workflow, and the JSON that it means beside it.
import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { send } from "./api.js";
import { command, json, visible } from "./format.js";
import { go, href } from "./router.js";
import { Cmd, Request, Shape, Trouble } from "./parts.js";
import { Form, checked, initial } from "./form.js";

const TYPES = { str: "string", int: "integer", float: "number", bool: "boolean" };

// What an engine registered of the parameters, as a JSON Schema.
export function schemaOf(parameters) {
  const list = Array.isArray(parameters) ? parameters : [];
  const one = (each) => {
    const kinds = each.kinds ?? [];
    const type = kinds.length === 1 ? TYPES[kinds[0]] : kinds.length === 2 && kinds.includes("int") && kinds.includes("float") ? "number" : undefined;
    const items = TYPES[each.type?.match(/^list\[(\w+)\]$/)?.[1]];
    if (items) return { type: "array", items: { type: items, short: true }, title: each.name, description: each.type, ...("default" in each ? { default: each.default } : {}) };
    return { ...(type ? { type } : {}), short: true, title: each.name, description: each.type, ...("default" in each ? { default: each.default } : {}) };
  };
  return { type: "object", properties: Object.fromEntries(list.map((each) => [each.name, one(each)])), required: list.filter((each) => each.way === "needed").map((each) => each.name) };
}

export function Start({ name, parameters, close }) {
  const schema = schemaOf(parameters);
  const known = Object.keys(schema.properties).length > 0;
  const [value, setValue] = useState(() => initial(schema));
  const [text, setText] = useState(null); // while the JSON is edited: it has the last word
  const [key, setKey] = useState("");
  const [wrong, setWrong] = useState({});
  const [error, setError] = useState(null);
  const box = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  const said = text ?? json(checked(schema, value)[0], 1);
  const edit = (event) => {
    setText(event.target.value);
    try { const parsed = JSON.parse(event.target.value); if (parsed && typeof parsed === "object") setValue({ ...initial(schema), ...parsed }); } catch { /* told when it is sent */ }
  };
  const input = () => JSON.parse(said.trim() || "{}");
  const body = () => ({ workflow: name, input: input(), ...(key ? { key } : {}) });
  const submit = async (event) => {
    event.preventDefault();
    const [, problems] = text === null ? checked(schema, value) : [null, {}];
    setWrong(problems);
    setError(null);
    if (Object.keys(problems).length) return;
    try {
      const made = await send("POST", "/instances", body());
      close();
      go(href(`/instances/${made.id}`));
    } catch (problem) {
      setWrong({ ...(problem instanceof SyntaxError ? { json: `This is not JSON: ${problem.message}` } : {}), ...Object.fromEntries((problem.problem?.errors ?? []).map((each) => [each.pointer, each.detail])) });
      if (!(problem instanceof SyntaxError)) setError(problem);
    }
  };
  const attempt = (made) => { try { return made(); } catch { return null; } };
  return html`<dialog class="dialog wide" ref=${box} aria-labelledby="h-start" onClose=${() => close()}><form onSubmit=${submit} novalidate>
    <header><h2 id="h-start">Start ${visible(name)}</h2></header>
    <div class="part both"><div class="form"><div class="line"><label for="s-key">Key <span class="opt">optional</span></label><input class="field" id="s-key" value=${key} onInput=${(event) => setKey(event.target.value)} autocomplete="off" /><span class="help">Names the instance. The same key again starts nothing. Empty: one is made up.</span></div>
      ${known ? html`<${Form} schema=${schema} value=${value} change=${(changed) => { setText(null); setValue(changed); }} problems=${wrong} />` : html`<p class="muted">No engine has said which parameters it takes: write its input as JSON.</p>`}</div>
    <div class="form"><div class="line"><label for="s-json">The same as JSON</label><textarea class="field mono" id="s-json" rows="12" spellcheck="false" value=${said} onInput=${edit} aria-invalid=${wrong.json ? "true" : null}></textarea>${wrong.json && html`<span class="problem"><${Shape} name="failed" /><span>${visible(wrong.json)}</span></span>`}</div></div></div>
    ${error && html`<div class="part"><${Trouble} error=${error} /></div>`}
    <div class="part"><h3 class="label">the same as a command, and as a request</h3><${Cmd} text=${command("start", name, "--input", attempt(() => json(input())) ?? "{}", ...(key ? ["--key", key] : []))} /><${Request} of=${attempt(() => ["POST", "/instances", body()])} /></div>
    <footer><button class="btn quiet" type="button" onClick=${() => close()}>Leave it</button><button class="btn first" type="submit">Start</button></footer></form></dialog>`;
}
