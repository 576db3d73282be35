"""The web UI in a real browser."""

import pytest
from axe_playwright_python.async_playwright import Axe

from perdure.kernel.asked import Actor
from perdure.kernel.events import Address
from tests.server.browser import Heard, staged

API = "/api/v1"
EVIL = "<img src=x onerror=alert(1)><script>window.hurt=1</script>\u202e{{7*7}}"


@pytest.fixture(scope="module")
def stage():
    with staged() as found:
        found.pages = found.runner.run(filled(found.site))
        yield found


async def filled(site):
    """Instances of every kind, and a task for managers. Pages by path, with a sign that each is there."""
    manager = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": ["manager"]}
    await site.server.accesses.ask("grant", {"actor": "ann", "person": manager}, Actor("root"))
    handle = await site.engine.start("order", key="o-1", order_id=EVIL, tags={"note": EVIL[:40]}, by="checkout")
    await handle.until("waiting")
    await (await site.engine.start("secret_plan", key="s-1")).until("waiting")
    await (await site.engine.start("approval", key="a-1", amount=7)).until("waiting")
    await (await site.engine.start("broken", key="b-1")).until("failed")
    task = (await site.engine.tasks.list(Actor("root", admin=True)))[0].id
    return {
        "/": ".totals",
        "/instances": ".ledger.inst tbody tr",
        "/instances?q=status:waiting": ".ledger.inst tbody tr",
        "/instances/order/o-1": ".why-list",
        "/instances/order/o-1?tab=data": ".data-grid",
        "/instances/broken/b-1?tab=errors": "pre.json",
        "/tasks": ".todo",
        f"/tasks/{task}": ".task-form",
        "/workflows": ".ledger",
        "/workflows/order": ".ledger",
        "/settings": ".facts",
    }


async def an_order(site, key):
    handle = await site.engine.start("order", key=key)
    await handle.until("waiting")
    return handle


def test_each_page_restores_from_its_url_and_asks_no_other_origin(stage):
    heard = Heard()

    async def story(site, page):
        for path, sign in stage.pages.items():
            await page.goto(site.url + path)
            await page.wait_for_selector(sign)
            shown = await page.inner_text("main")
            await page.reload()
            await page.wait_for_selector(sign)
            assert shown.split("\n")[0] == (await page.inner_text("main")).split("\n")[0], path
        return [url for url in heard.asked if not url.startswith((site.url, "data:"))]

    assert stage.tell(story, heard=heard) == []
    assert heard.complaints == []


def test_axe_finds_nothing_in_light_and_dark(stage):
    async def story(site, page):
        found = {}
        for path, sign in stage.pages.items():
            await page.goto(site.url + path)
            await page.wait_for_selector(sign)
            for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
                await page.emulate_media(color_scheme=scheme)
                result = await Axe().run(page, options=rules)
                for each in result.response["violations"]:
                    found[path, scheme, each["id"]] = [node["html"][:200] for node in each["nodes"]][:3]
        return found

    found = stage.tell(story)

    assert not found, "\n".join(map(str, found.items()))


def test_markup_in_values_does_nothing(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances/order/o-1?tab=data")
        await page.wait_for_selector(".data-grid")
        text = await page.inner_text("main")
        return text, await page.locator("main img, main script").count(), await page.evaluate("window.hurt")

    text, images, hurt = stage.tell(story)

    assert "<img src=x onerror=alert(1)>" in text and "\\u202e" in text
    assert (images, hurt) == (0, None)


def test_a_message_is_sent_by_the_button_of_its_sentence_and_the_page_follows_live(stage):
    async def story(site, page):
        handle = await an_order(site, "to-be-decided")
        await page.goto(f"{site.url}/instances/order/to-be-decided")
        await page.click(".why-list .do button")
        await page.fill("#d-body", '"yes"')
        command = await page.inner_text("dialog .cmd code")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector(".stamp.st-completed")
        return command, await handle.result()

    command, result = stage.tell(story)

    assert command.startswith("perdure send order/to-be-decided decision")
    assert result["decision"] == "yes"


def test_a_moved_instance_is_noticed_before_a_confirm(stage):
    async def story(site, page):
        handle = await an_order(site, "moving")
        await page.goto(f"{site.url}/instances/order/moving")
        await page.click("text=Cancel…")
        await handle.tag("moved", "yes")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector("dialog [role=alert]")
        return await page.inner_text("dialog [role=alert]"), await handle.status()

    text, status = stage.tell(story)

    assert "version-conflict" in text
    assert status == "waiting"


def test_a_task_is_done_at_360_pixels_and_the_form_refuses_what_the_schema_refuses(stage):
    async def story(site, page):
        handle = await site.engine.start("approval", key="narrow", amount=8)
        await handle.until("waiting")
        await page.goto(f"{site.url}/tasks")
        await page.click("text=Approve 8")
        await page.click(".task-form button[type=submit]")
        problem = await page.inner_text(".problem")
        await page.click(".choice >> text=yes")
        wide = await page.evaluate("document.documentElement.scrollWidth")
        await page.click(".task-form button[type=submit]")
        return problem, wide, await handle.result(20)

    problem, wide, result = stage.tell(story, width=360, height=740)

    assert "needed" in problem
    assert wide <= 360
    assert result == "yes"


def test_new_instances_are_announced_and_do_not_move_the_rows(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances")
        await page.wait_for_selector(".foot .live:not(.off)")
        await page.wait_for_selector(".ledger.inst tbody tr")
        before = await page.locator(".ledger.inst tbody tr").count()
        await site.engine.start("secret_plan", key="s-2")
        await page.wait_for_selector("button.new")
        still = await page.locator(".ledger.inst tbody tr").count()
        await page.click("button.new")
        await page.wait_for_selector("text=s-2")
        return before, still

    before, still = stage.tell(story)

    assert before == still


def test_pages_are_reached_by_keys(stage):
    async def story(site, page):
        await page.keyboard.press("g")
        await page.keyboard.press("i")
        await page.wait_for_selector(".ledger.inst")
        await page.keyboard.press("/")
        await page.keyboard.type("status:failed")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/instances?q=status*failed")
        await page.keyboard.press("Escape")
        await page.wait_for_selector("text=1 match")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".inst-head")
        return page.url

    assert stage.tell(story).endswith("/instances/broken/b-1")


def test_cross_site_writes_fail_in_a_real_browser(stage):
    async def story(site, page):
        own = await page.context.new_page()
        await own.goto("about:blank")
        await own.set_content(
            f'<form id=f method=post action="{site.url}{API}/instances" enctype="text/plain">'
            '<input name=\'{"workflow":"order","key":"evil","x":"\' value=\'"}\'></form>'
        )
        async with own.expect_navigation():
            await own.evaluate("document.querySelector('#f').submit()")
        return await site.engine.queries.head(Address("order", "evil"))

    assert stage.tell(story) is None


def test_a_stranger_sees_the_login_page(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances/order/o-1")
        text = await page.inner_text("main")
        await page.goto(f"{site.url}/login#wrong")
        await page.wait_for_function("document.querySelector('#say').textContent.includes('too old')")
        return text

    assert "not logged in" in stage.tell(story, login="")
