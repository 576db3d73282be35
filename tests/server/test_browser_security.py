"""What only a real browser can tell: the content policy, cross-site requests, and a login at a provider elsewhere."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import async_playwright

from perdure.server.auth.oidc import OidcSettings
from tests.server.browser import path, staged
from tests.server.provider import CLIENT, SECRET, provider
from tests.server.site import site

API = "/api/v1"

PROBE = """
const done = {}, body = document.body;
const tries = {
  eval: () => (0, eval)("window.hurt = 1"),
  constructor: () => new Function("window.hurt = 1")(),
  timer: () => setTimeout("window.hurt = 1"),
  markup: () => { document.body.innerHTML = "<img src=x onerror='window.hurt = 1'>"; },
  script: () => { const s = document.createElement("script"); s.text = "window.hurt = 1"; document.body.append(s); },
  foreign: () => { const s = document.createElement("script"); s.src = "OTHER/x.js"; document.body.append(s); },
  handler: () => { const b = document.createElement("button"); b.setAttribute("onclick", "hurt = 1"); b.click(); },
  url: () => { const a = document.createElement("a"); a.href = "javascript:hurt=1"; body.append(a); a.click(); },
};
for (const [name, attempt] of Object.entries(tries)) {
  try { attempt(); done[name] = "no error"; } catch (error) { done[name] = error.name; }
}
const styled = document.createElement("p");
styled.setAttribute("style", "color: rgb(1, 2, 3)");
document.body.append(styled);
done.style = getComputedStyle(styled).color === "rgb(1, 2, 3)" ? "no error" : "refused";
done.fetch = await fetch("OTHER/").then(() => "no error", (error) => error.name);
await new Promise((go) => setTimeout(go, 50));
done.hurt = window.hurt ?? null;
const told = document.createElement("pre");
told.id = "probed";
told.textContent = JSON.stringify(done);
document.body.append(told);
"""
"""A module of the page: what a driver evaluates is exempt from the policy, what a module does is not."""


@pytest.fixture(scope="module")
def stage():
    with staged() as found:
        yield found


def test_the_policy_lets_no_text_become_code(stage):
    async def story(site, page):
        other = site.url.replace("127.0.0.1", "localhost")
        site.server.static.files["probe.js"] = PROBE.replace("OTHER", other).encode()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.evaluate("setTimeout(() => import('/ui/x/probe.js'), 0)")
        told = await page.wait_for_selector("#probed")
        return json.loads(await told.text_content()), [url for url in asked if url.startswith(other)]

    found, outside = stage.tell(story)

    assert found["hurt"] is None
    assert found["eval"] == found["constructor"] == "EvalError"
    assert found["markup"] == found["script"] == found["foreign"] == "TypeError"  # trusted types
    assert (found["style"], found["fetch"]) == ("refused", "TypeError")
    assert outside == []


@asynccontextmanager
async def foreign_page(text):
    """A page of another origin on this machine."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = text.encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


ATTACK = """<!doctype html><form method="post" enctype="text/plain" action="SITE/api/v1/instances/order/o-1/-/cancel">
<input name='{"reason": "' value='"}'></form><script>
const say = (path, more) => fetch("SITE" + path, { credentials: "include", method: "POST", ...more }).then(
  (answer) => answer.type, (error) => error.name);
Promise.all([
  say("/api/v1/instances", { mode: "no-cors", body: '{"workflow": "order", "key": "evil"}' }),
  say("/api/v1/instances", { headers: { "x-perdure": "1" }, body: '{"workflow": "order"}' }),
  say("/logout", { mode: "no-cors" }),
  fetch("SITE/api/v1/instances", { credentials: "include" }).then((answer) => answer.text(), (error) => error.name),
]).then((found) => { window.found = found; });
</script>"""


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_cross_site_writes_fail_in_a_real_browser(stage, host):
    """From another site the strict cookie is not sent; from another port of the same host it is, and is refused."""

    async def story(site, page):
        handle = await site.engine.start("order", key="o-1")
        await handle.until("waiting")
        async with foreign_page(ATTACK.replace("SITE", site.url)) as port:
            await page.goto(f"http://{host}:{port}/")
            await page.wait_for_function("window.found")
            found = await page.evaluate("window.found")
            async with page.expect_navigation() as going:
                await page.evaluate("document.forms[0].submit()")
            status = (await going.value).status
        await page.goto(site.url)
        await page.wait_for_selector(".totals")  # still logged in
        counts = await site.engine.queries.counts()
        return found, status, await handle.status(), sum(n for (name, *_), n in counts.items() if name == "order")

    found, status, left, orders = stage.tell(story)

    assert found[1] == found[3] == "TypeError"  # there is no CORS: nothing can be read, no header can be sent
    assert status == (401 if host == "localhost" else 403)
    assert (left, orders) == ("waiting", 1)


def test_a_login_at_a_provider_of_another_site_leads_back_to_the_page():
    chromium = path()

    async def story():
        async with provider("localhost") as idp, async_playwright() as driver:
            idp.claims = {"sub": "ann", "groups": ["boss"]}
            oidc = OidcSettings(issuer=idp.issuer, client=CLIENT, secret=SECRET, grants=("groups=boss admin",))
            async with site(oidc=oidc) as found:
                browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = await browser.new_page()
                page.set_default_timeout(60_000)
                await page.goto(f"{found.url}/instances?q=status:waiting")
                await page.click("text=Log in with your organisation")
                await page.wait_for_selector("#main .ledger, #main .empty, main h1")
                await page.wait_for_url(f"{found.url}/instances?q=status:waiting")
                me = json.loads(await page.evaluate(f"fetch('{API}/whoami').then((answer) => answer.text())"))
                await browser.close()
                return me

    assert asyncio.run(asyncio.wait_for(story(), 180))["id"] == "ann"
