// A definition that is data: typed beside its line numbers, checked while it is typed, put, and activated after a preview.
import { html, useEffect, useLayoutEffect, useRef, useState, useModal } from "./html.js";
import { part, send } from "./api.js";
import { command, count, figure, visible } from "./format.js";
import { Cmd, Request, Shape, Trouble } from "./parts.js";
import { Dialog } from "./dialog.js";
import { Changes } from "./source.js";

const KINDS = { playbook: "playbooks", process: "processes" };

// `kept`: the text of the version that new instances run on, if a version is written anew.
export function Put({ kept = "", name = "", close }) {
  const [text, setText] = useState(kept);
  const [found, setFound] = useState(null);
  const [activate, setActivate] = useState(false);
  const [compare, setCompare] = useState(false);
  const [error, setError] = useState(null);
  const [box, area, nums] = [useRef(null), useRef(null), useRef(null)];
  useModal(box);
  useLayoutEffect(() => {
    area.current.setSelectionRange(0, 0);
    area.current.scrollTop = 0;
  }, []);
  useEffect(() => {
    if (!text.trim()) return setFound(null);
    let gone = false;
    const later = setTimeout(() => send("POST", "/workflows/check", { text }).then((answer) => gone || setFound(answer), (problem) => gone || setFound({ ok: false, problems: [{ pointer: "", detail: problem.message }] })), 300); // not at every key
    return () => { gone = true; clearTimeout(later); };
  }, [text]);
  const hits = new Set((found?.problems ?? []).map((each) => Number(each.pointer.match(/^(\d+):\d+$/)?.[1])));
  const jump = (pointer) => {
    const [line, column] = pointer.split(":").map(Number);
    const at = text.split("\n").slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + (column || 1) - 1;
    area.current.focus();
    area.current.setSelectionRange(at, at);
    area.current.scrollTop = Math.max(0, (line - 5) * (area.current.scrollHeight / text.split("\n").length));
  };
  const tab = (event) => { // two spaces; Esc leaves the field, so that the keyboard is not caught here
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); box.current.querySelector("footer button").focus(); }
    if (event.key !== "Tab" || event.shiftKey || event.ctrlKey) return;
    event.preventDefault();
    event.target.setRangeText("  ", event.target.selectionStart, event.target.selectionEnd, "end");
    setText(event.target.value);
  };
  const body = { text, activate };
  const submit = async (event) => {
    event.preventDefault();
    try { close(await send("POST", "/workflows", body)); } catch (problem) { setError(problem); setFound({ ok: false, problems: (problem.problem?.errors ?? []).map((each) => ({ hint: "", ...each })) }); }
  };
  return html`<dialog class="dialog wide put" ref=${box} aria-labelledby="h-put" onClose=${() => close()}><form onSubmit=${submit} novalidate>
    <header><h2 id="h-put">${name ? `Put another version of ${name}` : "Put a definition"}</h2></header>
    <div class="part form"><div class="line"><label for="d-text">Definition <span class="opt">a playbook in YAML, or a process in YAML or JSON</span></label>
      ${compare ? html`<${Changes} before=${kept} after=${text} />` : html`<div class="typed"><div class="nums" ref=${nums} aria-hidden="true">${text.split("\n").map((_, n) => html`<span class=${hits.has(n + 1) ? "hit" : ""}>${n + 1}${"\n"}</span>`)}</div><textarea id="d-text" ref=${area} spellcheck="false" autocomplete="off" wrap="off" aria-describedby="dry" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${tab} onScroll=${(event) => { nums.current.scrollTop = event.target.scrollTop; }}></textarea></div>`}
      <span class="help">The same text again writes nothing. <kbd>Tab</kbd> indents, <kbd>Esc</kbd> leaves the field.</span></div>
      <div id="dry" role="status">${!found ? html`<p class="muted">It is checked while you type.</p>` : found.ok ? html`<p class="st st-completed"><${Shape} name="completed" />Keep the ${found.noun} ${visible(found.name)}, version ${visible(found.version)}.</p>` : html`<p class="st-failed">${count(found.problems.length, "problem")}</p><ul class="found">${found.problems.map((each) => html`<li>${/^\d+:\d+$/.test(each.pointer) ? html`<button class="plain link" type="button" onClick=${() => jump(each.pointer)} aria-label=${`Go to line ${each.pointer.replace(":", ", column ")}`}>${each.pointer}</button>` : html`<code class="muted">${visible(each.pointer)}</code>`}<span>${visible(each.detail)}${each.hint && html` <span class="muted">${visible(each.hint)}</span>`}</span></li>`)}</ul>`}</div>
      <div class="line"><label class="st"><input type="checkbox" checked=${activate} onChange=${(event) => setActivate(event.target.checked)} /> New instances run on it, also when another version is put later</label>
        <span class="help">Else they run on the version that was activated; if none was, on ${found?.noun === "process" ? "the highest one" : "the one put last"}.</span></div></div>
    ${error && html`<div class="part"><${Trouble} error=${error} /></div>`}
    <div class="part"><h3 class="label">the same as a command, and as a request</h3><${Cmd} text=${command(KINDS[found?.noun] ?? "playbooks", "put", "FILE", ...(activate ? ["--activate"] : []))} /><${Request} of=${["POST", "/workflows", { text: text.length > 60 ? `${text.slice(0, 60)}…` : text, activate }]} /></div>
    <footer>${kept && text !== kept && html`<button class="btn" type="button" onClick=${() => setCompare(!compare)}>${compare ? "Edit" : "Compare with the one kept"}</button>`}<button class="btn quiet" type="button" onClick=${() => close()}>Leave it</button><button class="btn first" type="submit" disabled=${!found?.ok}>Put it</button></footer></form></dialog>`;
}

const at = (unfit) => `${figure(unfit.count)} ${unfit.error === "Divergence" ? "diverge" : `end with ${unfit.error}`}${unfit.location ? ` at ${unfit.location}` : ""}`;

// `190 safe, 2 diverge at charge`: what a version would do with live instances.
export function told(preview) {
  const { live, looked, safe, unfit, partial, stay } = preview;
  if (!live) return ["No instance is live."];
  const found = [`${[`${figure(safe)} safe`, ...unfit.map(at)].join(", ")}${partial ? `; ${figure(looked)} of ${figure(live)} were looked at` : `, of ${figure(live)} live`}.`];
  for (const each of unfit) for (const one of each.sample.slice(0, 3)) found.push(`${one.id}${one.divergence ? `: ${one.divergence.split("\n")[0]}` : ""}`);
  if (stay) found.push("Live instances stay on the version that they began with.");
  return found;
}

// What a version would do with live instances, without any change.
export function Preview({ name, version, close }) {
  const request = () => ["POST", `/workflows/${part(name)}/-/preview`, { version }];
  return html`<${Dialog} title=${`Preview ${name} ${version}`} label="Close" says="Each live instance is replayed on this version, without effects." preview=${async () => ({ would: told(await send(...request())) })} request=${request} run=${async () => null} close=${close} />`;
}

export function Activate({ name, noun, version, close }) {
  const path = `/workflows/${part(name)}/-/activate`;
  const preview = async () => {
    const dry = await send("POST", path, { version, dry_run: true });
    return { would: [`New instances run on ${version}${dry.now === version ? ", as they do now" : `, no longer on ${dry.now}`}.`, ...told(dry.preview)], plan: dry.plan };
  };
  return html`<${Dialog} title=${`Activate ${name} ${version}`} label="Activate" preview=${preview} cmd=${() => command(KINDS[noun], "activate", name, version)} request=${(_, plan) => ["POST", path, { version, ...(plan ? { plan } : {}) }]} moved=${async () => ["another version was put or activated"]} close=${close} />`;
}

// Live instances go on under another version: what the dry run says of each, and a map of the steps that have another name there.
export function Migrate({ name, version, close }) {
  const path = `/workflows/${part(name)}/-/migrate`;
  const names = (g) => { try { return g.map?.trim() ? JSON.parse(g.map) : {}; } catch { return null; } };
  const body = (g) => ({ to: version, map: names(g) ?? {} });
  const preview = async (g) => {
    if (!names(g)) return { none: "The map is not JSON." };
    const dry = await send("POST", path, { ...body(g), dry_run: true });
    const go = dry.migrated.length > 20 ? [...dry.migrated.slice(0, 20), `${count(dry.migrated.length - 20, "other")}`] : dry.migrated;
    const stay = dry.left.slice(0, 10).map((each) => `${each.id} stays: ${each.why}`);
    const rest = dry.left.length > 10 ? [`${count(dry.left.length - 10, "other")} stay.`] : [];
    return { would: [`${count(dry.migrated.length, "instance")} would go on under ${version}${go.length ? `: ${go.join(", ")}` : ""}.`, ...stay, ...rest, ...(dry.more ? [`${figure(dry.more)} more were not looked at; ask again for them.`] : [])], plan: dry.plan, none: go.length ? "" : "Nothing would migrate." };
  };
  const fields = [{ name: "map", label: "Steps that have another name there, as JSON", json: true, optional: true, dry: true, value: "{}", help: "By the old location: {\"decision\": \"verdict\"}. The step asks for the same there; a task keeps its name." }, { name: "reason", label: "Reason", optional: true, help: "Recorded in the journal, with your name." }];
  return html`<${Dialog} title=${`Migrate live instances of ${name} to ${version}`} label="Migrate" risk=${true} says="What an instance stands at must be in this version, of the same kind. What does not fit is left alone." fields=${fields} preview=${preview} cmd=${(g) => command("processes", "migrate", name, version, ...Object.entries(names(g) ?? {}).flatMap((each) => ["--map", each.join("=")]))} request=${(g, plan) => ["POST", path, { ...body(g), ...(plan ? { plan } : {}) }, g.reason ? { "x-reason": g.reason } : {}]} moved=${async () => ["an instance went on, and other instances fit now"]} close=${close} />`;
}
