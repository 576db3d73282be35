"""Bulk work and plans over HTTP: a dry run first, then the same with its plan."""

import json

from perdure.access.model import Grant
from tests.server.site import ADMIN, OPERATOR, run
from tests.server.test_remote import key_of, perdure

API = "/api/v1"


async def orders(site, count):
    for n in range(count):
        await (await site.engine.start("order", key=f"o-{n}")).until("waiting")


async def recorded_of(site):
    found = await site.engine.instances()
    return sum([len(await site.engine.handle(each.workflow, each.key).history()) for each in found])


def test_a_bulk_runs_after_its_dry_run_with_the_rights_of_its_actor():
    async def story(site):
        await orders(site, 3)
        await (await site.engine.start("secret_plan", key="s")).until("waiting")
        mine = await site.key(Grant("operator", ("order",)), Grant("viewer", ("secret*",)), actor="ann")
        other, admin = await site.key(OPERATOR, actor="bob"), await site.key(ADMIN, actor="eve")
        asked = {"verb": "cancel", "selection": {"q": "status:waiting"}, "reason": "ordered twice"}
        plan = await mine.post(f"{API}/bulk", json={**asked, "dry_run": True})
        await orders(site, 4)
        stale = await mine.post(f"{API}/bulk", json={**asked, "plan": plan.json()["plan"]})
        again = (await mine.post(f"{API}/bulk", json={**asked, "dry_run": True})).json()
        headers = {"idempotency-key": "once"}
        begun = await mine.post(f"{API}/bulk", json={**asked, "plan": again["plan"]}, headers=headers)
        id = begun.json()["id"]
        await site.engine.handle("perdure.bulk", id).result(60)
        shown = (await mine.get(f"{API}/bulk/{id}")).json()
        site.server._repeats._kept.clear()  # another server has no answers in memory
        repeated = await mine.post(f"{API}/bulk", json={**asked, "plan": again["plan"]}, headers=headers)
        seen = [(await each.get(f"{API}/bulk/{id}")).status_code for each in (mine, other, admin)]
        listed = [len((await each.get(f"{API}/bulk")).json()["items"]) for each in (mine, other, admin)]
        left = await site.engine.handle("secret_plan", "s").status()
        history = (await admin.get(f"{API}/instances/order/o-0/-/history")).json()
        return plan, stale, begun, shown, repeated, seen, listed, left, history

    plan, stale, begun, shown, repeated, seen, listed, left, history = run(story)

    assert (plan.status_code, plan.json()["count"]) == (200, 3)
    assert plan.json()["sample"][0]["would"][-1] == "end the instance as cancelled"
    assert (stale.status_code, stale.json()["code"]) == (409, "selection-changed")
    assert "3 instances" in stale.json()["detail"] and "4 that" in stale.json()["detail"]
    assert (begun.status_code, shown["status"], shown["done"], shown["by"]) == (201, "completed", 4, "ann")
    assert repeated.json() == begun.json()
    assert (seen, listed, left) == ([200, 404, 200], [1, 0, 1], "waiting")
    assert [each["reason"] for each in history["asked"].values()] == ["ordered twice"]


def test_a_stale_plan_of_one_instance_is_refused_and_a_dry_run_records_nothing():
    async def story(site):
        await orders(site, 1)
        await (await site.engine.start("broken", key="b")).until("failed")
        client, on = await site.key(OPERATOR), f"{API}/instances/order/o-0/-"
        before = await recorded_of(site)
        plans = {
            "cancel": await client.post(f"{on}/cancel", json={"dry_run": True}),
            "rewind": await client.post(f"{on}/rewind", json={"location": "charge", "dry_run": True}),
            "fork": await client.post(f"{on}/fork", json={"location": "charge", "dry_run": True}),
            "retry": await client.post(f"{API}/instances/broken/b/-/retry", json={"dry_run": True}),
        }
        recorded = await recorded_of(site) - before
        refused = await client.post(f"{on}/retry", json={"dry_run": True})
        plan = plans["cancel"].json()["plan"]
        other = await client.post(f"{on}/cancel", json={"undo": True, "plan": plan})
        await site.engine.handle("order", "o-0").tag("moved", "yes")
        stale = await client.post(f"{on}/cancel", json={"plan": plan})
        plan = (await client.post(f"{on}/cancel", json={"dry_run": True})).json()["plan"]
        done = await client.post(f"{on}/cancel", json={"plan": plan})
        return plans, recorded, refused, other, stale, done

    plans, recorded, refused, other, stale, done = run(story)

    assert {name: each.json()["would"] for name, each in plans.items()} == {
        "cancel": ["end the wait receive:decision", "end the instance as cancelled"],
        "rewind": ["drop charge and do it again", "drop receive:decision and do it again"],
        "fork": ["start another instance that goes on at charge"],
        "retry": ["do again what failed"],
    }
    assert recorded == 0
    assert (refused.status_code, refused.json()["code"]) == (409, "not-stuck")
    assert [each.json().get("code") for each in (other, stale)] == ["selection-changed"] * 2
    assert (done.status_code, done.json()) == (200, {"id": "order/o-0", "cancel": "asked"})


def test_the_command_line_plans_and_runs_a_bulk_at_a_server():
    async def story(site):
        await orders(site, 2)
        token = key_of(await site.key(OPERATOR, actor="crm"))
        words = ("bulk", "start", "cancel", "--where", "workflow:order", "--server", site.url)
        plan = await perdure(*words, "--dry-run", token=token)
        begun = await perdure(*words, "--yes", token=token)
        shown = await perdure("bulk", "show", json.loads(begun.stdout)["id"], "--server", site.url, token=token)
        where = ("--where", "status:failed", "--server", site.url)
        await (await site.engine.start("broken", key="b")).until("failed")
        again = [
            await perdure("retry", *where, token=token),
            await perdure("retry", "broken/b", *where, token=token),
            await perdure("retry", "--server", site.url, token=token),
        ]
        return plan, begun, shown, again

    plan, begun, shown, again = run(story)

    assert [each.exit_code for each in again] == [0, 2, 2], again[0].stderr
    assert json.loads(again[0].stdout)["count"] == 1

    assert json.loads(plan.stdout)["count"] == 2, plan.stderr
    assert json.loads(begun.stdout)["count"] == 2, begun.stderr
    assert json.loads(shown.stdout)["by"] == "crm", shown.stderr
