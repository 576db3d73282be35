// A form from a JSON Schema (tasks T11): text, long text, number, date, duration, choice, several of a choice, boolean,
// list, object, tagged union, file. What it cannot show is a field for JSON.
import { html, useRef } from "./html.js";
import { Icon, Shape } from "./parts.js";
import { figure, json, visible } from "./format.js";

const DATES = { date: "date", "date-time": "datetime-local", time: "time" };
const NEEDED = "This is needed.";
const FILE_MAX = 11_000_000; // as base64 it fits into a request of 16 MiB
const RADIOS = 4;

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const escaped = (name) => String(name).replaceAll("~", "~0").replaceAll("/", "~1");
const spaced = (name) => String(name).replaceAll("_", " ").replace(/^./, (sign) => sign.toUpperCase());

// A schema without references and without the choice of null.
function plain(schema, whole) {
  if (!isObject(schema)) return {};
  if (schema.$ref) return { ...plain(schema.$ref.split("/").slice(1).reduce((at, name) => at?.[name], whole), whole), ...(schema.title ? { title: schema.title } : {}) };
  const some = (schema.anyOf ?? schema.oneOf)?.filter((each) => each.type !== "null");
  if (some?.length === 1) return { ...plain(some[0], whole), default: schema.default, title: schema.title ?? some[0].title, description: schema.description ?? some[0].description, nullable: true };
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((each) => each !== "null");
    const type = types.length === 1 ? types[0] : types.every((each) => ["integer", "number"].includes(each)) ? "number" : undefined;
    return { ...schema, type };
  }
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
  if (schema.type === "string") return DATES[schema.format] ? "date" : schema.format === "byte" || schema.contentEncoding === "base64" ? "file" : schema.format === "decimal" ? "decimal" : schema.format === "duration" ? "duration" : "string";
  if (["integer", "number", "boolean"].includes(schema.type)) return schema.type;
  const items = schema.type === "array" && isObject(schema.items) ? plain(schema.items, whole) : null;
  if (items?.enum && schema.uniqueItems) return "several";
  if (items && kind(items, whole) !== "json") return "list";
  if (schema.type === "object" && schema.properties) return "object";
  return branches(schema, whole) ? "union" : "json";
}

export function initial(schema, whole = schema) {
  if (!schema) return null;
  const found = plain(schema, whole);
  if (found.default !== undefined && found.default !== null) return found.default;
  switch (kind(found, whole)) {
    case "object": return Object.fromEntries(Object.entries(found.properties).map(([name, each]) => [name, initial(each, whole)]));
    case "list": case "several": return [];
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
    if (!required && json(value) === json(initial(given, whole))) return undefined; // nothing was said of it
    const found = {};
    for (const [name, each] of Object.entries(schema.properties)) {
      const part = read(each, whole, value?.[name], `${pointer}/${escaped(name)}`, (schema.required ?? []).includes(name), wrong);
      if (part !== undefined) found[name] = part;
    }
    return found;
  }
  if (type === "list" || type === "several") {
    const list = Array.isArray(value) ? value : [];
    const found = type === "several" ? list : list.map((each, n) => read(schema.items, whole, each, `${pointer}/${n}`, true, wrong));
    if (found.length < (schema.minItems ?? 0)) no(`At least ${schema.minItems} are needed.`);
    if (found.length > (schema.maxItems ?? Infinity)) no(`At most ${schema.maxItems} are taken.`);
    return found;
  }
  if (type === "union") {
    const { tag, of } = branches(schema, whole);
    return of[value?.[tag]] ? { ...read(of[value[tag]], whole, value, pointer, true, wrong), [tag]: value[tag] } : no(NEEDED);
  }
  if (value === "" || value === undefined || value === null) {
    if (required && (type !== "string" || schema.minLength || schema.format)) no(NEEDED);
    return required && type === "string" ? "" : undefined;
  }
  if (type === "file") return isObject(value) ? (value.data ?? no(value.problem)) : value;
  if (type === "integer" || type === "number") {
    const number = Number(value);
    if (Number.isNaN(number) || (type === "integer" && !Number.isInteger(number))) no(type === "integer" ? "A whole number is needed." : "A number is needed.");
    else inRange(schema, number, no);
    return number;
  }
  if (type === "decimal") {
    const text = String(value).trim();
    if (!/^-?\d+(\.\d+)?$/.test(text)) no("A number is needed, such as 12.50.");
    else inRange(schema, Number(text), no);
    return text;
  }
  if (type === "duration") return iso(String(value)) ?? no("A duration is needed, such as 1 h 30 min.");
  if (type === "string") {
    if ([...value].length < (schema.minLength ?? 0)) no(`At least ${schema.minLength} characters.`);
    else if ([...value].length > (schema.maxLength ?? Infinity)) no(`At most ${schema.maxLength} characters.`);
    else if (schema.pattern && !fits(schema.pattern, value)) no(`It must fit ${schema.pattern}.`);
  }
  if (type === "date" && schema.format === "date-time" && /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$/.test(value)) return new Date(value).toISOString();
  if (type === "json" && typeof value === "string") try { return JSON.parse(value); } catch { return no("This is not JSON."); }
  return value;
}

function inRange(schema, number, no) {
  if (number < (schema.minimum ?? -Infinity)) no(`At least ${schema.minimum}.`);
  else if (number > (schema.maximum ?? Infinity)) no(`At most ${schema.maximum}.`);
  else if (number <= (schema.exclusiveMinimum ?? -Infinity)) no(`More than ${schema.exclusiveMinimum}.`);
  else if (number >= (schema.exclusiveMaximum ?? Infinity)) no(`Less than ${schema.exclusiveMaximum}.`);
}

const fits = (pattern, text) => { try { return new RegExp(pattern, "u").test(text); } catch { return true; } };

// `1 h 30 min` as ISO 8601, which is taken as it stands.
export function iso(text) {
  const words = text.trim();
  if (/^P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$/.test(words)) return words;
  const parts = [...words.matchAll(/(\d+(?:\.\d+)?)\s*(d|h|min|m|s)[a-z]*/gi)];
  if (!parts.length || words.replace(/(\d+(?:\.\d+)?)\s*(d|h|min|m|s)[a-z]*/gi, "").trim()) return null;
  const seconds = parts.reduce((sum, [, n, unit]) => sum + Number(n) * { d: 86400, h: 3600, min: 60, m: 60, s: 1 }[unit.toLowerCase()], 0);
  return `PT${seconds}S`;
}

// The pointers of problems at the fields that are shown: one inside of a JSON field stands at that field.
function nearest(problems, pointer) {
  if (problems[pointer]) return problems[pointer];
  const inner = Object.keys(problems).find((each) => each.startsWith(`${pointer}/`));
  return inner === undefined ? undefined : `${inner.slice(pointer.length)}: ${problems[inner]}`;
}

export function Form({ schema, value, change, problems, disabled }) {
  const found = plain(schema, schema);
  const props = { whole: schema, problems, disabled };
  if (kind(found, schema) === "object") return html`<${Fields} ...${props} schema=${found} pointer="" value=${value} change=${change} />`;
  return html`<${Field} ...${props} schema=${{ title: "Answer", ...found }} name="answer" pointer="" required=${true} value=${value} change=${change} />`;
}

// Short fields that follow each other stand side by side.
const SHORT = new Set(["integer", "number", "decimal", "date", "duration"]);

// A definition that is kept has its fields in an order of bytes: then those that are needed come first, as they were written.
function ordered(schema) {
  const names = Object.keys(schema.properties);
  const bytes = [...names].sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
  const needed = (schema.required ?? []).filter((each) => names.includes(each));
  return names.every((each, n) => each === bytes[n]) ? [...needed, ...names.filter((each) => !needed.includes(each))] : names;
}

function Fields({ schema, pointer, value, change, ...props }) {
  const entries = ordered(schema).map((name) => [name, schema.properties[name]]);
  const short = entries.map(([, each]) => SHORT.has(kind(plain(each, props.whole), props.whole)));
  return entries.map(([name, each], n) => html`<${Field} key=${name} ...${props} schema=${each} name=${name} half=${short[n] && (short[n - 1] || short[n + 1])} pointer=${`${pointer}/${escaped(name)}`} required=${(schema.required ?? []).includes(name)} value=${value?.[name]} change=${(part) => change({ ...value, [name]: part })} />`);
}

function Field({ schema: given, name, pointer, required, value, change, whole, problems, disabled, half }) {
  const schema = plain(given, whole);
  const type = kind(schema, whole);
  const id = `f${pointer.replaceAll(/[^\w-]/g, "-") || "-answer"}`;
  const problem = ["object", "list", "union"].includes(type) ? problems[pointer] : nearest(problems, pointer);
  const label = html`${visible(schema.title ?? spaced(name))}${!required && html` <span class="opt">optional</span>`}`;
  const about = [schema.description && `h-${id}`, problem && `p-${id}`].filter(Boolean).join(" ");
  const common = { id, disabled, required, "aria-invalid": problem ? "true" : null, "aria-describedby": about || null };
  const help = schema.description || range(schema, type);
  const told = html`${help && html`<span class="help" id=${`h-${id}`}>${visible(help)}</span>`}${problem && html`<span class="problem" id=${`p-${id}`}><${Shape} name="failed" /><span>${visible(problem)}${pointer && html` <code>${visible(pointer)}</code>`}</span></span>`}`;
  const text = (event) => change(event.target.value);
  const props = { whole, problems, disabled };
  if (type === "object") return html`<fieldset class="inner"><legend>${label}</legend>${told}<div class="form"><${Fields} ...${props} schema=${schema} pointer=${pointer} value=${value ?? {}} change=${change} /></div></fieldset>`;
  if (type === "union") {
    const { tag, of } = branches(schema, whole);
    const chosen = of[value?.[tag]];
    const rest = chosen && { ...chosen, properties: Object.fromEntries(Object.entries(chosen.properties).filter(([each]) => each !== tag)) };
    return html`<fieldset class="inner"><legend>${label}</legend>${told}<div class="form"><div class="line"><label for=${id}>${visible(spaced(tag))}</label><select class="field" ...${common} value=${value?.[tag] ?? ""} onChange=${(event) => change({ ...initial(of[event.target.value], whole), [tag]: event.target.value })}>${Object.keys(of).map((each) => html`<option value=${each}>${each}</option>`)}</select></div>${rest && html`<${Fields} ...${props} schema=${rest} pointer=${pointer} value=${value} change=${change} />`}</div></fieldset>`;
  }
  if (type === "list") {
    const list = Array.isArray(value) ? value : [];
    return html`<fieldset class="inner"><legend>${label}</legend>${told}${list.map((each, n) => html`<div class="item"><${Field} key=${n} ...${props} schema=${{ ...plain(schema.items, whole), title: `${n + 1}` }} name=${n} pointer=${`${pointer}/${n}`} required=${true} value=${each} change=${(part) => change(list.map((old, at) => (at === n ? part : old)))} /><button class="btn only quiet" type="button" aria-label=${`Remove ${n + 1}`} disabled=${disabled} onClick=${() => change(list.filter((_, at) => at !== n))}><${Icon} name="close" /></button></div>`)}
      <button class="btn small" type="button" disabled=${disabled} onClick=${() => change([...list, initial(schema.items, whole)])}><${Icon} name="plus" />Add</button></fieldset>`;
  }
  if (type === "several") {
    const list = Array.isArray(value) ? value : [];
    const options = plain(schema.items, whole).enum;
    return html`<fieldset><legend>${label}</legend><div class="choice many">${options.map((each) => html`<label><input type="checkbox" disabled=${disabled} checked=${list.includes(each)} onChange=${(event) => change(options.filter((one) => (one === each ? event.target.checked : list.includes(one))))} />${visible(String(each))}</label>`)}</div>${told}</fieldset>`;
  }
  const options = schema.enum ?? (schema.const !== undefined ? [schema.const] : []);
  const blank = !required && schema.default === undefined && value !== "" && value !== undefined && value !== null; // what was chosen can be taken back
  if (type === "choice" && options.length <= RADIOS)
    return html`<fieldset><legend>${label}</legend><div class=${`choice${options.length + blank > 2 ? " many" : ""}`}>${options.map((each) => html`<label><input type="radio" name=${id} value=${String(each)} disabled=${disabled} aria-describedby=${about || null} checked=${value === each} onChange=${() => change(each)} />${visible(String(each))}</label>`)}${blank && html`<label class="none"><input type="radio" name=${id} disabled=${disabled} onChange=${() => change("")} />no answer</label>`}</div>${told}</fieldset>`;
  if (type === "boolean") return html`<div class="line"><label class="st tick"><input type="checkbox" ...${{ ...common, required: null }} checked=${Boolean(value)} onChange=${(event) => change(event.target.checked)} /> ${visible(schema.title ?? spaced(name))}</label>${told}</div>`;
  const input =
    type === "choice" ? html`<select class="field" ...${common} value=${String(value ?? "")} onChange=${(event) => change(options.find((each) => String(each) === event.target.value) ?? "")}><option value="">${required ? `choose one of ${options.length}` : "no answer"}</option>${options.map((each) => html`<option value=${String(each)}>${String(each)}</option>`)}</select>`
    : type === "file" ? html`<${File} schema=${schema} common=${common} value=${value} change=${change} />`
    : type === "integer" || type === "number" || type === "decimal" ? html`<input class="field num" inputmode="decimal" autocomplete="off" ...${common} value=${value} onInput=${text} />`
    : type === "date" ? html`<input class="field" type=${DATES[schema.format]} ...${common} value=${local(schema, value)} onInput=${text} />`
    : type === "duration" ? html`<input class="field" placeholder="1 h 30 min" autocomplete="off" ...${common} value=${value} onInput=${text} />`
    : type === "json" ? html`<textarea class="field mono" rows="3" spellcheck="false" ...${common} value=${typeof value === "string" ? value : json(value, 1)} onInput=${text}></textarea>`
    : one(schema) ? html`<input class="field" ...${common} type=${schema.format === "email" ? "email" : schema.format === "uri" ? "url" : "text"} value=${value} onInput=${text} autocomplete="off" />`
    : html`<textarea class=${`field${schema["x-widget"] === "textarea" ? "" : " grows"}`} rows=${schema["x-widget"] === "textarea" ? 4 : 2} ...${common} value=${value} onInput=${text}></textarea>`;
  return html`<div class=${`line${half ? " half" : ""}`}><label for=${id}>${label}${type === "json" && html` <span class="opt">JSON</span>`}</label>${input}${told}</div>`;
}

// Whether a text is one line.
const one = (schema) => schema["x-widget"] !== "textarea" && (schema.short || schema["x-widget"] || schema.format || (schema.maxLength && schema.maxLength <= 120));

const range = (schema, type) => {
  if (!["integer", "number", "decimal"].includes(type)) return "";
  const [low, high] = [schema.minimum ?? schema.exclusiveMinimum, schema.maximum ?? schema.exclusiveMaximum];
  return low !== undefined && high !== undefined ? `${figure(low)} to ${figure(high)}` : low !== undefined ? `At least ${figure(low)}` : high !== undefined ? `At most ${figure(high)}` : "";
};

// A recorded time, as the field of this browser shows it: in local time, without a zone.
function local(schema, value) {
  if (schema.format !== "date-time" || !/(Z|[+-]\d\d:\d\d)$/.test(value ?? "")) return value;
  const at = new Date(value);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

// A file goes into the answer as base64, and is kept with it.
function File({ schema, common, value, change }) {
  const input = useRef(null);
  const most = schema.maxLength ? Math.min(FILE_MAX, Math.floor((schema.maxLength * 3) / 4)) : FILE_MAX;
  const take = (file) => {
    if (!file) return;
    if (file.size > most) return change({ name: file.name, size: file.size, problem: `It has ${figure(file.size)} bytes; ${figure(most)} are the most.` });
    const reader = new FileReader();
    reader.onload = () => change({ name: file.name, size: file.size, data: reader.result.slice(reader.result.indexOf(",") + 1) });
    reader.readAsDataURL(file);
  };
  const has = isObject(value) ? value.name : typeof value === "string" && value ? "the file of now" : "";
  const drop = (event) => { event.preventDefault(); if (!common.disabled) take(event.dataTransfer.files[0]); };
  return html`<div class="drop" onDragOver=${(event) => event.preventDefault()} onDrop=${drop}><${Icon} name="file" />${has ? html`<span class="file">${visible(has)}${isObject(value) && html`, ${figure(value.size)} bytes`}</span><button class="btn small" type="button" disabled=${common.disabled} onClick=${() => { change(""); input.current.value = ""; }}>Remove</button>` : html`<span class="muted">Drop a file here, or choose one. At most ${figure(Math.floor(most / 1_000_000))} MB.</span>`}
    <input type="file" ref=${input} ...${common} required=${null} accept=${schema.contentMediaType ?? null} onChange=${(event) => take(event.target.files[0])} />${isObject(value) && value.problem && html`<span class="problem"><${Shape} name="failed" />${value.problem}</span>`}</div>`;
}
