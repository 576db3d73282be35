// The frame of all pages: bar, page, foot, keys. Pages load when they are first opened.
import { html, render, useState, useEffect, useRef } from "./lib/html.js";
import { get, logout } from "./lib/api.js";
import { go, href, listen, place } from "./lib/router.js";
import { Bones, Empty, Icon, Shape, Trouble } from "./lib/parts.js";
import { next, theme } from "./lib/theme.js";
import { clock, figure, use, visible, zoneName } from "./lib/format.js";
import { Keys, keys } from "./lib/keys.js";
import { Palette } from "./lib/palette.js";
import { calm, watch } from "./lib/stream.js";

const PAGES = [
  { name: "Dashboard", path: "/", file: "dashboard", key: "d" },
  { name: "Instances", path: "/instances", file: "instances", key: "i" },
  { name: "Tasks", path: "/tasks", file: "tasks", key: "t" },
  { name: "Workflows", path: "/workflows", file: "workflows", key: "w" },
  { name: "World", path: "/world", file: "world", key: "c" },
  { name: "Queues", path: "/queues", file: "queues", key: "q" },
  { name: "Fleet", path: "/fleet", file: "fleet", key: "f" },
  { name: "Settings", path: "/settings", file: "settings", key: "s" },
];
const loaded = new Map();

function route(path) {
  if (path === "/compare" || path === "/bulk") return { page: PAGES[1], file: path.slice(1), rest: "" };
  if (path.startsWith("/instances/")) return { page: PAGES[1], file: "instance", rest: decodeURIComponent(path.slice(11)) };
  const page = path === "/" ? PAGES[0] : PAGES.find((each) => each.path !== "/" && (path === each.path || path.startsWith(`${each.path}/`)));
  if (!page) return { page: null, file: "", rest: path };
  return { page, file: page.file, rest: decodeURIComponent(path.slice(page.path.length + 1)) };
}

function useModule(file) {
  const [found, setFound] = useState(() => loaded.get(file));
  const [lost, setLost] = useState(null);
  useEffect(() => {
    setLost(null);
    if (!file) return;
    if (loaded.has(file)) return setFound(() => loaded.get(file));
    import(`./pages/${file}.js`).then((module) => {
      loaded.set(file, module.default);
      setFound(() => module.default);
    }, () => setLost(file));
  }, [file]);
  return [loaded.get(file) === found ? found : loaded.get(file), lost === file];
}

function App() {
  const [, turn] = useState(0);
  const [me, setMe] = useState(null);
  const [error, setError] = useState(null);
  const [live, setLive] = useState(null);
  const [off, setOff] = useState(""); // since when it is not live
  useEffect(() => setOff(live === false ? new Date().toISOString() : ""), [live]);
  const [late, setLate] = useState(0);
  const [help, setHelp] = useState(false);
  const [notice, setNotice] = useState("");
  useEffect(() => {
    const heard = (event) => setNotice(event.detail);
    addEventListener("perdure-notice", heard);
    return () => removeEventListener("perdure-notice", heard);
  }, []);
  const [shade, setShade] = useState(theme());
  useEffect(() => listen(() => turn((n) => n + 1)), []);
  useEffect(() => { get("/whoami").then((found) => { use(found.database); setMe(found); }, setError); }, []);
  useEffect(() => {
    const look = () => get("/tasks/count", { candidate: true, due_before: new Date().toISOString() }).then((found) => setLate(found.count), () => {});
    look();
    const timer = setInterval(look, 60000); // a task becomes late without an event
    const stop = watch(["tasks:mine"], calm(look, 500));
    return () => { clearInterval(timer); stop(); };
  }, []);
  const [fleet, setFleet] = useState(null);
  useEffect(() => { // the line at the foot
    const look = () => document.hidden || get("/fleet").then(setFleet, () => {});
    look();
    const timer = setInterval(look, 30000);
    return () => clearInterval(timer);
  }, []);
  const [asks, setAsks] = useState(null); // the text that the palette begins with
  useEffect(() => {
    const heard = (event) => setAsks(event.detail);
    addEventListener("perdure-ask", heard);
    return () => removeEventListener("perdure-ask", heard);
  }, []);
  useEffect(() => keys(PAGES, { help: () => setHelp(true), palette: () => setAsks("") }), []);
  const { path, query } = place();
  const { page, file, rest } = route(path);
  const [Page, lost] = useModule(file);
  const shown = file === "tasks" ? file : file + rest; // a list and what is chosen of it are one page
  useEffect(() => { document.title = `${rest || page?.name} · perdure`; }, [file, rest]);
  useEffect(() => setLive(null), [shown]);
  useEffect(() => { // on a phone the row of pages is longer than the screen
    const [nav, here] = [document.querySelector(".nav"), document.querySelector(".nav [aria-current]")];
    if (here && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
  }, [page]);
  return html`<a class="skip" href="#main">Skip to the page</a>
<header class="bar">
  <a class="brand" href=${href("/")}><svg viewBox="0 0 20 20" aria-hidden="true"><path d="M2 3h2.500v14H2zM6.500 3H9v14H6.500zM11 3h2.500v14H11z" /><path class="open" d="M16.100 3.600h1.800v12.800h-1.800z" /></svg>perdure</a>
  ${me && html`<span class="book" title=${`The database that this page reads: ${me.database}`}><span>${me.database}</span></span>`}
  <nav class="nav" aria-label="Pages">${PAGES.map((each) => html`<a href=${href(each.path)} aria-current=${each === page ? "page" : null}>${each.name}${each.file === "tasks" && late ? html`<span class="n late">${late} late</span>` : null}</a>`)}</nav>
  <div class="bar-end">
    <button class="find" type="button" aria-label="Find or do anything" onClick=${() => setAsks("")}><${Icon} name="search" /><span>Find or do anything</span><kbd>Ctrl K</kbd></button>
    <button class="btn quiet only" type="button" onClick=${() => setShade(next())} aria-label=${`Theme: ${shade}. Change it`} title=${`Theme: ${shade}`}><${Icon} name="theme" /></button>
    ${me && html`<button class="btn quiet who" type="button" onClick=${logout} title=${`${me.id}, ${me.grants[0]?.role ?? "no role"}. Log out`}><${Icon} name="person" /><span>${me.id}</span></button>`}
  </div>
</header>
<main id="main" tabindex="-1">
  ${notice && html`<${Notice} text=${notice} />`}
  ${live === false && html`<div class="stale" role="status"><span class="live off">not live${off && ` since ${clock(off)}`}</span><span>The stream broke off, and is tried again by itself. What you see may be old${fleet && html`: the journal was at <code>${figure(entries(fleet))}</code>`}.</span><button class="btn small" type="button" onClick=${() => location.reload()}>Try now</button></div>`}
  ${error ? html`<${Trouble} error=${error} />` : !page ? html`<div class="sheet"><${Empty} title="There is no such page"><p class="second">Nothing stands at <code>${visible(path)}</code>.</p><a class="btn" href=${href("/")}>Go to the dashboard</a><//></div>` : Page && me ? html`<${Page} key=${shown} rest=${rest} query=${query} me=${me} setLive=${setLive} />` : lost ? html`<${Trouble} error="The server does not answer: this page could not be loaded." again=${() => location.reload()} />` : html`<${Bones} />`}
</main>
<footer class="foot">${live === null ? html`<span class="calm">read once</span>` : html`<span class=${`live${live ? "" : " off"}`}>${live ? "live" : `not live${off && ` since ${clock(off)}`}`}</span>`}
  ${fleet && html`<${Standing} of=${fleet} />`}
  ${me?.read_only && html`<span>read-only</span>`}
  <span class="end"><span>times in ${zoneName()}</span><button class="plain" type="button" onClick=${() => setHelp(true)}><kbd>?</kbd> keys</button></span></footer>
${help && html`<${Keys} pages=${PAGES} close=${() => setHelp(false)} />`}
${asks !== null && html`<${Palette} begin=${asks} pages=${PAGES} close=${() => setAsks(null)} more=${[{ text: "Change the theme", icon: "theme", hint: shade, run: () => setShade(next()) }, { text: "Compare two instances", icon: "right", run: () => go(href("/compare")) }, { text: "Keys", icon: "info", hint: html`<kbd>?</kbd>`, run: () => setHelp(true) }, { text: "Log out", icon: "person", hint: me?.id, run: logout }]} />`}`;
}

// Why `perdure dev` did not take new code over: a few lines of it until it is opened, and never more than a quarter of the window.
function Notice({ text }) {
  const [open, setOpen] = useState(false);
  const [long, setLong] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (open) return;
    const sized = new ResizeObserver(([{ target }]) => setLong(target.scrollHeight > target.clientHeight + 1));
    sized.observe(box.current);
    return () => sized.disconnect();
  }, [text, open]);
  return html`<div class="stale"><div class="old-code" role="alert"><span class="st st-failed"><${Shape} name="failed" />the old code goes on</span><pre class=${`notice${open ? " open" : ""}`} ref=${box} tabindex=${open ? 0 : null} id="notice">${visible(text)}</pre></div>${long && html`<button class="btn small" type="button" aria-expanded=${String(open)} aria-controls="notice" onClick=${() => setOpen(!open)}>${open ? "Show less" : "Show all"}</button>`}</div>`;
}

// How far the journal is, and who moves it.
const entries = (of) => Number(Object.values(of.entries).reduce((sum, each) => sum + (BigInt(each) & ((1n << 48n) - 1n)), 0n));

function Standing({ of }) {
  const shards = of.engines.reduce((sum, each) => sum + each.shards, 0);
  return html`<span>journal at <b class="mono">${figure(entries(of))}</b></span>${of.engines.length ? html`<span><b>${of.engines.length}</b> ${of.engines.length === 1 ? "engine" : "engines"}, <b>${shards}</b> ${shards === 1 ? "shard" : "shards"}</span>` : html`<span class="late">no engine runs: nothing moves</span>`}`;
}

const app = document.querySelector("#app");
app.replaceChildren(); // the bar of index.html, which stood there while the modules came
render(html`<${App} />`, app);
