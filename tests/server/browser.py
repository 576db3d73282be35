"""A real browser for tests: Debian's chromium, or what BROWSER names."""

import asyncio
import os
import shutil
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Literal

import pytest
from playwright.async_api import async_playwright

from tests.server.site import site


def path():
    found = os.environ.get("BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip(
            "NO BROWSER: the tests of the web UI did not run. Give them one: BROWSER=/path/to/chromium make test"
        )
    return found


class Heard:
    """What a page asked for, and what the browser complained about."""

    def __init__(self):
        self.asked: list[str] = []
        self.complaints: list[str] = []

    def to(self, page):
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, said):
        if said.type in ("error", "warning"):
            self.complaints.append(f"{said.text} {said.location}")


class Stage:
    """One site and one browser for the tests of a file; each test has a page of its own.

    The pages share a process of the browser, which has read the scripts and styles. All else is forgotten.
    """

    def __init__(self, runner, site, browser):
        self.runner, self.site, self.browser = runner, site, browser
        self._contexts = {}

    def tell(self, story, seconds=180, **more):
        async def main():
            async with self.page(**more) as page:
                return await asyncio.wait_for(story(self.site, page), seconds)

        return self.runner.run(main())

    @asynccontextmanager
    async def page(
        self, *, login="ann", scheme: Literal["light", "dark"] = "light", width=1280, height=900, heard=None
    ):
        if scheme not in self._contexts:
            context = await self.browser.new_context(color_scheme=scheme, reduced_motion="reduce")
            kept = await context.new_page()  # its process lives as long as it does
            await kept.goto(f"{self.site.url}/login")
            self._contexts[scheme] = context, kept
        context, kept = self._contexts[scheme]
        try:
            page = await context.new_page()
            await self._forget(page)
            await page.set_viewport_size({"width": width, "height": height})
            page.set_default_timeout(60_000)
            if heard is not None:
                heard.to(page)
            if login:
                await page.goto(f"{self.site.url}/login#{self.site.server.accesses.own_link(login)}")
                await page.wait_for_selector(".totals")
            yield page
        finally:
            for each in context.pages:
                if each is not kept:
                    await each.close()

    async def _forget(self, page):
        """What pages before have kept: logins and settings."""
        await page.context.set_offline(False)
        await page.context.clear_cookies()
        session = await page.context.new_cdp_session(page)
        await session.send("Storage.clearDataForOrigin", {"origin": self.site.url, "storageTypes": "all"})
        await session.detach()


@contextmanager
def staged(**more):
    chromium = path()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def begin():
            found = await stack.enter_async_context(site(**more))
            found.server._buckets._rate = found.server._buckets._burst = 1e9  # a test opens more pages than a person
            driver = await stack.enter_async_context(async_playwright())
            arguments = ["--no-sandbox", "--process-per-site"]
            browser = await driver.chromium.launch(executable_path=chromium, args=arguments)
            stack.push_async_callback(browser.close)
            return Stage(runner, found, browser)

        try:
            yield runner.run(begin())
        finally:
            runner.run(stack.aclose())
