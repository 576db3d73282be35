// A form from a JSON Schema: text, number, date, choice, boolean, list, object, tagged union. What it cannot show is a field for JSON.
import { html } from "./html.js";
import { Icon, Shape } from "./parts.js";
import { json, visible } from "./format.js";

const DATES = { date: "date", "date-time": "datetime-local", time: "time" };
const NEEDED = "This is needed.";

// A schema without references and without the choice of null.
function plain(schema, whole) {
  if (schema.$ref) return { ...plain(schema.$ref.split("/").slice(1).reduce((at, name) => at[name], whole), whole), ...(schema.title ? { title: schema.title } : {}) };
  const some = (schema.anyOf ?? schema.oneOf)?.filter((each) => each.type !== "null");
  if (some?.length === 1) return { ...plain(some[0], whole), default: schema.default, title: schema.title ?? some[0].title, description: schema.description ?? some[0].description, nullable: true };
  return schema;
}

// The branches of a union by the value of their tag; null if it is not tagged.
function branches(schema, whole) {
  const some = (schema.oneOf ?? schema.anyOf)?.map((each) => plain(each, whole)) ?? [];
  const constant = (each) => each?.const ?? (each?.enum?.length === 1 ? each.enum[0] : undefined);
  const tag = Object.keys(some[0]?.properties ?? {}).find((name) => some.every((each) => constant(each.properties?.[name]) !== undefined));
  return tag && some.length > 1 ? { tag, of: Object.fromEntries(some.map((each) => [constant(each.properties[tag]), each])) } : null;
}

function kind(schema, whole) {
  if (schema.enum || schema.const !== undefined) return "choice";
  if (schema.type === "string") return DATES[schema.format] ? "date" : "string";
  if (["integer", "number", "boolean"].includes(schema.type)) return schema.type;
  if (schema.type === "array" && schema.items && !Array.isArray(schema.items) && schema.items !== true && kind(plain(schema.items, whole), whole) !== "json") return "list";
  if (schema.type === "object" && schema.properties) return "object";
  return branches(schema, whole) ? "union" : "json";
}

export function initial(schema, whole = schema) {
  if (!schema) return null;
  const found = plain(schema, whole);
  if (found.default !== undefined && found.default !== null) return found.default;
  switch (kind(found, whole)) {
    case "object": return Object.fromEntries(Object.entries(found.properties).map(([name, each]) => [name, initial(each, whole)]));
    case "list": return [];
    case "boolean": return false;
    case "choice": return found.const ?? (found.enum.length === 1 ? found.enum[0] : "");
    case "union": { const { tag, of } = branches(found, whole); const [first] = Object.keys(of); return { ...initial(of[first], whole), [tag]: first }; }
    default: return "";
  }
}

// The answer that the form means, and what is wrong by pointer. The server has the last word.
export function checked(schema, value) {
  const wrong = {};
  return [schema ? read(schema, schema, value, "", true, wrong) : null, wrong];
}

function read(given, whole, value, pointer, required, wrong) {
  const schema = plain(given, whole);
  const type = kind(schema, whole);
  const no = (text) => { wrong[pointer] = text; };
  if (type === "boolean") return Boolean(value);
  if (type === "object") {
    const found = {};
    for (const [name, each] of Object.entries(schema.properties)) {
      const part = read(each, whole, value?.[name], `${pointer}/${name}`, (schema.required ?? []).includes(name), wrong);
      if (part !== undefined) found[name] = part;
    }
    return found;
  }
  if (type === "list") {
    const found = (value ?? []).map((each, n) => read(schema.items, whole, each, `${pointer}/${n}`, true, wrong));
    if (found.length < (schema.minItems ?? 0)) no(`At least ${schema.minItems} are needed.`);
    if (found.length > (schema.maxItems ?? Infinity)) no(`At most ${schema.maxItems} are taken.`);
    return found;
  }
  if (type === "union") {
    const { tag, of } = branches(schema, whole);
    return of[value?.[tag]] ? { ...read(of[value[tag]], whole, value, pointer, true, wrong), [tag]: value[tag] } : no(NEEDED);
  }
  if (value === "" || value === undefined || value === null) {
    if (required && (type !== "string" || schema.minLength)) no(NEEDED);
    return required && type === "string" ? "" : undefined;
  }
  if (type === "integer" || type === "number") {
    const number = Number(value);
    if (Number.isNaN(number) || (type === "integer" && !Number.isInteger(number))) no(type === "integer" ? "A whole number is needed." : "A number is needed.");
    else if (number < (schema.minimum ?? -Infinity)) no(`At least ${schema.minimum}.`);
    else if (number > (schema.maximum ?? Infinity)) no(`At most ${schema.maximum}.`);
    else if (number <= (schema.exclusiveMinimum ?? -Infinity)) no(`More than ${schema.exclusiveMinimum}.`);
    return number;
  }
  if (type === "string") {
    if ([...value].length < (schema.minLength ?? 0)) no(`At least ${schema.minLength} characters.`);
    else if ([...value].length > (schema.maxLength ?? Infinity)) no(`At most ${schema.maxLength} characters.`);
    else if (schema.pattern && !fits(schema.pattern, value)) no(`It must fit ${schema.pattern}.`);
  }
  if (type === "date" && schema.format === "date-time" && /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$/.test(value)) return new Date(value).toISOString();
  if (type === "json" && typeof value === "string") try { return JSON.parse(value); } catch { return no("This is not JSON."); }
  return value;
}

const fits = (pattern, text) => { try { return new RegExp(pattern, "u").test(text); } catch { return true; } };

export function Form({ schema, value, change, problems, disabled }) {
  const found = plain(schema, schema);
  const props = { whole: schema, problems, disabled };
  if (kind(found, schema) === "object") return html`<${Fields} ...${props} schema=${found} pointer="" value=${value} change=${change} />`;
  return html`<${Field} ...${props} schema=${{ title: "Answer", ...found }} name="answer" pointer="" required=${true} value=${value} change=${change} />`;
}

const Fields = ({ schema, pointer, value, change, ...props }) =>
  Object.entries(schema.properties).map(([name, each]) => html`<${Field} key=${name} ...${props} schema=${each} name=${name} pointer=${`${pointer}/${name}`} required=${(schema.required ?? []).includes(name)} value=${value?.[name]} change=${(part) => change({ ...value, [name]: part })} />`);

function Field({ schema: given, name, pointer, required, value, change, whole, problems, disabled }) {
  const schema = plain(given, whole);
  const type = kind(schema, whole);
  const id = `f${pointer.replaceAll("/", "-") || "-answer"}`;
  const problem = problems[pointer];
  const label = html`${visible(schema.title ?? String(name).replaceAll("_", " "))}${!required && html` <span class="opt">optional</span>`}`;
  const common = { id, disabled, "aria-invalid": problem ? "true" : null, "aria-describedby": problem ? `p-${id}` : null };
  const told = html`${schema.description && html`<span class="help">${visible(schema.description)}</span>`}${problem && html`<span class="problem" id=${`p-${id}`}><${Shape} name="failed" /><span>${visible(problem)}</span></span>`}`;
  const text = (event) => change(event.target.value);
  const props = { whole, problems, disabled };
  if (type === "object") return html`<fieldset class="inner"><legend>${label}</legend>${told}<div class="form"><${Fields} ...${props} schema=${schema} pointer=${pointer} value=${value ?? {}} change=${change} /></div></fieldset>`;
  if (type === "union") {
    const { tag, of } = branches(schema, whole);
    const chosen = of[value?.[tag]];
    const rest = chosen && { ...chosen, properties: Object.fromEntries(Object.entries(chosen.properties).filter(([each]) => each !== tag)) };
    return html`<fieldset class="inner"><legend>${label}</legend>${told}<div class="form"><div class="line"><label for=${id}>${visible(tag)}</label><select class="field" ...${common} value=${value?.[tag] ?? ""} onChange=${(event) => change({ ...initial(of[event.target.value], whole), [tag]: event.target.value })}>${Object.keys(of).map((each) => html`<option value=${each}>${each}</option>`)}</select></div>${rest && html`<${Fields} ...${props} schema=${rest} pointer=${pointer} value=${value} change=${change} />`}</div></fieldset>`;
  }
  if (type === "list") {
    const list = Array.isArray(value) ? value : [];
    return html`<fieldset class="inner"><legend>${label}</legend>${told}${list.map((each, n) => html`<div class="item"><${Field} key=${n} ...${props} schema=${{ ...plain(schema.items, whole), title: `${n + 1}` }} name=${n} pointer=${`${pointer}/${n}`} required=${true} value=${each} change=${(part) => change(list.map((old, at) => (at === n ? part : old)))} /><button class="btn only quiet" type="button" aria-label=${`Remove ${n + 1}`} disabled=${disabled} onClick=${() => change(list.filter((_, at) => at !== n))}><${Icon} name="close" /></button></div>`)}
      <button class="btn small" type="button" disabled=${disabled} onClick=${() => change([...list, initial(schema.items, whole)])}><${Icon} name="plus" />Add</button></fieldset>`;
  }
  const options = schema.enum ?? (schema.const !== undefined ? [schema.const] : []);
  if (type === "choice" && options.length <= 4)
    return html`<fieldset><legend>${label}</legend><div class="choice">${options.map((each) => html`<label><input type="radio" name=${id} value=${each} disabled=${disabled} checked=${value === each} onChange=${() => change(each)} />${visible(String(each))}</label>`)}</div>${told}</fieldset>`;
  if (type === "boolean") return html`<div class="line"><label class="st"><input type="checkbox" ...${common} checked=${Boolean(value)} onChange=${(event) => change(event.target.checked)} /> ${label}</label>${told}</div>`;
  const short = schema.short || (schema.maxLength && schema.maxLength <= 80);
  const input =
    type === "choice" ? html`<select class="field" ...${common} value=${String(value)} onChange=${(event) => change(options.find((each) => String(each) === event.target.value) ?? "")}><option value="">choose one of ${options.length}</option>${options.map((each) => html`<option value=${String(each)}>${String(each)}</option>`)}</select>`
    : type === "integer" || type === "number" ? html`<input class="field num" inputmode="decimal" ...${common} value=${value} onInput=${text} />`
    : type === "date" ? html`<input class="field" type=${DATES[schema.format]} ...${common} value=${value} onInput=${text} />`
    : type === "json" ? html`<textarea class="field mono" rows="3" ...${common} value=${typeof value === "string" ? value : json(value, 1)} onInput=${text}></textarea>`
    : short ? html`<input class="field" ...${common} value=${value} onInput=${text} autocomplete="off" />`
    : html`<textarea class="field" rows="3" ...${common} value=${value} onInput=${text}></textarea>`;
  return html`<div class="line"><label for=${id}>${label}</label>${input}${told}</div>`;
}
