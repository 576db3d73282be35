"""What a server says when no engine runs, or when the database is gone: 503 with a time to try again."""

import asyncio
import time

import perdure
from perdure.server import limits
from tests.proxy import Proxy
from tests.server.site import ALL, OPERATOR, run, site

API = "/api/v1"


def test_without_an_engine_reads_go_on_and_writes_say_whether_they_are_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure.server.api.acting.RECORDED_SECONDS", 0.05)
    path = str(tmp_path / "shop.db")

    async def before(site):
        await (await site.engine.start("order", key="o-1")).until("waiting")
        return (await site.key(OPERATOR)).headers

    async def main(headers):
        async with site(path, connect=True) as found:
            client = found.client(headers=headers)
            shown = await client.get(f"{API}/instances/order/o-1")
            sent = await client.post(f"{API}/instances/order/o-1/-/messages", json={"name": "decision", "body": 1})
            started = await client.post(
                f"{API}/instances", json={"workflow": "order", "key": "o-2"}, headers={"prefer": "wait=0"}
            )
            url, soon = f"{API}/instances/order/o-1", {"prefer": "respond-async, wait=0"}
            waits = await client.post(f"{url}/-/messages", json={"name": "note", "body": 2}, headers=soon)
            tagged = await client.request("PATCH", f"{url}/-/tags", json={"tags": {"a": 1}}, headers=soon)
            asked = await client.post(f"{API}/instances/order/o-1/-/ask", json={"name": "price", "wait": 0.05})
            ready, live = await client.get("/health/ready"), await client.get("/health/live")
            async with perdure.open(path, workflows=ALL) as engine:
                on = {"prefer": "wait=30"}
                taken = await client.post(f"{API}/instances/order/o-2/-/messages", json={"name": "x"}, headers=on)
                history = await engine.handle("order", "o-2").history()
                result = await engine.handle("order", "o-1").result(20)
                return shown, sent, started, asked, ready, live, result, (waits, tagged), taken, history

    headers = run(before, url=path)
    shown, sent, started, asked, ready, live, result, unsure, taken, history = asyncio.run(
        asyncio.wait_for(main(headers), 60)
    )

    assert [each.status_code for each in unsure] == [202, 202]
    assert {each.headers["location"] for each in unsure} == {f"{API}/instances/order/o-1"}
    assert started.headers["location"] == f"{API}/instances/order/o-2"
    assert taken.status_code == 200
    assert "message" in [line.event for line in history], "a write that waits is recorded when it is answered"

    assert shown.json()["status"] == "waiting"
    assert (sent.status_code, started.status_code, live.status_code) == (202, 202, 200)
    assert (asked.status_code, asked.json()["code"]) == (503, "not-answered")
    assert int(asked.headers["retry-after"]) >= 1
    assert ready.status_code == 200, "this server needs no engine of its own"
    assert result["decision"] == 1, "what was acknowledged is recorded"


def test_what_is_posted_to_an_engine_elsewhere_is_answered_by_what_became_of_it(tmp_path):
    """Two writes expect the same entry, and both are posted before the engine looks: one of them is refused."""
    path = str(tmp_path / "shop.db")

    async def before(site):
        for key in ("o-1", "o-2", "o-3"):
            await (await site.engine.start("order", key=key)).until("waiting")
        return (await site.key(OPERATOR)).headers

    async def main(headers):
        async with site(path, connect=True) as found:
            client = found.client(headers={**headers, "prefer": "wait=30", "if-match": '"2"'})
            on, calls = f"{API}/instances/order", f"{API}/verbs/send"
            dry = await client.post(f"{on}/o-3/-/cancel", json={"dry_run": True})
            params = {"id": "order/o-2", "name": "note", "body": 1}
            asked = [
                client.post(f"{on}/o-1/-/messages", json={"name": "note", "body": 1}),
                client.post(f"{on}/o-1/-/messages", json={"name": "note", "body": 2}),
                client.request("PATCH", f"{on}/o-1/-/tags", json={"tags": {"a": 1}}),
                client.post(calls, json={"params": params}),
                client.post(f"{on}/o-3/-/cancel", json={"plan": dry.json()["plan"]}),
            ]
            answers = [asyncio.ensure_future(each) for each in asked]
            posted = 0
            while posted < len(asked):
                await asyncio.to_thread(time.sleep, 0.01)
                posted = len(await found.engine.queries.undelivered())
            async with perdure.open(path, workflows=ALL):
                told = await asyncio.gather(*answers)
                plain = found.client(headers=headers)
                tagged = await plain.request("PATCH", f"{on}/o-2/-/tags", json={"tags": {"a": 1}})
            return told, tagged

    told, tagged = asyncio.run(asyncio.wait_for(main(run(before, url=path)), 60))

    assert sorted(each.status_code for each in told[:3]) == [200, 412, 412]
    assert {each.json()["code"] for each in told if each.status_code == 412} == {"version-conflict"}
    assert [each.status_code for each in told[3:]] == [200, 200]
    assert tagged.json()["tags"]["a"] == 1


def test_a_database_that_is_gone_is_a_503_and_back_again(postgres, monkeypatch):
    async def main():
        async with Proxy(postgres) as proxy, site(proxy.url) as found:
            client = await found.key(OPERATOR)
            await (await found.engine.start("order", key="o-1")).until("waiting", 30)
            monkeypatch.setattr(limits, "ANSWER_SECONDS", 1.0)
            proxy.refusing = True
            proxy.cut()
            gone = [
                await client.get(f"{API}/instances"),
                await client.post(f"{API}/instances/order/o-1/-/messages", json={"name": "decision", "body": 1}),
            ]
            ready = await client.get("/health/ready")
            monkeypatch.undo()
            proxy.refusing = False
            back = await client.get(f"{API}/instances/order/o-1")
            while back.status_code == 503:
                await asyncio.to_thread(time.sleep, 0.1)
                back = await client.get(f"{API}/instances/order/o-1")
            return gone, ready, back

    gone, ready, back = asyncio.run(asyncio.wait_for(main(), 110))

    for answer in gone:
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) >= 1
    assert ready.status_code == 503
    assert back.json()["key"] == "o-1"
