"""The web UI in a real browser."""

import pytest
from axe_playwright_python.async_playwright import Axe

from perdure.kernel.asked import Actor
from tests.server.browser import opened
from tests.server.site import run

API = "/api/v1"
EVIL = "<img src=x onerror=alert(1)><script>window.hurt=1</script>\u202e{{7*7}}"


async def filled(site):
    """Instances of every kind, and a task for managers."""
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


def test_each_page_restores_from_its_url_and_asks_no_other_origin():
    async def story(site):
        async with opened(site) as page:
            for path, sign in (await filled(site)).items():
                await page.goto(site.url + path)
                await page.wait_for_selector(sign)
                shown = await page.inner_text("main")
                await page.reload()
                await page.wait_for_selector(sign)
                assert shown.split("\n")[0] == (await page.inner_text("main")).split("\n")[0], path
            return page.complaints, [url for url in page.asked if not url.startswith((site.url, "data:"))]

    complaints, foreign = run(story)

    assert complaints == []
    assert foreign == []


def test_markup_in_values_does_nothing():
    async def story(site):
        async with opened(site) as page:
            await filled(site)
            await page.goto(f"{site.url}/instances/order/o-1?tab=data")
            await page.wait_for_selector(".data-grid")
            text = await page.inner_text("main")
            images = await page.locator("main img, main script").count()
            return text, images, await page.evaluate("window.hurt")

    text, images, hurt = run(story)

    assert "<img src=x onerror=alert(1)>" in text and "\\u202e" in text
    assert (images, hurt) == (0, None)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(scheme):
    async def story(site):
        found = {}
        async with opened(site, scheme=scheme) as page:
            for path, sign in (await filled(site)).items():
                await page.goto(site.url + path)
                await page.wait_for_selector(sign)
                result = await Axe().run(page)
                for each in result.response["violations"]:
                    found[path, each["id"]] = [node["html"][:200] for node in each["nodes"]][:3]
        return found

    found = run(story)

    assert not found, "\n".join(map(str, found.items()))


def test_a_message_is_sent_by_the_button_of_its_sentence_and_the_page_follows_live():
    async def story(site):
        async with opened(site) as page:
            await filled(site)
            await page.goto(f"{site.url}/instances/order/o-1")
            await page.click(".why-list .do button")
            await page.fill("#d-body", '"yes"')
            command = await page.inner_text("dialog .cmd code")
            await page.click("dialog button[type=submit]")
            await page.wait_for_selector(".stamp.st-completed")
            return command, await site.engine.handle("order/o-1").result()

    command, result = run(story)

    assert command.startswith("perdure send order/o-1 decision")
    assert result["decision"] == "yes"


def test_a_moved_instance_is_noticed_before_a_confirm():
    async def story(site):
        async with opened(site) as page:
            await filled(site)
            await page.goto(f"{site.url}/instances/order/o-1")
            await page.click("text=Cancel…")
            await site.engine.handle("order/o-1").tag("moved", "yes")
            await page.click("dialog button[type=submit]")
            await page.wait_for_selector("dialog [role=alert]")
            return await page.inner_text("dialog [role=alert]"), await site.engine.handle("order/o-1").status()

    text, status = run(story)

    assert "version-conflict" in text
    assert status == "waiting"


def test_a_task_is_done_at_360_pixels_and_the_form_refuses_what_the_schema_refuses():
    async def story(site):
        async with opened(site, width=360, height=740) as page:
            await filled(site)
            await page.goto(f"{site.url}/tasks")
            await page.click(".todo a")
            await page.click(".task-form button[type=submit]")
            problem = await page.inner_text(".problem")
            await page.click("text=yes")
            wide = await page.evaluate("document.documentElement.scrollWidth")
            await page.click(".task-form button[type=submit]")
            return problem, wide, await site.engine.handle("approval/a-1").result(20)

    problem, wide, result = run(story)

    assert "needed" in problem
    assert wide <= 360
    assert result == "yes"


def test_new_instances_are_announced_and_do_not_move_the_rows():
    async def story(site):
        async with opened(site) as page:
            await filled(site)
            await page.goto(f"{site.url}/instances")
            await page.wait_for_selector(".foot .live:not(.off)")
            before = await page.locator(".ledger.inst tbody tr").count()
            await site.engine.start("secret_plan", key="s-2")
            await page.wait_for_selector("button.new")
            still = await page.locator(".ledger.inst tbody tr").count()
            await page.click("button.new")
            await page.wait_for_selector("text=s-2")
            return before, still

    before, still = run(story)

    assert before == still


def test_pages_are_reached_by_keys():
    async def story(site):
        async with opened(site) as page:
            await filled(site)
            await page.keyboard.press("g")
            await page.keyboard.press("i")
            await page.wait_for_selector(".ledger.inst")
            await page.keyboard.press("/")
            await page.keyboard.type("status:failed")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/instances?q=status*failed")
            await page.keyboard.press("Escape")
            await page.wait_for_selector("text=b-1")
            await page.keyboard.press("j")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".inst-head")
            return page.url

    assert run(story).endswith("/instances/broken/b-1")


def test_cross_site_writes_fail_in_a_real_browser():
    async def story(site):
        async with opened(site) as page:
            own = await page.context.new_page()
            await own.goto("about:blank")
            await own.set_content(
                f'<form id=f method=post action="{site.url}{API}/instances" enctype="text/plain">'
                '<input name=\'{"workflow":"order","key":"evil","x":"\' value=\'"}\'></form>'
            )
            async with own.expect_navigation():
                await own.evaluate("document.querySelector('#f').submit()")
            return await site.engine.queries.counts()

    assert not any(workflow == "order" for workflow, *_ in run(story))


def test_a_stranger_sees_the_login_page():
    async def story(site):
        async with opened(site, login="") as page:
            await page.goto(f"{site.url}/instances/order/o-1")
            text = await page.inner_text("main")
            await page.goto(f"{site.url}/login#wrong")
            await page.wait_for_function("document.querySelector('#say').textContent.includes('too old')")
            return text

    assert "not logged in" in run(story)
