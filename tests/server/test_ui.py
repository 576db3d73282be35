"""The web UI in a real browser."""

import asyncio
import base64
import itertools
import os
import re
import shlex

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from click.testing import CliRunner

from perdure.cli.exits import Exit
from perdure.cli.group import cli
from perdure.kernel.asked import Actor
from perdure.kernel.events import Address
from perdure.runtime.history import Reader
from perdure.verbs.read import WhyParams, why
from perdure.views.operations import Operations
from tests.server import dialects
from tests.server.browser import Heard
from tests.server.dialects import RESTOCK_TWO
from tests.server.pages import AXE, GO, an_order, furnished

API = "/api/v1"
LONG = os.environ.get("PERDURE_TEST_STAGES") == "long"
ENTRIES, ROWS = (40_000, 10_000) if LONG else (2_500, 1_000)
TASK_DIALOGS = {
    "Assign…": {"d-to": "bob"},
    "Comment…": {"d-text": "two words"},
    "Change priority…": {},
    "Escalate…": {"d-roles": "director"},
    "Cancel…": {"d-reason": "not needed"},
}
DIALOGS = [
    ("/", ["key ?"], "#keys"),
    ("/", ["key Control+k"], ".palette"),
    ("/instances", ["tbody input", ".pick >> text=Cancel…"], "#dry"),
    ("/instances/order/o-1", ["text=Rewind…"], "#dry"),
    ("/instances/order/o-1", ["text=Tag…", "dialog button[type=submit]"], "dialog .problem"),
    ("/instances/order/o-1", ["text=Ask…"], "#d-body"),
    ("/instances/order/o-1", ["text=Fork…"], "#d-edit"),
    ("/instances/restock/monday", [".why-list .do button >> text=Patch"], "#d-set"),
    ("/instances?q=status:waiting", ["text=Save as bookmark…"], "#d-shared"),
    ("/instances", ["summary >> text=Columns"], "details[open] label"),
    ("/instances", [".chips >> text=Filter"], ".chip.add"),
    ("/workflows", ["text=Put a definition…"], "#d-text, .put"),
    ("/workflows/order", ["text=Start…"], "#s-json"),
    ("/world?event=count-4", ["text=Send an event…"], "#d-data"),
    ("/world?event=count-4", ["text=Propose a change…"], "#d-manifest"),
    ("/settings", ["text=Make a key…"], "#d-actor"),
    ("/settings", ["text=Grant…"], "#d-actor"),
]
"""Where a dialog is opened, by which keys and presses, and a sign that it is there."""


@pytest.fixture(scope="module")
def stage():
    with furnished() as found:
        yield found


@pytest.fixture(scope="module")
def walk(stage):
    """All pages, each looked at once: what was heard, which addresses stayed, and what axe finds."""
    heard, stayed, found = Heard(), {}, {}

    async def look(page, name):
        await page.evaluate(AXE_SCRIPT)
        for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            await page.emulate_media(color_scheme=scheme)
            for rule, nodes in await page.evaluate(AXE, rules):
                found[name, scheme, rule] = nodes

    async def story(site, page):
        for path, sign in stage.pages.items():
            await page.goto(site.url + path)
            await page.wait_for_selector(sign)
            stayed[path] = page.url.removeprefix(site.url)
            await look(page, path)
        for path, press, sign in DIALOGS:
            await page.goto(site.url + path)
            await page.wait_for_selector(stage.pages[path])
            for each in press:
                await (page.keyboard.press(each[4:]) if each.startswith("key ") else page.click(each))
            await page.wait_for_selector(sign)
            await look(page, (path, sign))

    stage.tell(story, heard=heard, seconds=300)
    return heard, stayed, found


def test_each_page_restores_from_its_url_and_asks_no_other_origin(stage, walk):
    heard, stayed, _ = walk

    assert {path: path for path in stage.pages} == stayed
    assert [url for url in heard.asked if not url.startswith((stage.site.url, "data:"))] == []
    assert heard.complaints == []


def test_axe_finds_nothing_on_any_page_or_dialog_in_light_and_dark(walk):
    _, _, found = walk

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
    """Of a message with a type the form is made from its schema, also for the button of the head."""

    async def story(site, page):
        typed = await site.engine.start("deciding", key="d-1")
        await typed.until("waiting")
        await page.goto(f"{site.url}/instances/deciding/d-1")
        await page.click(".acts >> text=Send…")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector("dialog .problem")
        await page.click("dialog .choice >> text=no")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector(".stamp.st-completed")
        assert await typed.result() == "no"
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


def test_what_a_running_step_says_stands_beside_it(stage):
    async def story(site, page):
        dialects.heard.clear()
        await site.engine.start("saying", key="s-1")
        await page.goto(f"{site.url}/instances/saying/s-1?at=say")
        await page.wait_for_selector("aside .progress")
        told = await page.inner_text("aside.card")
        dialects.heard.set()
        await page.wait_for_selector(".stamp.st-completed")
        return told, await page.locator("aside .progress").count()

    told, after = stage.tell(story)

    assert "1 of 4 looking" in told
    assert after == 0, "it has ended: its result stands there"


def test_a_moved_instance_is_noticed_before_a_confirm(stage):
    async def story(site, page):
        handle = await an_order(site, "moving")
        await page.goto(f"{site.url}/instances/order/moving")
        await page.click("text=Cancel…")
        await page.wait_for_selector("#dry")
        await handle.tag("moved", "yes")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector("dialog [role=alert]")
        text, status = await page.inner_text("dialog [role=alert]"), await handle.status()
        await page.click("dialog button[type=submit]")  # what came since is seen now
        await page.wait_for_selector(".stamp.st-cancelled")
        return text, status

    text, status = stage.tell(story)

    assert "It moved while this was open" in text and "entry 3: tagged" in text
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
        return problem, wide, await handle.result(60)

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
        await page.wait_for_selector("text=/^1 match/")
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


def test_a_stranger_sees_the_login_page_and_a_login_leads_to_the_dashboard(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances/order/o-1")
        text = await page.inner_text("main")
        await page.goto(f"{site.url}/login#wrong")
        await page.wait_for_function("document.querySelector('#say').textContent.includes('too old')")
        command = await page.inner_text("#command")
        await page.goto(f"{site.url}/login#{site.server.accesses.own_link('ann')}")  # in the tab of the old one
        await page.wait_for_url(f"{site.url}/")
        await page.wait_for_selector(".totals")
        await page.goto(f"{site.url}/login", wait_until="commit")
        await page.wait_for_url(f"{site.url}/")
        return text, command, site.url

    text, command, url = stage.tell(story, login="")
    assert "not logged in" in text
    assert command == f"perdure access link --db DATABASE --url {url}"


def test_time_travel_equals_a_fold_to_that_entry(stage):
    async def story(site, page):
        handle = await an_order(site, "travelled")
        await handle.send("decision", "yes")
        await handle.result()
        await page.goto(f"{site.url}/instances/order/travelled?entry=2")
        await page.wait_for_selector(".travel.is-past")
        await page.wait_for_selector(".stamp.st-waiting")
        then = await page.locator("[role=treegrid] .loc").all_inner_texts()
        await page.focus("input.range")
        await page.keyboard.press("ArrowRight")
        await page.wait_for_selector(".stamp.st-completed")
        head = await site.engine.queries.head(Address("order", "travelled"))
        operations = Operations()
        reader = Reader(None, (operations,))
        reader.read((await site.engine.queries.history(head.id))[:2])
        return then, page.url, operations.upto(), reader.state.status

    then, url, operations, status = stage.tell(story)

    assert then == [each.location for each in operations]
    assert status == "waiting"
    assert "entry=" not in url  # the last entry is now


def test_why_equals_the_cli_and_buttons_equal_the_allowed_verbs(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances/order/o-1")
        await page.wait_for_selector(".why-list")
        said = await page.locator(".why-list .say > p:first-child").all_inner_texts()
        buttons = await page.locator(".acts button").all_inner_texts()
        answer = await why(site.engine, WhyParams("order/o-1"))
        client = await site.login("ann")
        may = (await client.get(f"{API}/instances/order/o-1")).json()["may"]
        return said, [each.text for each in answer.reasons], {each.strip("…").lower() for each in buttons}, may

    said, told, buttons, may = stage.tell(story)

    assert [re.sub("since .*", "", text) for text in said] == [re.sub("since .*", "", text) for text in told]
    assert buttons == {verb for verb, against in may.items() if not against} - {"settle"}


def test_a_long_journal_scrolls_and_keeps_600_elements(stage):
    async def story(site, page):
        page.set_default_timeout(60_000)
        handle = await site.engine.start("counting", key="c", n=ENTRIES)
        await handle.result(300)
        heard = Heard()
        heard.to(page)
        await page.goto(f"{site.url}/instances/counting/c")
        await page.wait_for_selector(".tall tbody tr")
        last = await page.inner_text(".travel .what")
        marks = await page.eval_on_selector_all(
            ".ticks line", "(all) => all.map((each) => parseFloat(each.x1.baseVal.valueAsString))"
        )
        key = await page.inner_text("[aria-label='Key to the timeline']")
        await page.click(f'[role=treegrid] [title="{min(ENTRIES, 10_000)} times"]')
        await page.wait_for_selector("[role=treegrid] [data-n='20']")
        await page.evaluate("document.querySelectorAll('.tall')[0].scrollTop = 60000")
        await page.wait_for_selector("[role=treegrid] [data-n='2140']")
        await page.evaluate("document.querySelectorAll('.tall')[1].scrollTop = 60000")
        await page.wait_for_selector("td.marg >> text=/^2[0-9]{3}$/")
        await page.click("text=Compact")
        await page.wait_for_selector("text=opened")
        asked = [url.partition("/-/")[2] for url in heard.asked if "/api/" in url and "/-/" in url]
        return await page.locator("tr, [role=row]").count(), last, marks, key, asked

    rows, last, marks, key, asked = stage.tell(story, seconds=600 if LONG else 180)

    assert rows <= 600
    assert last.endswith("→ completed") and f"count#{ENTRIES}" in last
    assert max(marks) > 98 and max(b - a for a, b in itertools.pairwise(sorted(marks))) < 2, "of all entries, evenly"
    assert "done" in key and "failed attempt" not in key, "what the timeline shows"
    assert len(set(asked)) == len(asked), "nothing is read twice while nothing moves"


def test_states_are_shown_empty_error_and_not_live(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances?q=status:stuck")
        await page.wait_for_selector("text=No instance matches")
        await page.goto(f"{site.url}/instances?q=statu:stuck")
        error = await page.inner_text("[role=alert]")
        await page.click("text=Use status:stuck")
        await page.wait_for_selector("text=No instance matches")
        await page.goto(f"{site.url}/instances?q=status:stuck+workflow:order")
        await page.click("p:has-text('Without status:stuck') button")
        await page.wait_for_url("**/instances?q=workflow*order")
        await page.goto(f"{site.url}/instances/no-such-workflow/at-all")
        missing = await page.inner_text("[role=alert]")
        await page.goto(f"{site.url}/no-such-page")
        await page.wait_for_selector("text=There is no such page")
        await page.goto(f"{site.url}/instances")
        await page.wait_for_selector(".foot .live:not(.off)")
        session = await page.context.new_cdp_session(page)
        await session.send("Network.clearBrowserCache")  # of modules that other tests loaded
        await page.context.set_offline(True)
        site.server.stopping.set()
        site.server.feed.wake()
        await page.wait_for_selector(".stale >> text=not live since")
        site.server.stopping.clear()
        await page.evaluate(GO, "/fleet")  # its module was not loaded before
        await page.wait_for_selector("[role=alert] >> text=This page could not be loaded")
        return error, missing

    error, missing = stage.tell(story)

    assert "bad-filter" in error and "did you mean" in error
    assert "not-found" in missing and "perdure ls" in missing and "`" not in missing


def test_eval_and_inline_script_do_nothing(stage):
    """Asked by the page itself: a driver's evaluate is exempt from the policy."""

    async def story(site, page):
        await page.goto(site.url)
        await page.wait_for_selector(".totals")
        return await page.evaluate(
            """() => new Promise((resolve) => {
                const found = [];
                document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
                const script = document.createElement("script");
                const tried = [
                    () => { script.textContent = "window.hurt = 1"; document.body.append(script); },
                    () => document.body.insertAdjacentHTML("beforeend", "<img src=x>"),
                ];
                for (const each of tried) try { each(); } catch { found.push("trusted types"); }
                setTimeout(() => resolve([window.hurt ?? 0, found.length > 0]), 200);
            })"""
        )

    assert stage.tell(story) == [0, True]


def test_a_dialog_says_what_the_dry_run_says_and_records_nothing(stage):
    async def story(site, page):
        handle = await an_order(site, "gone-back")
        before = (await handle.summary()).changed_at, len(await handle.history())
        await page.goto(f"{site.url}/instances/order/gone-back")
        await page.click("text=Rewind…")
        await page.select_option("#d-location", "charge")
        await page.wait_for_selector("#dry >> text=charge")
        told = await page.inner_text("#dry")
        after = (await handle.summary()).changed_at, len(await handle.history())
        dropped = await handle.rewind("charge")
        return before, after, dropped, told

    before, after, dropped, told = stage.tell(story)

    assert before == after and "receive:decision" in told
    assert dropped == ["charge", "receive:decision"]


def test_a_playbook_goes_on_when_its_ctx_is_patched_by_the_button_of_its_sentence(stage):
    async def story(site, page):
        handle = await site.engine.start_plain("restock", {}, key="tuesday")
        await handle.until("waiting")
        await page.goto(f"{site.url}/instances/restock/tuesday")
        await page.click(".why-list .do button >> text=Patch")
        command = await page.inner_text("dialog .cmd code")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector(".stamp.st-completed")
        return command, await handle.result(60)

    command, result = stage.tell(story)

    assert command.startswith("perdure playbooks patch restock/tuesday budget=true")
    assert result == "done"


def test_a_playbook_is_paused_and_resumed_by_its_buttons_and_no_other_dialect_has_them(stage):
    async def story(site, page):
        await (await site.engine.start_plain("restock", {}, key="friday")).until("waiting")
        await page.goto(f"{site.url}/instances/order/o-1")
        await page.wait_for_selector(".acts .btns button")
        others = await page.locator(".acts button").all_inner_texts()
        await page.goto(f"{site.url}/instances/restock/friday")
        await page.click(".acts >> text=Pause…")
        await page.fill("#d-reason", "stock-taking")
        command = await page.inner_text("dialog .cmd:not(.http) code")
        await page.click("dialog button[type=submit]")
        reason = page.locator(".why-list .say", has_text="It was paused by ann")
        await reason.wait_for()
        told, buttons = await reason.inner_text(), await page.locator(".acts button").all_inner_texts()
        first = await page.locator(".why-list .do button").all_inner_texts(), await page.inner_text(".do .btn.first")
        await page.click(".why-list .do button >> text=Resume…")
        await page.click("dialog button[type=submit]")
        await page.locator(".acts >> text=Pause…").wait_for()
        return others, command, told, buttons, first, await site.engine.handle("restock", "friday").read("paused")

    others, command, told, buttons, first, paused = stage.tell(story)

    assert not {"Pause…", "Resume…"} & set(others)
    assert command == "perdure pause restock/friday --reason stock-taking"
    assert "(stock-taking): what runs goes on to its end, and nothing else begins." in told
    assert first == (["Resume…"], "Resume…"), "no Patch…: its gate is tested at the resume"
    assert ("Resume…" in buttons, "Pause…" in buttons, paused) == (True, False, None)


def test_four_eyes_is_explained_and_enforced(stage):
    async def story(site, page):
        await (await site.engine.start("four_eyes", key="f-1")).until("waiting")
        found = await site.engine.tasks.list(Actor("root", admin=True))
        task = next(each.id for each in found if each.title == "Check what ann did")
        await page.goto(f"{site.url}/tasks/{task}")
        await page.wait_for_selector(".task-form")
        text, buttons = (
            await page.inner_text("main .task"),
            await page.locator(".task-form button[type=submit]").count(),
        )
        client = await site.login("ann")
        answer = await client.post(f"{API}/tasks/{task}/-/complete", json={"answer": {"outcome": "yes"}})
        return text, buttons, answer

    text, buttons, answer = stage.tell(story)

    assert "Four eyes: ann may not do this task. That is you" in text
    assert buttons == 0
    assert answer.status_code == 409, answer.text


def test_a_loop_is_one_row_until_it_is_opened_and_the_timeline_is_zoomed_by_keys(stage):
    async def story(site, page):
        handle = await site.engine.start("counting", key="few", n=6)
        await handle.result(60)
        await page.goto(f"{site.url}/instances/counting/few")
        rows = page.locator("[role=treegrid] [data-n]")
        await rows.first.wait_for()
        folded = await rows.count()
        await rows.first.focus()
        await page.keyboard.press("ArrowRight")
        await rows.nth(6).wait_for()
        await page.keyboard.press("+")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("aside >> text=may be repeated after a crash")
        url = page.url
        await page.reload()
        await page.wait_for_selector("aside .keyed code")
        client = await site.login("ann")
        answer = await client.get(f"{API}/instances/counting/few/-/operations")
        return folded, url, await page.get_attribute("aside .keyed code", "title"), answer.json()["operations"]

    folded, url, key, operations = stage.tell(story)

    assert folded == 1
    assert "at=count&" in f"{url}&" and "zoom=25.00-75.00" in url
    assert key == operations[0]["key"] != operations[1]["key"]


def test_ctrl_k_finds_instances_and_runs_the_verbs_of_the_page(stage):
    async def story(site, page):
        await page.keyboard.press("Control+k")
        await page.keyboard.type("order")
        await page.wait_for_selector("[role=option] .mono >> text=order/o-1")
        await page.keyboard.type("/o-2")
        await page.wait_for_selector("[role=option] .mono >> text=order/o-1", state="detached")
        await page.wait_for_selector("[role=option] .mono >> text=order/o-2")
        await page.wait_for_selector("[role=option] .mono >> text=order/o-2")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".inst-head")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("tag order")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog >> text=Tag order/o-2")
        await page.goto(site.url)
        await page.wait_for_selector(".totals")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("fork order/o-2")
        await page.wait_for_selector(r"[role=option] >> text=/^Fork order\/o-2$/")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog >> text=Fork order/o-2")
        return page.url

    assert stage.tell(story).endswith("/instances/order/o-2")


def test_a_bulk_is_started_from_selected_rows_after_its_dry_run_and_a_typed_count(stage):
    async def story(site, page):
        for n in range(3):
            handle = await an_order(site, f"bulk-{n}")
        await page.goto(f"{site.url}/instances?q=workflow:order+key_prefix:bulk-")
        await page.wait_for_selector("text=bulk-2")
        await page.click("thead input")
        await page.click(".pick >> text=Tag…")
        await page.fill("#d-name", "shop")
        await page.wait_for_selector("#dry >> text=remove the tag shop")
        await page.fill("#d-value", "north")  # the plan of that dry run is of another value
        await page.click("dialog button[type=submit]")
        await page.wait_for_url("**/bulk?id=*")
        await page.goto(f"{site.url}/instances?q=workflow:order+key_prefix:bulk-")
        await page.wait_for_selector("text=bulk-2")
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await page.wait_for_selector(".pick >> text=1 selected")
        await page.click("text=Select all 3 that match")
        await page.click(".pick >> text=Cancel…")
        told = await page.inner_text("#dry >> nth=0")
        await page.click("dialog button[type=submit]")
        problem = await page.inner_text("dialog .problem")
        before = await handle.status()
        await page.fill("#d-count_typed", "3")
        await page.click("dialog button[type=submit]")
        await page.wait_for_url("**/bulk?id=*")
        await page.wait_for_selector("tr[aria-selected] >> text=3 of 3")
        await handle.until("cancelled", 60)
        return told, problem, before

    told, problem, before = stage.tell(story)

    assert "Cancel 3 instances." in told and "end the wait receive:decision" in told
    assert problem == "Type 3."
    assert before == "waiting"


def test_a_list_is_kept_as_a_bookmark_with_its_columns_and_its_order(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances?q=status:waiting")
        await page.wait_for_selector(".ledger.inst")
        await page.click("summary >> text=Columns")
        await page.click(".list-menu >> text=tag note")
        await page.wait_for_selector("th >> text=note")
        await page.click("summary >> text=Order")
        await page.click(".list-menu >> text=last changed first")
        await page.click("text=Save as bookmark…")
        await page.fill("#d-name", "what waits")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector("dialog", state="detached")
        await page.goto(f"{site.url}/instances")
        await page.click(".tabs >> text=what waits")
        await page.wait_for_selector("th >> text=note")
        await page.wait_for_selector("summary >> text=last changed first")
        shown = await page.inner_text(".chips")
        await page.click(".chip .k")
        await page.wait_for_selector(".chip.not")
        return shown, page.url

    shown, url = stage.tell(story)

    assert "status is" in shown and "waiting" in shown
    assert "q=-status" in url


def test_all_tabs_of_a_browser_share_one_stream_and_a_notice_takes_a_quarter_of_the_window(stage):
    async def story(site, page):
        handle = await an_order(site, "in-two-tabs")
        other = await page.context.new_page()
        for each in (page, other):
            await each.goto(f"{site.url}/instances/order/in-two-tabs")
            await each.wait_for_selector(".foot .live:not(.off)")
        async with asyncio.timeout(60):
            while site.server._streams != {"ann": 1}:  # those of pages that were left end a little later
                await page.wait_for_timeout(20)
        await handle.send("decision", "yes")
        for each in (page, other):
            await each.wait_for_selector(".stamp.st-completed")
        site.server.tell("order/o-1 would diverge: entry 2\nAdvice, in a line\nand another one")
        await page.wait_for_selector(".notice")
        read.append(await page.locator(".notice").evaluate("box => box.scrollHeight <= box.clientHeight"))
        site.server.tell(
            "\n".join([f"order/o-{n} would diverge: at entry 2 it did {'something else ' * 9}" for n in range(64)])
        )
        await other.set_viewport_size({"width": 360, "height": 740})
        for each, scheme in ((page, "light"), (other, "dark")):
            await each.bring_to_front()
            await each.emulate_media(color_scheme=scheme)
            await each.evaluate(GO, "/tasks")  # the stream has its channel already: the notice stays
            await each.focus("text=Show all")
            taken.append(await each.evaluate(SHARE))
            await each.keyboard.press("Enter")
            await each.wait_for_selector(".notice.open")
            taken.append(await each.evaluate(SHARE))
            await each.focus(".notice")
            await each.keyboard.press("End")
            await each.locator(".notice").evaluate(SCROLLED)
            await each.evaluate(AXE_SCRIPT)
            found.extend(await each.evaluate(AXE, {"include": [".stale"]}))
        site.server.tell("")
        await page.wait_for_selector(".notice", state="detached")

    taken: list[float] = []
    read: list[bool] = []
    found: list[str] = []
    stage.tell(story)

    assert read == [True], "the advice stands in the lines below the first one"
    assert max(taken) <= 0.26 and min(taken) > 0.05
    assert found == []


SCROLLED = "(box) => new Promise((done) => box.scrollTop ? done() : box.addEventListener('scroll', done))"
SHARE = "document.querySelector('.stale').getBoundingClientRect().height / innerHeight"


def test_a_start_form_has_the_parameters_with_the_json_beside_it(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/workflows/approval?start=1")
        await page.fill("#s-key", "by-hand")
        await page.fill("#f-amount", "seven")
        await page.click("dialog button[type=submit]")
        problem = await page.inner_text("dialog .problem")
        await page.fill("#s-json", '{"amount": 7}')
        await page.wait_for_function("document.querySelector('#f-amount').value === '7'")
        shown = await page.input_value("#f-amount")
        command = await page.inner_text("dialog .cmd code >> nth=0")
        await page.click("dialog button[type=submit]")
        await page.wait_for_url("**/instances/approval/by-hand")
        return problem, shown, command, page.url

    problem, shown, command, url = stage.tell(story)

    assert problem.startswith("A whole number is needed.")
    assert shown == "7"
    assert command.startswith("""perdure start approval --input '{"amount":7}' --key by-hand""")
    assert url.endswith("/instances/approval/by-hand")


def test_a_comment_stands_in_the_history_of_a_task(stage):
    async def story(site, page):
        await (await site.engine.start("approval", key="commented", amount=9)).until("waiting")
        await page.goto(f"{site.url}/instances/approval/commented")
        await page.click("text=Open the task")
        await page.click("summary >> text=More")
        await page.click("text=Comment…")
        await page.fill("#d-text", "asked the supplier")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector(".past >> text=asked the supplier")

    stage.tell(story)


def test_a_cell_shows_its_state_now_and_at_an_entry(stage):
    async def story(site, page):
        found = []
        for query in ("tab=data", "tab=data&entry=1"):
            await page.goto(f"{site.url}/instances/com.acme/shelf/a-1?{query}")
            await page.wait_for_selector(".travel.is-past" if "entry" in query else ".travel")
            found.append(await page.inner_text(".data-tree .n"))
        return found

    assert stage.tell(story) == ["7", "3"]


def test_a_definition_is_checked_while_it_is_typed_and_put(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/workflows")
        await page.click("text=Put a definition…")
        await page.fill("#d-text", RESTOCK_TWO.replace("next: end", "next: nowhere"))
        await page.wait_for_selector("#dry >> text=nowhere")
        await page.fill("#d-text", RESTOCK_TWO)
        await page.wait_for_selector("#dry >> text=Keep the playbook restock-two")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector("td >> text=restock-two")

    stage.tell(story)


def test_ten_thousand_rows_keep_600_elements(stage):
    async def story(site, page):
        await asyncio.gather(*[site.engine.start("secret_plan", key=f"row-{n:05}") for n in range(ROWS)])
        await page.goto(f"{site.url}/instances?q=key_prefix:row-")
        await page.wait_for_selector(f"text=/^{ROWS:,} match/")
        most = 0
        while not await page.locator(f"tr[aria-rowindex='{ROWS + 1}']").count():
            await page.evaluate("scrollTo(0, document.body.scrollHeight)")
            await page.wait_for_timeout(20)
            most = max(most, await page.locator("main tr").count())
        return most

    assert stage.tell(story, seconds=300 if LONG else 60) <= 600


def test_a_proposal_is_shown_with_its_changes_and_rejected(stage):
    async def story(site, page):
        client = await site.login("bob")
        manifest = (await client.get(f"{API}/world/manifest")).json()["manifest"]
        manifest["schemas"]["com.acme/More@1"] = {"record": {"n": "nat"}}
        made = await client.post(f"{API}/world/proposals", json={"manifest": manifest})
        assert made.status_code < 300, made.text
        await page.goto(f"{site.url}/world")
        shown = await page.inner_text(".proposal")
        await page.click("text=Reject…")
        await page.fill("#d-reason", "not now")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector(".proposal >> text=not now")
        return shown

    shown = stage.tell(story)

    assert "1 change by bob" in shown and "com.acme/More@1" in shown


def test_a_reason_is_recorded_in_any_language(stage):
    async def story(site, page):
        await (await site.engine.start("order", key="reasoned")).until("waiting")
        await page.goto(f"{site.url}/instances/order/reasoned?do=cancel")
        await page.fill("#d-reason", "zu spät – 遅い")
        await page.click("dialog button[type=submit]")
        await site.engine.handle("order", "reasoned").until("cancelled")
        client = await site.login("ann")
        return (await client.get(f"{API}/instances/order/reasoned/-/history")).json()["asked"]

    assert [each["reason"] for each in stage.tell(story).values()][-1] == "zu spät – 遅い"


def test_a_viewer_has_no_button_that_changes_something(stage):
    async def story(site, page):
        viewer = {"grants": [{"role": "viewer", "workflows": ["order"], "values": False}], "roles": []}
        await site.server.accesses.ask("grant", {"actor": "viv", "person": viewer}, Actor("root"))
        client = await site.login("ann")
        link = (await client.post(f"{API}/access/link", json={"actor": "viv"})).json()["path"]
        await page.goto(site.url + link)
        await page.wait_for_selector(".totals")
        await page.goto(f"{site.url}/instances")
        await page.wait_for_selector(".ledger.inst tbody tr")
        boxes = await page.locator(".inst input[type=checkbox]").count()
        shown = await page.inner_text(".facet >> nth=1")
        await page.goto(f"{site.url}/instances/order/o-1?tab=data&do=cancel")
        await page.wait_for_selector("text=Withheld")
        return boxes, shown, await page.locator(".acts button, .why-list button.btn, dialog").count()

    boxes, shown, buttons = stage.tell(story, login="")

    assert (boxes, buttons) == (0, 0)
    assert "order" in shown and "secret_plan" not in shown


def test_every_entry_is_in_a_compact_row(stage):
    async def story(site, page):
        handle = await an_order(site, "told-briefly")
        await handle.tag("shop", "a")
        await handle.send("decision", "yes")
        await handle.result()
        await page.goto(f"{site.url}/instances/secret_plan/s-1")
        await page.wait_for_selector(".tall tbody tr")
        assert await page.locator(".travel").count() == 0, "it has one entry: there is no other to travel to"
        await page.goto(f"{site.url}/instances/order/told-briefly?journal=compact")
        await page.wait_for_selector("text=the instance itself")
        return await page.locator("[aria-label='Operations, a row each'] td.mono").all_inner_texts()

    shown = stage.tell(story)

    assert {int(each) for text in shown for each in text.split(", ")} == {1, 2, 3, 4}


def test_raw_entries_show_their_bytes(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances/order/o-2?journal=raw")
        await page.click("td.marg >> text=2")
        await page.wait_for_selector(".hex")
        shown, url = await page.inner_text(".hex"), page.url
        await page.reload()
        await page.wait_for_selector(".hex")
        await page.keyboard.press("Escape")
        await page.wait_for_selector(".hex", state="detached")
        client = await site.login("ann")
        answer = await client.get(f"{API}/instances/order/o-2/-/history?form=raw&after=1&limit=1")
        return shown, url, base64.b64decode(answer.json()["raw"][0]["body"]["bytes"])

    shown, url, kept = stage.tell(story)

    assert bytes.fromhex("".join(line[6:53] for line in shown.splitlines())) == kept
    assert "row=2" in url


def test_figures_of_the_dashboard_lead_to_their_lists_and_zeroes_to_none(stage):
    async def story(site, page):
        await page.wait_for_selector(".totals")
        links = [text.split("\n")[0] for text in await page.locator(".totals a").all_inner_texts()]
        rest = [text.split("\n")[:2] for text in await page.locator(".totals > div").all_inner_texts()]
        spark = await page.get_attribute("tr:has-text('broken') svg.spark", "aria-label")
        figure = await page.inner_text(".totals a:has-text('failed') .fig")
        assert await page.inner_text("#h-rates") == "Per minute, last hour", "before that there was nothing"
        await page.click(".totals a >> text=failed")
        await page.wait_for_selector(f"text=/^{figure} match/")
        return links, rest, spark, await page.inner_text(".chips")

    links, rest, spark, chips = stage.tell(story)

    assert "waiting" in links and "failed" in links
    assert ["stuck", "0"] in rest
    assert spark.startswith("broken: 1 starts in the last day")
    assert "ended after" in chips


def test_a_list_is_narrowed_by_facets_by_not_and_by_a_filter_of_its_parts(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances?q=workflow:order")
        await page.wait_for_selector("legend >> text=waits for")
        await page.click(".facet .row:has-text('message') input")
        await page.wait_for_url("**waits_for*")
        await page.hover(".facet .row:has-text('completed')")
        await page.click("[aria-label='not status:completed']")
        await page.wait_for_url("**-status*completed*")
        await page.click(".chips >> text=Filter")
        await page.select_option("[aria-label=Field]", "tag.")
        await page.fill("[aria-label='Name of the tag']", "note")
        await page.fill("[aria-label=Value]", "*")
        await page.click(".chip.add >> text=Add")
        await page.wait_for_selector("text=/^1 match/")
        why = await page.inner_text(".inst td.why")
        chips = [text.split("\n")[0] for text in await page.locator(".chip .k").all_inner_texts()]
        rows = page.locator(".facet .row:has-text('waiting') .n, .facet .row:has-text('failed') .n")
        await page.goto(f"{site.url}/instances?q=workflow:brok*")
        await page.wait_for_selector("text=/^[0-9,]+ match/")
        like = await rows.all_inner_texts()
        await page.goto(f"{site.url}/instances?q=-workflow:brok*")
        await page.wait_for_selector("text=/^[0-9,]+ match/")
        unlike = await rows.all_inner_texts()
        await page.goto(f"{site.url}/instances?q=status:waiting")
        await page.click("summary >> text=Order")
        await page.click("text=last changed first")
        await page.wait_for_url("**order=-changed*")
        await page.wait_for_selector("th[aria-sort=descending] >> text=changed")
        return why, chips, like, unlike, await page.locator("th.c-t[aria-sort=none]").count()

    why, chips, like, unlike, others = stage.tell(story)

    assert why.startswith("for a message decision")
    assert chips == ["workflow is", "waits for is", "status is not", "tag note is"]
    assert others == 1
    assert (like[0] == "0", like[1] != "0", unlike[0] != "0", unlike[1] == "0") == (True,) * 4, (like, unlike)


def test_an_instance_names_its_parents_and_marks_names_as_code(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/instances/approval/a-1")
        await page.wait_for_selector(".why-list")
        client = await site.login("ann")
        child = (await client.get(f"{API}/instances/approval/a-1/-/children")).json()["items"][0]["id"]
        await page.goto(f"{site.url}/instances/order/o-2")
        await page.wait_for_selector(".why-list .say p code")
        code = await page.locator(".why-list .say p code").all_inner_texts()
        await page.goto(f"{site.url}/instances/{child}")
        await page.wait_for_selector(".inst-head")
        return code, await page.inner_text("nav.path")

    code, path = stage.tell(story)

    assert code == ["decision"]
    assert "approval/a-1" in path.replace("\n", "")


def test_children_and_their_children_are_opened_in_line(stage):
    async def story(site, page):
        await site.engine.start("family", key="f-0")
        await site.engine.handle("family/f-1").until("waiting")
        await site.engine.handle("family/f-2").until("waiting")
        await page.goto(f"{site.url}/instances/family/f-0")
        await page.focus("[data-n='0']")
        await page.keyboard.press("ArrowRight")
        await page.wait_for_selector("[data-n='1']")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowRight")
        await page.wait_for_selector("[data-n='2']")
        await page.reload()
        await page.wait_for_selector("[data-n='2']")
        rows = page.locator("[role=row][data-n]")
        return [(await row.get_attribute("aria-level"), await row.inner_text()) for row in await rows.all()]

    rows = stage.tell(story)

    assert [level for level, _ in rows] == ["1", "2", "3"]
    assert "family/f-1" in rows[0][1] and "family/f-2" in rows[1][1] and "receive:go" in rows[2][1]


def test_copied_commands_are_those_of_the_command_line(stage, tmp_path):
    """Each is asked of an empty database: the command line takes its words, and finds no such thing."""
    missing = str(tmp_path / "missing.db")

    async def story(site, page):
        found = []

        async def command(press, **fields):
            await page.click(press)
            for name, text in fields.items():
                await page.fill(f"#{name}", text)
            found.append(await page.inner_text("dialog .cmd:not(.http) code >> nth=0"))
            await page.keyboard.press("Escape")
            await page.wait_for_selector("dialog", state="detached")

        await page.goto(f"{site.url}/instances/order/o-2")
        await command(".acts >> text=Send…", **{"d-name": "decision"})
        await command(".acts >> text=Tag…", **{"d-name": "shop", "d-value": "it's"})
        for each in ("Rewind…", "Fork…", "Cancel…"):
            await command(f".acts >> text={each}")
        task = next(path for path in stage.pages if path.startswith("/tasks/"))
        for each, fields in TASK_DIALOGS.items():
            await page.goto(site.url + task)
            await page.click("summary >> text=More")
            await command(f".list-menu >> text={each}", **fields)
        await page.goto(f"{site.url}/settings")
        await command("text=Make a key…", **{"d-actor": "crm"})
        await command("text=Grant…", **{"d-actor": "bob"})
        await page.goto(f"{site.url}/instances?q=workflow:order")
        await page.click("thead input")
        await command(".pick >> text=Tag…", **{"d-name": "shop", "d-value": "a"})
        await page.goto(f"{site.url}/workflows/order")
        await command("text=Start…")
        return found

    found = stage.tell(story, seconds=120)

    assert len(found) == 14
    for text in found:
        words = shlex.split(text)[1:]
        result = CliRunner().invoke(cli, [*words, "--db", missing], input="")
        assert result.exit_code in (Exit.OK, Exit.NOT_FOUND, Exit.DATABASE), (text, result.output)
