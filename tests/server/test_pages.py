"""Workflows, drawings, tasks, the world, queues and settings, in a real browser."""

import shlex
from datetime import UTC, datetime

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from click.testing import CliRunner

from perdure.cli.exits import Exit
from perdure.cli.group import cli
from perdure.kernel.asked import Actor
from perdure.processes import Process, Receive, Repeat, Set
from tests.server import dialects
from tests.server.browser import staged
from tests.server.pages import AXE

API = "/api/v1"

many = Process(
    "many",
    version="1.0.0",
    state={"n": 0},
    steps=[
        Repeat("first", times=2, steps=[Set(f"a{n}", n) for n in range(150)]),
        Repeat("second", times=2, steps=[Set(f"b{n}", n) for n in range(149)]),
        Receive("end", "end"),
    ],
)


def loan(version, *names):
    return Process("loan", version=version, steps=[Receive(name, "sign") for name in names])


@pytest.fixture(scope="module")
def stage():
    with staged(workflows=[*dialects.ALL, many, loan("1.0.0", "sign"), loan("2.0.0", "signed", "archive")]) as found:
        found.runner.run(filled(found.site))
        yield found


async def filled(site):
    manager = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": ["manager"]}
    await site.server.accesses.ask("grant", {"actor": "ann", "person": manager}, Actor("root"))
    for workflow, key, value in dialects.STARTS:
        await (await site.engine.start_plain(workflow, value, key=key)).until("waiting")


def test_an_activation_tells_before_what_becomes_of_live_instances(stage):
    async def story(site, page):
        client = await site.login("ann")
        old = (await client.get(f"{API}/workflows/restock")).json()["versions"][0]["version"]
        text = (await client.get(f"{API}/workflows/restock/-/source")).json()["text"].replace("noop", "noop ", 1)
        put = await client.post(f"{API}/workflows", json={"text": text.replace("result: 42", "result: 43")})
        assert put.status_code == 200, put.text
        await page.goto(f"{site.url}/workflows/restock")
        row = page.locator("tr", has_text=old[:8])
        await row.locator("text=Activate…").click()
        dry = page.locator("#dry li")
        await dry.first.wait_for()
        told = await dry.all_inner_texts()
        await page.click("dialog button[type=submit]")
        await page.locator("tr.here", has_text=old[:8]).wait_for()
        return old, told, (await client.get(f"{API}/workflows/restock")).json()["versions"]

    old, told, versions = stage.tell(story)

    assert told[0].startswith(f"New instances run on {old}, no longer on ")
    assert told[1] == "1 safe, of 1 live."
    assert [each["active"] for each in versions if each["version"] == old] == [True]


def test_live_instances_migrate_with_a_map_after_the_dry_run_was_shown(stage):
    async def story(site, page):
        for key in ("a", "b"):
            await (await site.engine.start(loan("1.0.0", "sign"), key=key)).until("waiting")
        await page.goto(f"{site.url}/workflows/loan")
        await page.locator("tr", has_text="2.0.0").locator("text=Migrate to this…").click()
        dry = page.locator("#dry li")
        await dry.first.wait_for()
        without = await dry.all_inner_texts()
        none = await page.inner_text("#dry ~ p"), await page.is_disabled("dialog button[type=submit]")
        await page.fill("#d-map", '{"sign":')
        await page.locator("dialog p", has_text="The map is not JSON.").wait_for()
        broken = await page.is_disabled("dialog button[type=submit]")
        await page.evaluate(AXE_SCRIPT)
        against = await page.evaluate(AXE, {})
        await page.fill("#d-map", '{"sign": "signed"}')
        await page.locator("#dry li", has_text="2 instances").wait_for()
        named = await dry.first.inner_text()
        command = await page.inner_text("dialog .cmd:not(.http) code >> nth=0")
        await page.click("dialog button[type=submit]")
        await page.locator("dialog").wait_for(state="detached")
        summary = await site.engine.handle("loan", "a").summary()
        buttons = await page.locator("text=Migrate to this…").count()
        return without, none, broken, named, against, command, summary.version, buttons

    without, none, broken, named, against, command, version, buttons = stage.tell(story)

    assert without[0] == "0 instances would go on under 2.0.0."
    assert without[1:] == [f"loan/{key} stays: sign: version 2.0.0 has no step sign" for key in ("b", "a")]
    assert (none, broken) == (("Nothing would migrate.", True), True), "and it cannot be asked for"
    assert named == "2 instances would go on under 2.0.0: loan/b, loan/a."
    assert not against
    assert command.endswith("perdure processes migrate loan 2.0.0 --map sign=signed")
    assert version.startswith("2.0.0+") and buttons == 1, "only back to the other version"


def test_two_versions_are_compared_line_by_line_and_the_address_keeps_it(stage):
    async def story(site, page):
        client = await site.login("ann")
        for n in (1, 2):
            text = dialects.RESTOCK_TWO.replace("restock-two", "compared").replace("result: 2", f"result: {n}")
            assert (await client.post(f"{API}/workflows", json={"text": text})).status_code == 200
        listed = (await client.get(f"{API}/workflows?oldest=true")).json()["items"]
        active = [v for each in listed if each["name"] == "compared" for v in each["versions"] if v["active"]]
        await page.goto(f"{site.url}/workflows/compared")
        newest = await page.locator(".ledger tbody tr:has(.ver)").first.inner_text()
        assert active[0]["version"] in newest and "active" in newest, newest
        await page.select_option(".sect-head select", index=1)
        await page.wait_for_selector(".l.plus")
        await page.reload()
        return await page.inner_text(".l.minus"), await page.inner_text(".l.plus")

    before, after = stage.tell(story)

    assert ("result: 1" in before, "result: 2" in after) == (True, True)


def test_a_problem_of_a_definition_leads_to_its_line_and_column(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/workflows")
        await page.click("text=Put a definition…")
        await page.fill("#d-text", dialects.RESTOCK_TWO.replace("next: end", "next: nowhere"))
        problem = page.locator("#dry .link")
        await problem.first.wait_for()
        place = await problem.first.inner_text()
        await problem.first.click()
        at = await page.evaluate("document.activeElement.value.slice(0, document.activeElement.selectionStart)")
        return place, at, await page.locator("dialog button[type=submit]").is_disabled()

    place, at, disabled = stage.tell(story)

    assert place == f"{at.count(chr(10)) + 1}:{len(at.rpartition(chr(10))[2]) + 1}"
    assert disabled


def test_a_drawing_is_walked_along_its_edges_and_zoomed_by_keys(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/workflows/restock")
        await page.focus(".draw [data-location=count]")
        walked = []
        for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowLeft"):
            await page.keyboard.press(key)
            walked.append(await page.evaluate("document.activeElement.dataset.location"))
        fits = await page.evaluate("document.querySelector('svg.drawing').clientWidth")
        await page.keyboard.press("+")
        await page.wait_for_url("**scale=*")
        await page.reload()
        await page.wait_for_selector("svg.drawing")
        larger = await page.evaluate("document.querySelector('svg.drawing').clientWidth")
        await page.focus(".draw")
        await page.keyboard.press("0")
        await page.wait_for_function(f"document.querySelector('svg.drawing').clientWidth === {fits}")
        await page.click("text=As a list")
        return walked, fits, larger, await page.inner_text("main .ledger >> nth=0")

    walked, fits, larger, listed = stage.tell(story)

    assert walked == ["prices", "stock", "order", "prices", "count"]
    assert larger > fits * 1.2
    assert "prices, stock" in listed


def test_a_drawing_is_panned_by_pulling(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/workflows/restock?scale=300")
        box = await page.locator(".draw").bounding_box()
        await page.mouse.move(box["x"] + 400, box["y"] + 20)
        await page.mouse.down()
        await page.mouse.move(box["x"] + 250, box["y"] + 20)
        await page.mouse.up()
        return await page.evaluate("document.querySelector('.draw').scrollLeft")

    assert stage.tell(story) == 150


def test_the_overlay_of_a_drawing_changes_in_place(stage):
    async def story(site, page):
        await (await site.engine.start("restock", key="overlaid")).until("waiting")
        await page.goto(f"{site.url}/instances/restock/overlaid")
        node = page.locator("[data-location=order]")
        await node.evaluate("(node) => { node.seen = true; }")
        before = await node.get_attribute("class")
        client = await site.login("ann")
        patched = await client.patch(f"{API}/instances/restock/overlaid/-/ctx", json={"set": {"budget": True}})
        assert patched.status_code == 200, patched.text
        await page.wait_for_selector("[data-location=order].done")
        return before, await node.evaluate("(node) => node.seen")

    before, same = stage.tell(story)

    assert ("done" in before, same) == (False, True)


def test_a_node_of_a_graph_is_told_beside_its_drawing(stage):
    """Its budget, its trust, what was denied it and at which stage, what it says, and whom it asks."""

    async def story(site, page):
        dialects.thought.clear()
        await site.engine.start("careful", key="c-1", input="x")
        await page.goto(f"{site.url}/instances/careful/c-1")
        await page.wait_for_selector("[data-location=try].failed >> text=1 denied")
        aside = page.locator("aside.card")
        await page.click("[data-location=try]")
        await aside.locator("td >> text=a permit denies publish").wait_for()
        tried, url = await aside.inner_text(), page.url
        await page.click("[data-location=talk]")
        await aside.locator("text=a thought").wait_for()
        journal = await page.locator(".journal tr.bad .came").first.inner_text()
        talks, heading = await aside.inner_text(), await page.inner_text(".nodes h2:text('Denied') + .muted")
        dialects.thought.set()
        await page.goto(f"{site.url}/instances/article/heat-pumps?at=ship")
        await aside.locator("text=Open the task").click()
        await page.wait_for_selector("h1 >> text=May ship use publish?")
        return tried, url, talks, heading, journal

    tried, url, talks, heading, journal = stage.tell(story)

    assert "at=try" in url and "view=tree" not in url
    assert "of 5 calls" in tried and "permit\tpublish\ta permit denies publish" in tried
    assert "quarantined" in talks
    assert heading == "1 at permit"
    assert journal.startswith("receipt try error Denied: publish was denied")


def test_groups_of_a_large_drawing_are_folded_until_they_are_opened(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/workflows/many")
        folded = page.locator(".g-folded")
        await folded.first.wait_for()
        names = await folded.locator(".name").all_text_contents()
        few = await page.locator(".g-node").count()
        await folded.first.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".g-fold")
        return names, few, await page.locator(".g-node").count()

    names, few, many = stage.tell(story)

    assert [name.partition(":")[0] for name in names] == ["first", "second"]
    assert few < 10 and many > 150


def test_axe_finds_nothing_in_forms_definitions_and_differences(stage):
    """What the walk over all pages does not open: each in light and dark."""

    async def story(site, page):
        found = {}

        async def look(name):
            await page.evaluate(AXE_SCRIPT)
            for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
                await page.emulate_media(color_scheme=scheme)
                for rule, nodes in await page.evaluate(AXE, rules):
                    found[name, scheme, rule] = nodes

        task = await task_of(site, "survey", "axe")
        await page.goto(f"{site.url}/tasks/{task}")
        await page.click("text=Complete, then next task")
        await page.wait_for_selector(".note.bad")
        await look("a form with problems")
        await page.goto(f"{site.url}/workflows")
        await page.click("text=Put a definition…")
        await page.fill("#d-text", dialects.RESTOCK_TWO.replace("next: end", "next: nowhere"))
        await page.wait_for_selector("#dry .link")
        await look("a definition with a problem")
        await page.goto(f"{site.url}/workflows/many")
        await page.wait_for_selector(".g-folded")
        await look("a folded drawing")
        client = await site.login("ann")
        for n in (1, 2):
            text = dialects.RESTOCK_TWO.replace("restock-two", "seen").replace("result: 2", f"result: {n}")
            await client.post(f"{API}/workflows", json={"text": text})
        await page.goto(f"{site.url}/workflows/seen")
        await page.select_option(".sect-head select", index=1)
        await page.wait_for_selector(".l.plus")
        await look("two versions")
        await page.click("text=Activate…")
        await page.wait_for_selector("#dry li")
        await look("an activation")
        await page.goto(f"{site.url}/queues/nothing")
        await page.wait_for_selector(".empty")
        await look("a queue without a job")
        return found

    found = stage.tell(story)

    assert not found, "\n".join(map(str, found.items()))


# ---- tasks -----------------------------------------------------------------------------------------------------------


async def task_of(site, workflow, key, **given):
    await (await site.engine.start(workflow, key=key, **given)).until("waiting")
    found = await site.engine.tasks.list(Actor("root", admin=True), workflow=workflow, key=key)
    return found[0].id


def test_the_first_task_is_open_on_a_wide_screen_and_stays_while_others_come(stage):
    async def story(site, page):
        await task_of(site, "approval", "first", amount=1)
        await page.goto(f"{site.url}/tasks?order=created")
        head = page.locator("#h-task")
        await head.wait_for()
        before = await head.inner_text()
        await task_of(site, "approval", "second", amount=2)
        await page.wait_for_selector(".todo >> text=Approve 2")
        after = await head.inner_text()
        await page.set_viewport_size({"width": 360, "height": 740})
        await head.wait_for(state="hidden")
        return before, after, page.url

    before, after, url = stage.tell(story)

    assert before == after
    assert url.endswith("/tasks?order=created")


def test_a_form_shows_each_kind_of_field_and_the_answer_is_what_was_typed(stage):
    async def story(site, page):
        task = await task_of(site, "survey", "all")
        await page.goto(f"{site.url}/tasks/{task}")
        await page.fill("#f-name", "Ada")
        await page.fill("#f-story", "two\nlines")
        await page.fill("#f-age", "36")
        await page.fill("#f-price", "12.50")
        await page.fill("#f-day", "2026-11-18")
        await page.fill("#f-pause", "1 h 30 min")
        await page.click("label >> text=blue")
        await page.check("label:has-text('by post')")
        await page.click("fieldset:has(legend:text('Places')) >> text=Add")
        await page.fill("#f-places-0", "Rome")
        await page.fill("#f-home-street", "High Street")
        await page.select_option("#f-payment", "bank")
        await page.fill("#f-payment-iban", "DE02")
        await page.set_input_files("#f-proof", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"proof"})
        await page.wait_for_selector("text=a.txt, 5 bytes")
        await page.fill("#f-extra", '{"a": 1}')
        help = await page.inner_text("#h-f-name")
        await page.click("text=Complete, then next task")
        return help, await site.engine.handle("survey", "all").result(60)

    help, result = stage.tell(story)

    assert help == "As it stands in the passport"
    assert result == {
        "name": "Ada",
        "story": "two\nlines",
        "age": 36,
        "price": "12.50",
        "day": "2026-11-18",
        "pause": 5400.0,
        "colour": "blue",
        "ways": ["by post"],
        "places": ["Rome"],
        "home": {"street": "High Street", "floor": 0},
        "payment": {"kind": "bank", "iban": "DE02"},
        "proof": "proof",
        "extra": {"a": 1},
        "again": False,
        "second home": False,
    }, "an object that may be left out is left out, if nothing was typed into it"


def test_a_problem_stands_at_its_field_where_the_schema_has_it(stage):
    """What the form refuses by itself, the server refuses at the same places."""

    async def story(site, page):
        task = await task_of(site, "survey", "wrong")
        await page.goto(f"{site.url}/tasks/{task}")
        await page.fill("#f-age", "seven")
        await page.fill("#f-price", "much")
        await page.click("text=Complete, then next task")
        await page.wait_for_selector(".note.bad")
        shown = await page.locator(".form .problem code").all_inner_texts()
        wrong = {"name": "Ada", "story": "", "age": "seven", "price": "much", "ways": [], "places": [], "home": {}}
        client = await site.login("ann")
        refused = await client.post(f"{API}/tasks/{task}/-/complete", json={"answer": wrong})
        return shown, await page.inner_text(".note.bad"), [each["pointer"] for each in refused.json()["errors"]]

    shown, note, pointers = stage.tell(story)

    assert f"{len(shown)} fields have a problem" in note
    assert {"/age", "/price"} <= set(shown) & set(pointers)
    assert {each for each in shown if each not in pointers} <= {
        "/home/street",
        "/proof",
        "/extra",
    }  # absent is told above


def test_a_draft_is_kept_until_it_is_discarded_or_the_task_has_ended(stage):
    async def story(site, page):
        task = await task_of(site, "approval", "drafted", amount=3)
        await page.goto(f"{site.url}/tasks/{task}")
        await page.fill("#f-comment", "not yet")
        await page.wait_for_selector("text=Draft kept in this browser")
        await page.reload()
        await page.wait_for_selector("text=A draft of this browser")
        kept = await page.input_value("#f-comment")
        await page.click("text=Discard")
        discarded = await page.input_value("#f-comment")
        await page.fill("#f-comment", "done now")
        await page.click(".choice >> text=yes")
        await page.click(".finish button >> text=/^Complete$/")
        await page.wait_for_selector("text=It is completed")
        return kept, discarded, await page.evaluate(f"localStorage.getItem('perdure.draft.{task}')")

    assert stage.tell(story) == ("not yet", "", None)


def test_after_a_task_the_next_one_of_the_list_is_open_and_said_and_no_task_is_late(stage):
    async def story(site, page):
        tasks = [await task_of(site, "approval", f"row-{n}", amount=70 + n) for n in range(3)]
        await page.goto(f"{site.url}/settings")
        await page.wait_for_selector(".facts")
        await site.engine.tasks.change(tasks[1], due=datetime(2026, 1, 1, tzinfo=UTC), by=Actor("root", admin=True))
        await page.click(".nav a:has-text('1 late')")  # it comes by the stream
        await page.goto(f"{site.url}/tasks/{tasks[1]}?order=created")
        await page.wait_for_selector(".nav .late")
        await page.click(".choice >> text=yes")
        await page.click("text=Complete, then next task")
        await page.wait_for_url(f"**/tasks/{tasks[2]}*")
        await page.wait_for_selector("#h-task:focus:has-text('Approve 72')")
        await page.wait_for_selector(".nav .late", state="detached", timeout=20_000)  # the next look is after 60 s
        return await page.inner_text("p[role=status]")

    assert stage.tell(story) == "Approve 71 is done. Next: Approve 72"


def test_an_admin_is_told_before_that_the_task_is_for_others(stage):
    async def story(site, page):
        admin = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": []}
        await site.server.accesses.ask("grant", {"actor": "root2", "person": admin}, Actor("root"))
        task = await task_of(site, "approval", "overridden", amount=4)
        await page.goto(f"{site.url}/tasks/{task}")
        note = await page.inner_text(".task-form .note")
        command = await page.inner_text(".task-form .cmd code")
        await page.click(".choice >> text=no")
        await page.click(".finish button >> text=/^Complete$/")
        await page.wait_for_selector(".past >> text=root2 completes it: no")
        return note, command

    note, command = stage.tell(story, login="root2")

    assert "not for you" in note and "the history names you" in note
    assert "--override" in command and "--admin" in command


def test_a_task_is_assigned_escalated_and_put_off_by_its_dialogs(stage):
    async def story(site, page):
        task = await task_of(site, "approval", "moved", amount=5)
        await page.goto(f"{site.url}/tasks/{task}")

        async def do(verb, **fields):
            await page.click("summary >> text=More")
            await page.click(f".list-menu >> text={verb}")
            for name, text in fields.items():
                await page.fill(f"#d-{name}", text)
            await page.click("dialog button[type=submit]")
            await page.wait_for_selector("dialog", state="detached")

        await do("Assign…", to="ann")
        await page.wait_for_selector(".task-head >> text=to you since")
        await do("Escalate…", roles="director", priority="80")
        await do("Change priority…", due="2030-01-02T10:00")
        await page.wait_for_selector(".past >> text=due none →")
        await page.click("text=Release")
        await page.wait_for_selector(".past >> text=ann releases it")
        return await site.engine.tasks.get(task)

    found = stage.tell(story)

    assert (found.status, found.priority, found.roles) == ("open", 80, ("manager", "director"))
    assert found.due is not None and found.due.year == 2030


def test_a_person_without_a_task_role_is_told_so(stage):
    async def story(site, page):
        viewer = {"grants": [{"role": "viewer", "workflows": ["order"], "values": True}], "roles": []}
        await site.server.accesses.ask("grant", {"actor": "vera", "person": viewer}, Actor("root"))
        client = await site.login("ann")
        link = (await client.post(f"{API}/access/link", json={"actor": "vera"})).json()["path"]
        await page.goto(site.url + link)
        await page.wait_for_selector(".totals")
        await page.goto(f"{site.url}/tasks")
        await page.wait_for_selector(".empty")
        return await page.inner_text("main"), await page.locator(".todo, .task-form").count()

    text, tasks = stage.tell(story, login="")

    assert "You have no task role" in text
    assert tasks == 0


SMALL = """() => [...document.querySelectorAll("a[href], button, select, input, textarea, summary")]
    .filter((each) => each.closest("main") && each.checkVisibility() && !each.closest(".copy, .choice, .cmd, .tick"))
    .map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect().height])
    .filter(([, height]) => height < 44)"""


def test_every_target_of_a_task_has_44_pixels_at_360(stage):
    async def story(site, page):
        task = await task_of(site, "survey", "narrow")
        await page.goto(f"{site.url}/tasks")
        await page.wait_for_selector(".todo")
        small = await page.evaluate(SMALL)
        await page.goto(f"{site.url}/tasks/{task}")
        await page.wait_for_selector(".task-form .finish")
        return small + await page.evaluate(SMALL), await page.evaluate("document.documentElement.scrollWidth")

    small, width = stage.tell(story, width=360, height=740)

    assert (small, width) == ([], 360)


# ---- the world, queues, the fleet, settings --------------------------------------------------------------------------


def test_an_event_is_sent_traced_and_the_states_are_those_of_now_or_of_an_entry(stage):
    async def story(site, page):
        await site.engine.send(dialects.Counted("w-1", 3), id="first")
        await page.goto(f"{site.url}/world")
        await page.wait_for_selector("td.cut >> text=pieces 3")
        await page.click("[aria-label='event com.acme/Counted@1']")
        await page.fill("#d-data", '{"shelf": "w-1", "pieces": 4}')
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector("td.cut >> text=pieces 7")
        newest = page.locator(".came-list a").first
        await newest.click()
        await page.wait_for_selector(".trace >> text=shelf/w-1")
        entry = page.url.rpartition("event=")[2]
        await page.goto(f"{site.url}/world?entry={entry}")
        await page.wait_for_selector("text=Back to now")
        return await page.inner_text("tr:has-text('w-1') td.cut")

    assert stage.tell(story) == "pieces 3"  # the entry of the world is before that of the cell


def test_a_proposal_is_tried_by_its_author_and_approved_and_applied_by_another_person(stage):
    async def story(site, page):
        person = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": []}
        await site.server.accesses.ask("grant", {"actor": "bob", "person": person}, Actor("root"))

        async def press(verb):
            await page.click(f".proposal[open] button >> text={verb}…")
            await page.click("dialog button[type=submit]")
            await page.wait_for_selector("dialog", state="detached")

        client = await site.login("bob")
        manifest = (await client.get(f"{API}/world/manifest")).json()["manifest"]
        manifest["schemas"]["com.acme/Another@1"] = {"record": {"n": "nat"}}
        made = await client.post(f"{API}/world/proposals", json={"manifest": manifest})
        assert made.status_code < 300, made.text
        await page.goto(f"{site.url}/world")
        await page.wait_for_selector(".proposal .l.plus >> text=nat")
        await press("Shadow")
        await page.wait_for_selector(".report >> text=nothing failed")
        link = (await client.post(f"{API}/access/link", json={"actor": "bob"})).json()["path"]
        await page.goto(site.url + link)
        await page.wait_for_selector(".totals")
        await page.goto(f"{site.url}/world")
        note = await page.inner_text(".proposal[open] .note")
        proposers = await page.locator(".proposal[open] button >> text=Approve…").count()
        await page.goto(f"{site.url}/login#{site.server.accesses.own_link('ann')}")
        await page.wait_for_selector(".totals")
        await page.goto(f"{site.url}/world")
        await press("Approve")
        await press("Apply")
        await page.wait_for_selector(".proposal summary >> text=applied")
        return note, proposers, (await client.get(f"{API}/world/manifest")).json()["manifest"]["schemas"]

    note, proposers, schemas = stage.tell(story)

    assert "another person approves it" in note
    assert proposers == 0
    assert "com.acme/Another@1" in schemas


def test_a_snapshot_of_the_world_is_taken_and_listed(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/world")
        await page.click("text=Take one…")
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector("text=1 retained")
        await page.click("text=Migrate the rest…")
        return await page.inner_text("#dry")

    assert "Every cell has the definition of now" in stage.tell(story)


def test_the_database_is_examined_by_a_button(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/fleet")
        await page.click("text=Examine")
        await page.wait_for_selector("text=Nothing is wrong.")
        gap = await page.evaluate("getComputedStyle(document.querySelector('.cols.two')).columnGap")
        return await page.inner_text("main"), gap

    text, gap = stage.tell(story)

    assert gap == "24px", "the columns of two sections"

    assert "Every live instance has its code on some engine." in text
    assert "perdure 0." in text
    assert "lease until" in text and "the process ends" in text


def test_a_key_is_shown_once_and_the_audit_is_filtered_by_the_address(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/settings")
        await page.click("text=Make a key…")
        await page.fill("#d-actor", "crm")
        await page.click("dialog button[type=submit]")
        key = await page.inner_text(".note.made code >> nth=1")
        client = site.client(headers={"authorization": f"Bearer {key}"})
        who = (await client.get(f"{API}/whoami")).json()["id"]
        await page.select_option(".audit-bar select >> nth=1", "key add")
        await page.wait_for_url("**what=key+add*")
        await page.reload()
        await page.wait_for_selector("table.audit")
        return key, who, await page.inner_text("main"), await page.locator("table.audit tbody tr").count()

    key, who, text, rows = stage.tell(story)

    assert who == "crm"
    assert key not in text and "crm" in text
    assert rows == 1


def test_a_login_link_for_another_person_works(stage):
    async def story(site, page):
        await page.goto(f"{site.url}/settings")
        await page.click("text=Make a login link…")
        await page.fill("#d-actor", "bea")
        await page.click("dialog button[type=submit]")
        link = await page.inner_text(".note.made code")
        await page.goto(link)
        await page.wait_for_selector(".who >> text=bea")

    stage.tell(story)


def test_a_viewer_is_told_which_verbs_need_more(stage):
    async def story(site, page):
        viewer = {"grants": [{"role": "viewer", "workflows": ["*"], "values": True}], "roles": []}
        await site.server.accesses.ask("grant", {"actor": "vic", "person": viewer}, Actor("root"))
        client = await site.login("ann")
        link = (await client.post(f"{API}/access/link", json={"actor": "vic"})).json()["path"]
        await page.goto(site.url + link)
        await page.wait_for_selector(".totals")
        await page.goto(f"{site.url}/settings")
        await page.wait_for_selector(".rights")
        return await page.inner_text("main")

    text = stage.tell(story, login="")

    assert "it needs the role admin" in text
    assert "Make a key" not in text and "Audit" not in text


def test_copied_commands_of_these_pages_are_those_of_the_command_line(stage, tmp_path):
    """Each is asked of an empty database: the command line takes its words, and finds no such thing."""
    missing = str(tmp_path / "missing.db")

    async def story(site, page):
        found = []

        async def command(path, *press):
            await page.goto(site.url + path)
            for each in press:
                await page.click(each)
            found.append(await page.inner_text(f"{'dialog ' if press else 'main '}.cmd:not(.http) code >> nth=0"))

        client = await site.login("bob")
        person = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": []}
        await site.server.accesses.ask("grant", {"actor": "bob", "person": person}, Actor("root"))
        await client.post(f"{API}/workflows", json={"text": dialects.RESTOCK_TWO})
        await client.post(f"{API}/workflows", json={"text": dialects.RESTOCK_TWO.replace("result: 2", "result: 3")})
        manifest = (await client.get(f"{API}/world/manifest")).json()["manifest"]
        manifest["schemas"]["com.acme/Third@1"] = {"record": {"n": "nat"}}
        await client.post(f"{API}/world/proposals", json={"manifest": manifest})
        await command("/workflows/restock-two", "text=Activate…")
        await command("/workflows/order")
        await command("/world", "text=Send an event…")
        await command("/world", "text=Take one…")
        await command("/world", "text=Migrate the rest…")
        await command("/world", ".proposal[open] button >> text=Reject…")
        await command("/world?event=1")
        await command("/fleet")
        return found

    found = stage.tell(story, seconds=120)

    assert len(found) == 8
    for text in found:
        words = shlex.split(text.replace("MODULE", "perdure.dialect_commands.demo"))[1:]
        result = CliRunner().invoke(cli, [*words, "--db", missing], input="")
        nothing = "has no cells" in result.output or "no engine runs" in result.output
        assert nothing or result.exit_code in (Exit.OK, Exit.NOT_FOUND, Exit.DATABASE), (text, result.output)
