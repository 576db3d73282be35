"""Two servers, each with an engine, on one PostgreSQL: each answers for all shards."""

import asyncio
from contextlib import AsyncExitStack

from tests.server.site import OPERATOR, site

API = "/api/v1"


def test_two_servers_share_a_database_and_its_logins(postgres):
    async def story():
        async with AsyncExitStack() as stack:
            one, other = [await stack.enter_async_context(site(postgres)) for _ in range(2)]
            client = await one.key(OPERATOR)
            there = other.client(headers=client.headers)
            for n in range(6):
                made = await client.post(f"{API}/instances", json={"workflow": "order", "key": f"o-{n}"})
                assert made.status_code == 201, made.text
            for n in range(6):
                await other.engine.handle("order", f"o-{n}").until("waiting", 60)
            listed = (await there.get(f"{API}/instances")).json()["items"]
            said = {"name": "note", "body": "it is urgent"}
            twice = [
                await each.post(f"{API}/instances/order/o-1/-/messages", json=said, headers={"idempotency-key": "k-1"})
                for each in (client, there)
            ]
            await client.post(f"{API}/instances/order/o-1/-/messages", json={"name": "decision", "body": "yes"})
            result = (await there.get(f"{API}/instances/order/o-1/-/result?wait=60")).json()
            history = (await there.get(f"{API}/instances/order/o-1/-/history")).json()["history"]
            while True:  # shards move to the second engine one by one
                fleet = (await client.get(f"{API}/fleet")).json()
                of = {each["engine"] for each in fleet["shards"]}
                told = all(
                    "order" in each["workflows"] for each in fleet["engines"]
                )  # with the next renewal of a lease
                measured = told and any(each["commit_p95_seconds"] is not None for each in fleet["engines"])
                if sum(each["shards"] for each in fleet["engines"]) == 16 and measured:
                    assert of == {each["name"] for each in fleet["engines"]}
                    assert all(int(each["epoch"]) > 0 and each["lease_until"] for each in fleet["shards"])
                    assert not fleet["unserved"]
                    return listed, twice, result, history
                await asyncio.sleep(0.1)

    listed, twice, result, history = asyncio.run(asyncio.wait_for(story(), 180))

    starts = [each["started_at"] for each in listed]
    assert {each["key"] for each in listed} == {f"o-{n}" for n in range(6)}
    assert starts == sorted(starts, reverse=True)  # newest first holds over shards
    assert [each.status_code for each in twice] == [200, 200]
    assert result["result"]["decision"] == "yes"
    assert [each["event"] for each in history].count("message") == 2  # the note once, and the decision


def test_a_bulk_reaches_the_instances_of_all_engines(postgres):
    async def story():
        async with AsyncExitStack() as stack:
            one, other = [await stack.enter_async_context(site(postgres)) for _ in range(2)]
            client = await one.key(OPERATOR, actor="ann")
            keys = [f"o-{n}" for n in range(24)]
            for key in keys:
                await one.engine.start("order", key=key)
            for key in keys:
                await other.engine.handle("order", key).until("waiting", 30)
            asked = {
                "verb": "send",
                "params": {"name": "decision", "body": "all"},
                "selection": {"q": "status:waiting workflow:order"},
                "rate": 1000,
            }
            plan = (await client.post(f"{API}/bulk", json={**asked, "dry_run": True})).json()
            begun = (await client.post(f"{API}/bulk", json={**asked, "plan": plan["plan"]})).json()
            await other.engine.handle("perdure.bulk", begun["id"]).result(40)
            results = [await other.engine.handle("order", key).result(40) for key in keys]
            shown = (await other.client(headers=client.headers).get(f"{API}/bulk/{begun['id']}")).json()
            return plan["count"], results, shown

    count, results, shown = asyncio.run(asyncio.wait_for(story(), 110))

    assert count == 24
    assert {each["decision"] for each in results} == {"all"}
    assert (shown["status"], shown["done"], shown["refused"]) == ("completed", 24, [])
