"""What another version of a workflow would do with live instances, before it is activated."""

import perdure
from perdure.access.model import Grant
from perdure.kernel.entry import event_of
from perdure.kernel.events import Address, Migrated, asked_of
from perdure.processes import Complete, Process, Receive, start
from perdure.server.api import definitions
from perdure.views import survey
from tests.server.site import ALL, VIEWER, run
from tests.server.test_definitions import PLAYBOOK
from tests.server.test_each_verb import patience

API = "/api/v1"


async def paid(cents: int) -> int:
    return cents


@perdure.flow(name="shop", version="1")
async def first(ctx, cents: int = 1, slow: bool = False):
    if slow:
        await ctx.receive("go")
    await ctx.step("charge", paid, cents)
    await ctx.receive("decision")


@perdure.flow(name="shop", version="2")
async def second(ctx, cents: int = 1, slow: bool = False):
    if slow:
        await ctx.receive("go")
    await ctx.step("pay", paid, cents)
    await ctx.receive("decision")


BOTH = [first, second]


async def begun(site, *starts):
    for key, slow in starts:
        await (await site.engine.start(first, slow=slow, key=key)).until("waiting")


def test_a_preview_replays_live_instances_and_names_where_they_diverge():
    async def story(site):
        await begun(site, ("a", False), ("b", False), ("c", True))
        await site.engine.handle("shop", "b").send("decision")
        await site.engine.handle("shop", "b").result(20)
        author = await site.key(Grant("author", ("shop",)))
        on = f"{API}/workflows/shop/-/preview"
        before = await site.engine.queries.height()
        bodies = {"version": "2"}, {"version": "1"}, {"version": "9"}, {"version": "1", "text": "x"}
        told = [await author.post(on, json=body) for body in bodies]
        return told, await (await site.key(VIEWER, actor="vi")).post(on, json={}), before, await height(site, "shop")

    async def height(site, name):
        rows = [await site.engine.queries.history(head.id) for head in await site.engine.queries.heads(of(name))]
        return max(row.seq for each in rows for row in each)

    (two, one, none, both), viewer, before, after = run(story, workflows=BOTH)

    found = two.json()
    assert (found["version"], found["live"], found["looked"], found["safe"]) == ("2", 2, 2, 1), found
    assert (found["partial"], found["stay"]) == (False, False)
    (unfit,) = found["unfit"]
    assert (unfit["location"], unfit["error"], unfit["count"]) == ("charge", "Divergence", 1)
    assert unfit["sample"][0]["id"] == "shop/a" and "nothing was run" in unfit["sample"][0]["divergence"]
    assert (one.json()["safe"], one.json()["unfit"]) == (2, [])
    assert [(each.status_code, each.json()["code"]) for each in (none, both)] == [
        (409, "code-not-here"),
        (422, "bad-request"),
    ]
    assert viewer.status_code == 403
    assert after <= before


def of(name):
    from perdure.ports.store import Filter

    return Filter(workflow=name)


def test_a_preview_says_how_many_it_has_looked_at_when_its_budget_ends(monkeypatch):
    async def story(site):
        await begun(site, *((f"k-{n}", True) for n in range(3)))
        monkeypatch.setattr(survey, "BUDGET_INSTANCES", 2)
        author = await site.key(Grant("author"))
        return (await author.post(f"{API}/workflows/shop/-/preview", json={"version": "2"})).json()

    found = run(story, workflows=BOTH)

    assert (found["live"], found["looked"], found["safe"], found["partial"]) == (3, 2, 2, True)


def test_a_preview_shows_no_recorded_value_to_a_login_that_sees_none():
    async def story(site):
        await begun(site, ("a", False))
        blind = await site.key(Grant("author", ("shop",), values=False))
        return await blind.post(f"{API}/workflows/shop/-/preview", json={"version": "2"})

    told = run(story, workflows=BOTH)

    (unfit,) = told.json()["unfit"]
    assert (unfit["count"], unfit["sample"]) == (1, [{"id": "shop/a", "divergence": ""}])


def test_a_definition_is_previewed_before_it_is_put_and_activated_by_its_plan():
    async def story(site):
        author = await site.key(Grant("author"))
        other = PLAYBOOK.replace("metadata: {name: stock}", "metadata: {name: stock, labels: {a: b}}")
        apart = PLAYBOOK.replace("step: a", "step: c").replace("{{ a }}", "{{ c }}")
        kept = (await author.post(f"{API}/workflows", json={"text": PLAYBOOK})).json()["version"]
        await author.post(f"{API}/instances", json={"workflow": "stock", "key": "s", "input": {}})
        await site.engine.handle("stock", "s").until("waiting")
        on = f"{API}/workflows/stock/-"

        async def put(text):
            return (await author.post(f"{API}/workflows", json={"text": text})).json()["version"]

        seen = [
            await author.post(f"{on}/preview", json={"text": text})
            for text in (PLAYBOOK, apart, other.replace("stock", "x"), PLAYBOOK.replace("next: b", "next: z"))
        ]
        two = await put(apart)
        back = {"version": kept}
        planned = await author.post(f"{on}/activate", json={**back, "dry_run": True})
        still = await site.engine.playbooks.get("stock")
        third = await put(apart.replace("result: 1", "result: 7"))
        stale = await author.post(f"{on}/activate", json={**back, "plan": planned.json()["plan"]})
        again = await author.post(f"{on}/activate", json={**back, "dry_run": True})
        done = await author.post(
            f"{on}/activate", json={**back, "plan": again.json()["plan"]}, headers={"x-reason": "safer"}
        )
        now = await site.engine.playbooks.get("stock")
        entries = await site.engine.handle("perdure.definition", "stock").history()
        return kept, two, third, seen, planned, still, stale, done, now, entries

    kept, two, third, seen, planned, still, stale, done, now, entries = run(story)

    same, apart, other, wrong = seen
    assert (same.json()["safe"], same.json()["stay"]) == (1, True), same.text
    assert (apart.json()["safe"], apart.json()["unfit"]) == (1, []), "its version is kept, so it stays on that"
    assert (other.status_code, other.json()["code"]) == (422, "bad-request")
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-definition")
    assert (planned.json()["now"], planned.json()["version"], still.version) == (two, kept, two)
    assert (planned.json()["preview"]["safe"], third != two) == (1, True)
    assert (stale.status_code, stale.json()["code"]) == (409, "selection-changed")
    assert (done.status_code, now.version) == (200, kept), done.text
    assert entries[-1].event


def test_the_source_of_a_definition_is_the_text_that_can_be_put():
    async def story(site):
        author = await site.key(Grant("author"))
        kept = (await author.post(f"{API}/workflows", json={"text": PLAYBOOK})).json()["version"]
        shown = (await author.get(f"{API}/workflows/stock/-/source")).json()
        again = await author.post(f"{API}/workflows", json={"text": shown["text"]})
        return kept, shown, again.json()["version"]

    kept, shown, again = run(story)

    assert (shown["media"], again) == ("application/yaml", kept)
    assert "apiVersion: perdure/v1" in shown["text"]


def test_who_activates_a_version_and_why_is_in_its_journal():
    async def story(site):
        author = await site.key(Grant("author"), actor="ada")
        kept = (await author.post(f"{API}/workflows", json={"text": PLAYBOOK})).json()["version"]
        on = f"{API}/workflows/stock/-/activate"
        await author.post(on, json={"version": kept}, headers={"x-reason": "safer"})
        admin = await site.login()
        told = await admin.get(f"{API}/instances/perdure.definition/stock/-/history")
        return told.json()["asked"]

    asked = run(story)

    assert [each["by"] for each in asked.values()] == ["ada", "ada", "ada"]
    assert asked["3"]["reason"] == "safer"
    assert "request:" in asked["3"]["via"]


def test_a_playbook_is_simulated_in_a_process_of_its_own(monkeypatch):
    patience(monkeypatch)

    async def story(site):
        author = await site.key(Grant("author"))
        on = f"{API}/playbooks/simulate"
        told = await author.post(on, json={"text": PLAYBOOK, "runs": 3})
        refused = [
            await author.post(on, json={"text": PLAYBOOK, "runs": 0}),
            await author.post(on, json={"text": PLAYBOOK.replace("next: b", "next: z")}),
            await author.post(on, json={"text": '{"format": "perdure.process/1"}'}),
            await (await site.key(VIEWER, actor="vi")).post(on, json={"text": PLAYBOOK}),
        ]
        monkeypatch.setattr(definitions, "SIMULATE_SECONDS", 0.0)
        late = await author.post(on, json={"text": PLAYBOOK})
        return told, refused, late

    told, refused, late = run(story)

    assert told.json()["runs"] == 3 and sum(told.json()["verdicts"].values()) == 3, told.text
    assert [each.status_code for each in refused] == [422, 422, 422, 403], [each.text for each in refused]
    assert (late.status_code, late.json()["code"]) == (409, "too-broad")


def test_a_start_over_http_is_refused_for_what_is_missing_here():
    """As a start of the engine itself: before anything is recorded."""

    async def story(site):
        author = await site.key(Grant("author"))
        secret = PLAYBOOK.replace("executor:", "keychain: [{name: bank, map: {key: NO_SUCH_SECRET}}]\nexecutor:")
        kept = await author.post(f"{API}/workflows", json={"text": secret})
        started = await author.post(f"{API}/instances", json={"workflow": "stock", "key": "s"})
        return kept, started, await site.engine.queries.head(Address("stock", "s"))

    kept, started, head = run(story)

    assert kept.status_code == 200, kept.text
    assert (started.status_code, "there is no secret" in started.json()["detail"]) == (422, True), started.text
    assert head is None


def loan(version, *names):
    steps = [Receive(name, name if name != "signed" else "sign") for name in names]
    return Process("loan", version=version, steps=[*steps, Complete(version)])


def test_live_instances_migrate_by_a_map_after_a_dry_run_and_what_does_not_fit_stays():
    async def story(site):
        author, operator = await site.key(Grant("author")), await site.key(Grant("operator"))
        for key in ("a", "b", "c"):
            await (await site.engine.start(loan("1.0.0", "ask", "sign"), key=key)).until("waiting")
        await site.engine.handle("loan", "a").send("ask")
        on, to = f"{API}/workflows/loan/-/migrate", {"to": "2.0.0", "map": {"sign": "signed"}}
        dry = await author.post(on, json={**to, "dry_run": True})
        await site.engine.handle("loan", "b").send("ask")
        stale = await author.post(on, json={**to, "plan": dry.json()["plan"]})
        again = await author.post(on, json={**to, "dry_run": True})
        plan = {**to, "plan": again.json()["plan"]}
        once = {"idempotency-key": "m-1", "x-reason": "the bank signs"}
        done = [await author.post(on, json=plan, headers=once) for _ in range(2)]
        (row, *_) = (await site.engine.queries.history((await site.engine.queries.head(Address("loan", "a"))).id))[::-1]
        refused = [
            await author.post(on, json=to),
            await author.post(on, json={"to": "3.0.0"}),
            await author.post(f"{API}/workflows/order/-/migrate", json={"to": "2"}),
            await author.post(on, json={**to, "keys": ["lost"]}),
            await author.post(on, json={**to, "map": {"sing": "signed"}}),
            await operator.post(on, json=to),
        ]
        shown = (await author.get(f"{API}/workflows/loan")).json()["versions"]
        await site.engine.handle("loan", "a").send("sign")
        return (
            dry,
            stale,
            again,
            done,
            event_of(row.body),
            refused,
            shown,
            await site.engine.handle("loan", "a").result(),
        )

    versions = [loan("1.0.0", "ask", "sign"), loan("2.0.0", "first", "signed")]
    dry, stale, again, done, event, refused, shown, result = run(story, workflows=[*ALL, *versions])

    assert (dry.json()["migrated"], [each["id"] for each in dry.json()["left"]]) == (["loan/a"], ["loan/c", "loan/b"])
    assert (stale.status_code, stale.json()["code"]) == (409, "selection-changed"), "another instance fits by now"
    assert again.json()["migrated"] == ["loan/b", "loan/a"]
    assert [each.status_code for each in done] == [200, 200], done[0].text
    assert (
        done[0].json()
        == done[1].json()
        == {
            "name": "loan",
            "version": "2.0.0",
            "migrated": ["loan/b", "loan/a"],
            "left": [{"id": "loan/c", "why": "ask: version 2.0.0 has no step ask"}],
            "more": 0,
            "code": versions[1].version,
        }
    )
    said = asked_of(event)
    assert isinstance(event, Migrated) and said is not None and said.by is not None
    assert (event.renamed, said.reason) == ({"sign": "signed"}, "the bank signs")
    codes = [(each.status_code, each.json()["code"]) for each in refused]
    assert codes == [
        (409, "does-not-fit"),
        (404, "unknown-version"),
        (404, "unknown-workflow"),
        (404, "not-found"),
        (422, "bad-request"),
        (403, "forbidden"),
    ]
    assert "no step is named 'sing'; did you mean 'sign'?" in refused[4].json()["detail"]
    assert {each["version"].partition("+")[0]: each["counts"].get("waiting", 0) for each in shown} == {
        "1.0.0": 1,
        "2.0.0": 2,
    }
    assert result == "2.0.0"


def test_a_login_that_sees_no_values_is_told_where_an_instance_does_not_fit_and_not_with_what():
    asks = [Receive("ask", "ask"), Complete(1)]
    old = Process("safe", version="1.0.0", steps=asks)
    new = Process("safe", version="2.0.0", state={"pin": start.pin + 1}, steps=asks)

    async def story(site):
        await (await site.engine.start(old, pin="secret-4711", key="a")).until("waiting")
        logins = [await site.key(Grant("author", ("safe",), values=values)) for values in (True, False)]
        on, body = f"{API}/workflows/safe/-/migrate", {"to": "2.0.0"}
        return [await login.post(on, json={**body, **more}) for login in logins for more in ({"dry_run": True}, {})]

    seen, refused, hidden, silent = run(story, workflows=[old, new])

    assert "secret-4711" in seen.text and "secret-4711" in refused.text
    assert hidden.json()["left"] == [{"id": "safe/a", "why": "state.pin: it does not fit"}]
    assert (silent.json()["code"], "secret-4711" in silent.text) == ("does-not-fit", False)
