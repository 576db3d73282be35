// A form from a JSON Schema: text, number, choice, boolean, object. What it cannot show is a field for JSON.
import { html } from "./html.js";
import { Shape } from "./parts.js";
import { json, visible } from "./format.js";

function plain(schema, whole = schema) {
  if (schema.$ref) return plain(schema.$ref.split("/").slice(1).reduce((at, name) => at[name], whole), whole);
  const some = schema.anyOf?.filter((each) => each.type !== "null");
  return some?.length === 1 ? { ...plain(some[0], whole), default: schema.default, title: schema.title, description: schema.description } : schema;
}

const kind = (schema) => (schema.enum || schema.const !== undefined ? "choice" : ["string", "integer", "number", "boolean"].includes(schema.type) ? schema.type : "json");

export function fields(schema) {
  if (!schema) return [];
  const found = plain(schema);
  if (found.type !== "object" || !found.properties) return [["", { ...found, label: "Answer" }, true, kind(found)]];
  const required = new Set(found.required ?? []);
  return Object.entries(found.properties).map(([name, each]) => {
    const field = plain(each, schema);
    return [name, field, required.has(name), kind(field)];
  });
}

export function initial(schema) {
  return Object.fromEntries(fields(schema).map(([name, field, , type]) => [name, field.default ?? (type === "boolean" ? false : type === "choice" && field.enum?.length === 1 ? field.enum[0] : "")]));
}

// The answer that the form means, and what is wrong by pointer. The server has the last word.
export function checked(schema, given) {
  const wrong = {};
  const found = {};
  for (const [name, field, required, type] of fields(schema)) {
    const pointer = name ? `/${name}` : "";
    let value = given?.[name];
    if (value === "" || value === undefined) {
      if (required && type !== "string") wrong[pointer] = "This is needed.";
      else if (required && type === "string" && field.minLength) wrong[pointer] = "This is needed.";
      if (!(required && type === "string")) continue;
      value = "";
    }
    if (type === "integer" || type === "number") {
      const number = Number(value);
      if (Number.isNaN(number) || (type === "integer" && !Number.isInteger(number))) wrong[pointer] = type === "integer" ? "A whole number is needed." : "A number is needed.";
      else value = number;
    } else if (type === "json" && typeof value === "string") {
      try { value = JSON.parse(value); } catch { wrong[pointer] = "This is not JSON."; }
    }
    if (!name) return [value, wrong];
    found[name] = value;
  }
  return [found, wrong];
}

export function Form({ schema, value, change, problems, disabled }) {
  return fields(schema).map(([name, field, required, type]) => {
    const id = `f-${name || "answer"}`;
    const problem = problems[name ? `/${name}` : ""];
    const label = html`${visible(field.title ?? field.label ?? name.replaceAll("_", " "))}${!required && html` <span class="opt">optional</span>`}`;
    const set = (each) => change({ ...value, [name]: each });
    const common = { id, disabled, "aria-invalid": problem ? "true" : null, "aria-describedby": problem ? `p-${id}` : null };
    const options = field.enum ?? (field.const !== undefined ? [field.const] : []);
    const told = html`${field.description && html`<span class="help">${visible(field.description)}</span>`}${problem && html`<span class="problem" id=${`p-${id}`}><${Shape} name="failed" /><span>${visible(problem)}</span></span>`}`;
    if (type === "choice" && options.length <= 4)
      return html`<fieldset key=${name}><legend>${label}</legend><div class="choice">${options.map((each) => html`<label><input type="radio" name=${id} value=${each} disabled=${disabled} checked=${value[name] === each} onChange=${() => set(each)} />${visible(String(each))}</label>`)}</div>${told}</fieldset>`;
    if (type === "boolean") return html`<div class="line" key=${name}><label class="st"><input type="checkbox" ...${common} checked=${Boolean(value[name])} onChange=${(e) => set(e.target.checked)} /> ${label}</label>${told}</div>`;
    const input =
      type === "choice" ? html`<select class="field" ...${common} value=${value[name]} onChange=${(e) => set(e.target.value)}><option value="">choose one of ${options.length}</option>${options.map((each) => html`<option value=${each}>${each}</option>`)}</select>`
      : type === "integer" || type === "number" ? html`<input class="field num" inputmode="decimal" ...${common} value=${value[name]} onInput=${(e) => set(e.target.value)} />`
      : type === "json" ? html`<textarea class="field mono" rows="4" ...${common} value=${typeof value[name] === "string" ? value[name] : json(value[name], 1)} onInput=${(e) => set(e.target.value)}></textarea>`
      : field.maxLength && field.maxLength <= 80 ? html`<input class="field" ...${common} value=${value[name]} onInput=${(e) => set(e.target.value)} />`
      : html`<textarea class="field" rows="3" ...${common} value=${value[name]} onInput=${(e) => set(e.target.value)}></textarea>`;
    return html`<div class="line" key=${name}><label for=${id}>${label}</label>${input}${told}</div>`;
  });
}
