"""S7: the web UI in a real browser: bytes of a first visit, first paint, and frames while a person scrolls.

A first visit has an empty cache. Its first paint is compared with that of an empty page of the same server, in turns. A
frame is the time between two calls of `requestAnimationFrame` while the page scrolls by itself; the same is done on a
page of plain text, because a browser without a graphics card draws slowly whatever it draws.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from bench.measure import Bar, Figure, Lost, Measures, Workload, verify
from bench.served import Served, running

TIMES: Final = 5
ROWS: Final = 10_000
OPERATIONS: Final = 40_000
FRAMES: Final = 240

SCROLL: Final = """async ([selector, frames, step]) => {
    const box = selector ? [...document.querySelectorAll(selector)].at(-1) : document.scrollingElement;
    const times = [];
    let before = performance.now();
    for (let n = 0; n < frames; n++) {
        box.scrollTop = (n * step) % Math.max(1, box.scrollHeight - box.clientHeight);
        const now = await new Promise(requestAnimationFrame);
        times.push(now - before);
        before = now;
    }
    return times.slice(5);
}"""
PAINT: Final = """() => new Promise((tell) => new PerformanceObserver((list) => {
    const found = list.getEntriesByName('first-contentful-paint')[0];
    if (found) tell(found.startTime);
}).observe({ type: 'paint', buffered: true }))"""
BYTES: Final = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter((each) => !each.name.includes('/api/')).reduce((sum, each) => sum + each.encodedBodySize, 0)"""
PLAIN: Final = "<!doctype html><title>x</title><p>" + "<br>".join(f"line {n}" for n in range(20_000))


def on_perdure(place: Path) -> Measures:
    browser = os.environ.get("BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        raise Lost("there is no browser: BROWSER names one")
    return asyncio.run(_measure(place, browser))


async def _measure(place: Path, path: str) -> Measures:
    from playwright.async_api import async_playwright

    async with running("perdure", str(place / "web.db")) as served, async_playwright() as playwright:
        await served.order("fill", ROWS)
        await served.order("spread", OPERATIONS)
        await served.open()
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        found = await _paints(browser, served)
        page = await _logged_in(browser, served)
        site = f"http://127.0.0.1:{served.port}"
        await page.route("**/plain", lambda route: route.fulfill(body=PLAIN, content_type="text/html"))
        await page.goto(f"{site}/plain")
        plain = await _frames(page, "")
        await page.goto(f"{site}/instances?q=workflow:waiting")
        await page.wait_for_selector(".ledger.inst tbody tr")
        rows = await _frames(page, "")
        verify(await page.locator("main tr").count() <= 600, "more than 600 rows are in the page")
        await page.goto(f"{site}/instances/spreading/c-{OPERATIONS}?tab=timeline")
        await page.wait_for_selector(".tall [role=row]")
        await page.click("[role=treegrid] [title$=' times']")  # a loop is folded at first
        await page.wait_for_selector("[role=treegrid] [data-n='20']")
        tall = await page.evaluate("() => [...document.querySelectorAll('.tall')].at(-1).scrollHeight")
        verify(tall > OPERATIONS, f"the timeline is only {tall} pixels high")
        timeline = await _frames(page, ".tall")
        verify(await page.locator("tr, [role=row]").count() <= 600, "more than 600 rows are in the page")
        await browser.close()
    frames = {"rows": rows, "timeline": timeline, "plain": plain}
    return found | frames | {"rows_plain": rows / plain, "timeline_plain": timeline / plain}


async def _paints(browser: Any, served: Served) -> Measures:
    """First paints with an empty cache, of the dashboard and of an empty page, and the bytes of the visit."""
    empty, paints, sizes = [], [], []
    for _ in range(TIMES):
        context = await browser.new_context()
        page = await context.new_page()
        await page.route("**/empty", lambda route: route.fulfill(body="<p>empty</p>", content_type="text/html"))
        await page.goto(f"http://127.0.0.1:{served.port}/empty")
        empty.append(await page.evaluate(PAINT))
        await context.close()
        page = await _logged_in(browser, served)
        state = await page.context.storage_state()
        await page.context.close()
        context = await browser.new_context(storage_state=state)
        page = await context.new_page()
        await page.goto(f"http://127.0.0.1:{served.port}/")
        paints.append(await page.evaluate(PAINT))
        await page.wait_for_selector(".totals")
        sizes.append(await page.evaluate(BYTES))
        await context.close()
    return {
        "bytes": median(sizes), "paint": median(paints) / 1000, "empty": median(empty) / 1000,
        "paint_empty": median(a / b for a, b in zip(paints, empty, strict=True)),
    }  # fmt: skip


async def _logged_in(browser: Any, served: Served) -> Any:
    """A page with a session."""
    page = await (await browser.new_context()).new_page()
    page.set_default_timeout(120_000)
    await page.goto(f"http://127.0.0.1:{served.port}{await served.order('link')}")
    await page.wait_for_selector(".totals")
    return page


async def _frames(page: Any, selector: str) -> float:
    """The 95th percentile of the times between frames, in seconds."""
    times = await page.evaluate(SCROLL, [selector, FRAMES, 400])
    return float(quantiles(times, n=20)[18]) / 1000


WHY: Final = "a browser without a graphics card, beside its server, on two cores with a load above 9: see plain text"

WORKLOAD = Workload(
    "S7-browser",
    f"the web UI in a browser: {ROWS:,} rows, a timeline of {OPERATIONS:,} rows",
    (
        Figure("bytes of a first visit, compressed", "bytes", "KB", bar=Bar("<=", 120e3)),
        Figure("first contentful paint, cold", "paint", "ms"),
        Figure("of an empty page", "empty", "ms"),
        Figure("first contentful paint against an empty page", "paint_empty", "x", bar=Bar("<=", 2.5, WHY)),
        Figure(f"frame p95, {ROWS:,} rows", "rows", "ms", bar=Bar("<=", 0.033, WHY)),
        Figure(f"frame p95, a timeline of {OPERATIONS:,} rows", "timeline", "ms", bar=Bar("<=", 0.033, WHY)),
        Figure("frame p95, plain text", "plain", "ms"),
        Figure("rows against plain text", "rows_plain", "x"),
        Figure("timeline against plain text", "timeline_plain", "x"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
