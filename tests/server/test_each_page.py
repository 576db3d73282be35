"""Each page of the web UI: by keyboard alone, at 400 % zoom, offline and over a slow line."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.server.browser import Heard
from tests.server.pages import GO, PAGES, furnished

LISTEN = r"""() => {
    const wanted = "a[href], button, input, select, textarea, summary, [tabindex]";
    const usable = (each) => !each.disabled && each.tabIndex >= 0 && each.checkVisibility({ visibilityProperty: true });
    const name = (each) => `${each.localName}.${[...each.classList].join(".")} ${(each.ariaLabel || each.textContent
        || each.title || each.name || "").trim().slice(0, 40)}`;
    window.tabbed = { all: [...document.querySelectorAll(wanted)].filter(usable), reached: [], plain: [], back: [] };
    document.body.tabIndex = -1; // Tab begins at the top
    document.body.focus();
    document.body.removeAttribute("tabindex");
    let before = null;
    window.listening?.abort(); // what listened on the page before
    window.listening = new AbortController();
    const box = (each) => { const { left, right, top, bottom } = each.getBoundingClientRect();
        return { left, right, top: top + scrollY, bottom: bottom + scrollY, each }; };
    const backwards = (a, b) => b.bottom <= a.top + 1 ? b.left < a.right - 1
        : a.bottom > b.top + 4 && b.bottom > a.top + 4 && b.right <= a.left + 1;
    addEventListener("focusin", ({ target }) => {
        const { reached, plain, back } = window.tabbed;
        if (reached.includes(target)) return;
        reached.push(target);
        const style = getComputedStyle(target);
        const drawn = target.querySelector?.(":scope > .box"); // a node of a drawing has a line of its own
        const seen = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2)
            || (drawn && parseFloat(getComputedStyle(drawn).strokeWidth) >= 2);
        if (!target.matches(":focus-visible") || !seen) plain.push(name(target));
        const now = target.closest("main") && !target.closest(".tall, .scroll, svg") ? box(target) : null;
        if (before && now && backwards(before, now)) back.push(`${name(before.each)} -> ${name(target)}`);
        before = now;
    }, window.listening);
    window.tabbed.name = name;
}"""
"""What can be used, and what the focus reaches from now on, in which order, and whether one sees it.

An element that the keyboard reaches after another one stands below it or right of it.
"""

ROUND = """() => { const { reached, last } = window.tabbed; window.tabbed.last = reached.length;
    return reached.length > 0 && reached.length === last; }"""
"""Whether the focus found nothing new since it was asked before: it has been everywhere."""

TOLD = """() => {
    const { all, reached, plain, back, name } = window.tabbed;
    const far = all.filter((each) => each.isConnected && !reached.includes(each)
        && !(each.type === "radio" && reached.some((other) => other.name === each.name)));
    const order = reached.filter((each, n) => n && each.isConnected && reached[n - 1].isConnected
        && !(reached[n - 1].compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING));
    return { far: far.map(name), plain, back, order: order.map(name), reached: reached.length };
}"""


@pytest.fixture(scope="module")
def stage():
    with furnished() as found:
        yield found


@pytest.fixture(scope="module")
def walked(stage):
    """What was found on each page: by the keyboard, at 320 pixels, and without the server."""
    found = {}

    async def story(site, page):
        for path, sign in stage.pages.items():
            await page.evaluate(GO, path)
            await page.wait_for_selector(sign)
            await page.wait_for_selector("[aria-busy=true]", state="detached")
            await page.evaluate(LISTEN)
            while not await page.evaluate(ROUND):
                for _ in range(20):
                    await page.keyboard.press("Tab")
            found[path] = await page.evaluate(TOLD)
        await page.set_viewport_size({"width": 320, "height": 256})
        for path, sign in stage.pages.items():
            await page.evaluate(GO, path)
            await page.wait_for_selector(sign)
            found[path]["wide"] = await page.evaluate(WIDE)

    stage.tell(story, seconds=300)
    return {re.sub(r"^/tasks/\d+$", "/tasks/{task}", path): each for path, each in found.items()}


WIDE = """() => {
    if (document.documentElement.scrollWidth <= 320) return [];
    const wide = (each) => each.getBoundingClientRect().right > 321 && !each.closest(".scroll, .tall, .draw, pre, nav");
    const found = [...document.querySelectorAll("main *")].filter(wide).slice(0, 8);
    return ["too wide", ...found.map((each) => `${each.localName}.${each.getAttribute("class")}`)];
}"""
"""What makes a page scroll sideways, besides tables and drawings, which have room of their own."""


@pytest.mark.parametrize("path", PAGES)
def test_all_of_a_page_is_reached_by_tab_in_reading_order_with_visible_focus(walked, path):
    found = walked[path]

    assert found["reached"] > 10
    assert found["far"] == [], "what Tab does not reach"
    assert found["order"] == [], "what is reached before what stands above it in the document"
    assert found["back"] == [], "where the focus goes back"
    assert found["plain"] == [], "where one does not see the focus"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_at_400_percent_does_not_scroll_sideways(walked, path):
    assert walked[path]["wide"] == []


DRAWN = """async () => { for (let n = 0; n < 8; n += 1) await new Promise(requestAnimationFrame); }"""
"""What was asked for by timers without delay is on its way."""


def test_a_page_asks_for_nothing_twice_when_it_opens(stage):
    heard = Heard()

    async def opened(site, page, path, sign, go):
        heard.asked.clear()
        await go(path)
        await page.wait_for_selector(sign)
        await page.wait_for_selector("[aria-busy=true]", state="detached")
        await page.wait_for_selector(".foot .live:not(.off), .foot .calm")
        await page.evaluate(DRAWN)
        asked = [url.removeprefix(site.url) for url in heard.asked if "/api/v1/" in url and "/stream" not in url]
        return {url for url in asked if asked.count(url) > 1}

    async def story(site, page):
        found = {}
        for path, sign in stage.pages.items():
            found[path] = await opened(site, page, path, sign, lambda path: page.evaluate(GO, path))
        for path in ("/", "/instances"):
            urls = await opened(site, page, path, stage.pages[path], lambda path: page.goto(site.url + path))
            found[f"{path} loaded"] = urls - {"/api/v1/fleet"}  # the line at the foot tells of the fleet, too
        return {path: urls for path, urls in found.items() if urls}

    assert stage.tell(story, seconds=300, heard=heard) == {}


KEYS = {
    "Ctrl K": ("/", [("Control+k", ".palette")]),
    "/": ("/instances", [("/", "[data-filter]:focus")]),
    "?": ("/", [("?", "#keys")]),
    "Esc": (
        "/instances",
        [
            ("?", "#keys"),
            ("Escape", "body:not(:has(dialog))"),
            ("j", "tbody [data-row]:focus"),
            ("x", ".pick"),
            ("Escape", "main:not(:has(.pick))"),
        ],
    ),
    "j k": (
        "/instances",
        [
            ("j", "tbody tr:nth-child(1) :focus"),
            ("j", "tbody tr:nth-child(2) :focus"),
            ("k", "tbody tr:nth-child(1) :focus"),
        ],
    ),
    "Enter": ("/instances", [("j", "tbody :focus"), ("Enter", ".inst-head")]),
    "x": ("/instances", [("j", "tbody :focus"), ("x", ".pick")]),
    "[ ]": ("/instances/counting/keys", [("[", ".travel.is-past"), ("]", ".travel:not(.is-past)")]),
    "+ - 0": (
        "/instances/counting/keys",
        [("+", "zoom=25.00-75.00"), ("-", "zoom="), ("+", "zoom=25.00-75.00"), ("0", "zoom=")],
    ),
    "Shift ← →": (
        "/instances/counting/keys?zoom=25.00-75.00",
        [("j", "[data-n]:focus"), ("Shift+ArrowRight", "zoom=37.50-87.50"), ("Shift+ArrowLeft", "zoom=25.00-75.00")],
    ),
    "← →": (
        "/instances/counting/keys",
        [("j", "[data-n]:focus"), ("ArrowRight", "[aria-expanded=true]"), ("ArrowLeft", "[aria-expanded=false]")],
    ),
    "g d": ("/instances", [("g", "body"), ("d", ".totals")]),
    **{
        f"g {key}": ("/", [("g", "body"), (key, f"[aria-current=page] >> text={name}")])
        for key, name in [
            ("i", "Instances"),
            ("t", "Tasks"),
            ("w", "Workflows"),
            ("c", "World"),
            ("q", "Queues"),
            ("f", "Fleet"),
            ("s", "Settings"),
        ]
    },
}
"""Keys of the help: a page, and what is there after each press: a selector, or `zoom=` of the address."""


def zoom_of(url):
    return parse_qs(urlsplit(url).query).get("zoom", [""])[0]


def test_each_key_of_the_help_does_what_it_says(stage):
    async def story(site, page):
        await (await site.engine.start("counting", key="keys", n=6)).result(60)
        await page.keyboard.press("?")
        rows = page.locator("#keys dt")
        shown = {" ".join(await row.locator("kbd").all_inner_texts()) for row in await rows.all()}
        for path, presses in KEYS.values():
            await page.goto(site.url + path)
            await page.wait_for_selector(".ledger, [data-n]")
            for key, sign in presses:
                await page.keyboard.press(key)
                if sign.startswith("zoom="):
                    await page.wait_for_url(
                        lambda url, zoom=sign[5:]: parse_qs(urlsplit(url).query).get("zoom", [""]) == [zoom]
                    )
                else:
                    await page.wait_for_selector(sign, state="attached")
        return shown

    assert stage.tell(story) == set(KEYS)


def kinds(stage):
    """Pages that are another code, each once."""
    return {
        path: sign for path, sign in stage.pages.items() if "?" not in path or path.startswith(("/compare", "/world"))
    }


PRESS = """() => {
    const buttons = [...document.querySelectorAll("main [role=alert] button")];
    for (const each of buttons) if (each.textContent === "Try again") each.click();
}"""
"""The stream may have come back, and the page with it, before the button is pressed."""


def test_each_page_says_that_the_server_is_away_and_comes_back_by_its_button(stage):
    async def story(site, page):
        said = {}
        for path, sign in kinds(stage).items():
            await page.evaluate(GO, path)
            await page.wait_for_selector(sign)  # its module and its style are here
        for path, sign in kinds(stage).items():
            await page.evaluate(GO, "/nowhere")
            await page.context.set_offline(True)
            await page.evaluate(GO, path)
            said[path] = await page.inner_text("main [role=alert] >> nth=0")
            await page.context.set_offline(False)
            while not await page.locator(sign).count():  # a part of a page may have a button of its own
                await page.evaluate(PRESS)
                await page.wait_for_timeout(20)
        return said

    said = stage.tell(story)

    assert [path for path, text in said.items() if "not-reached" not in text] == []


def test_each_page_shows_bones_on_a_slow_line_and_does_not_jump(stage):
    """A shift of more than a tenth of the window is a jump."""

    async def story(site, page):
        found = {}
        session = await page.context.new_cdp_session(page)
        slow = {"offline": False, "latency": 400, "downloadThroughput": -1, "uploadThroughput": -1}
        for path, sign in kinds(stage).items():
            await page.goto(site.url + path)
            await page.wait_for_selector(sign)
            await page.evaluate(GO, "/nowhere")
            await page.wait_for_selector("text=There is no such page")
            await session.send("Network.emulateNetworkConditions", slow)
            await page.evaluate(SHIFTS)
            await page.evaluate(GO, path)
            await page.wait_for_selector(".loading:not(.early), section[aria-busy=true]:not(.early)")
            await page.wait_for_selector(sign)
            found[path] = await page.evaluate("window.shifted")
            await session.send("Network.emulateNetworkConditions", {**slow, "latency": 0})
        return found

    found = stage.tell(story, seconds=300)

    assert {path: each for path, each in found.items() if each > 0.1} == {}


SHIFTS = """() => {
    window.shifted = 0;
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) window.shifted += each.value;
    }).observe({ type: "layout-shift" });
}"""
