// Start an instance: a form from the parameters of the workflow, and the JSON that it means beside it.
import { html, useEffect, useRef, useState, useModal } from "./html.js";
import { get, part, send } from "./api.js";
import { command, json, visible } from "./format.js";
import { go, href } from "./router.js";
import { Cmd, Request, Shape, Trouble } from "./parts.js";
import { Form, checked, initial } from "./form.js";

// Names of code stay as they are written; texts of parameters are one line.
function shown(schema) {
  const properties = Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, each]) => [name, { title: name, short: each["x-widget"] !== "textarea", ...each }]));
  return { ...schema, type: "object", properties };
}

export function Start({ name, version, close }) {
  const [schema, setSchema] = useState(null);
  useEffect(() => { get(`/workflows/${part(name)}/-/${encodeURIComponent(version)}/form`).then((found) => setSchema(shown(found.schema)), () => setSchema(shown({}))); }, [name, version]);
  return schema && html`<${Asked} name=${name} schema=${schema} close=${close} />`;
}

function Asked({ name, schema, close }) {
  const known = Object.keys(schema.properties).length > 0;
  const [value, setValue] = useState(() => initial(schema));
  const [text, setText] = useState(null); // while the JSON is edited: it has the last word
  const [key, setKey] = useState("");
  const [wrong, setWrong] = useState({});
  const [error, setError] = useState(null);
  const box = useRef(null);
  useModal(box);
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
