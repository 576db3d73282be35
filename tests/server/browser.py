"""A real browser for tests: Debian's chromium, or what BROWSER names."""

import os
import shutil
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import async_playwright


def path():
    found = os.environ.get("BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip(
            "NO BROWSER: the tests of the web UI did not run. Give them one: BROWSER=/path/to/chromium make test"
        )
    return found


@asynccontextmanager
async def opened(site, *, login="ann", scheme="light", width=1280, height=900):
    """A page that is logged in. What the browser complains about is in `page.complaints`."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path(), args=["--no-sandbox"])
        context = await browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
        page = await context.new_page()
        page.set_default_timeout(20_000)
        page.complaints = []
        page.asked = []
        page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        try:
            if login:
                await page.goto(f"{site.url}/login#{site.server.accesses.own_link(login)}")
                await page.wait_for_selector(".totals")
            yield page
        finally:
            await browser.close()
