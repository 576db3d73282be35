"""The audit has logins, keys, grants, shared bookmarks, exports and refused writes; changes reach every server."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx

import perdure
from perdure.access.model import Grant
from perdure.server import Settings, app
from tests.server.site import ADMIN, VIEWER, run, site

API = "/api/v1"


async def audit_until(admin, *wanted):
    """The audit, when it has entries of these names: entries that no request waits for come a moment later."""
    while True:
        found = (await admin.get(f"{API}/audit")).json()["items"][::-1]
        if set(wanted) <= {each["what"] for each in found}:
            return found
        await asyncio.sleep(0.01)


def test_the_audit_names_who_did_what():
    async def story(site):
        site.server._buckets._rate = site.server._buckets._burst = 1e9
        admin = await site.login("ann")
        await (await site.engine.start("order", key="o-1")).until("waiting")
        made = (await admin.post(f"{API}/access/keys", json={"actor": "crm", "roles": ["clerk"]})).json()
        await admin.put(f"{API}/access/grants/bob", json={"grants": [{"role": "viewer"}]})
        await admin.put(f"{API}/bookmarks/late", json={"q": "status:stuck", "shared": True})
        await admin.get(f"{API}/instances/export", params={"format": "csv"})
        await admin.get(f"{API}/verbs/export", params={"params": json.dumps({"id": "order/o-1"})})
        await admin.delete(f"{API}/access/keys/{made['id']}")
        found = await audit_until(admin, "login", "key revoke", "export", "grant")
        while len([each for each in found if each["what"] == "export"]) < 2:
            found = await audit_until(admin)
        return made, found

    made, found = run(story)

    assert {each["what"] for each in found} >= {"login", "key add", "key revoke", "grant", "bookmark put", "export"}
    assert {each["by"] for each in found} == {"ann"}
    assert {each["details"].get("q", each["details"].get("id")) for each in found if each["what"] == "export"} == {
        *("", "order/o-1")
    }
    assert made["key"].split("_", 2)[2] not in json.dumps(found)
    assert "digest" not in json.dumps(found)


def test_refused_writes_are_counted_one_entry_a_minute(monkeypatch):
    async def story(site):
        admin, viewer = await site.login(), await site.key(VIEWER, actor="vic")
        await (await site.engine.start("order", key="o-1")).until("waiting")
        for _ in range(4):
            await viewer.post(f"{API}/instances/order/o-1/-/cancel", json={})
        await audit_until(admin, "denied")
        monkeypatch.setattr("perdure.server.limits.DENIED_SECONDS", 0.0)
        await viewer.post(f"{API}/instances/order/o-1/-/cancel", json={})
        while True:
            found = [each for each in await audit_until(admin, "denied") if each["what"] == "denied"]
            if len(found) > 1:
                break
        return [(each["by"], each["details"]) for each in found]

    first, second = run(story)

    assert first == ("vic", {"verb": "cancel", "more": 0})
    assert second == ("vic", {"verb": "cancel", "more": 3})


def test_strangers_are_in_no_audit():
    async def story(site):
        admin, stranger = await site.login(), site.client(headers={"authorization": "Bearer pdk_nonsense"})
        for _ in range(3):
            await stranger.post(f"{API}/instances", json={"workflow": "order"})
        await admin.put(f"{API}/access/grants/bob", json={"grants": [{"role": "viewer"}]})
        return {each["what"] for each in await audit_until(admin, "login", "grant")}

    assert run(story) == {"login", "grant"}


@asynccontextmanager
async def second_server(path):
    """A server without an engine on the same file, with the same secret."""
    async with perdure.connect(path) as client:
        settings = Settings(secret="a secret of this test", hosts=("127.0.0.1",), connect=True)
        transport = httpx.ASGITransport(app(client, settings=settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asked:
            yield asked


async def until_status(ask, status):
    while True:
        if (await ask()).status_code == status:
            return
        await asyncio.sleep(0.05)


def test_logouts_revoked_keys_and_changed_grants_reach_every_server(tmp_path):
    path = str(tmp_path / "shop.db")

    async def story():
        async with site(path) as one, second_server(path) as other:
            admin, leaving = await one.login("ann"), await one.login("bob")
            key = (await admin.post(f"{API}/access/keys", json={"actor": "crm", "grants": [{"role": "viewer"}]})).json()
            bearer = {"authorization": f"Bearer {key['key']}"}
            cookie = {"cookie": "; ".join(f"{n}={v}" for n, v in leaving.cookies.items())}

            def asks(headers, path="/whoami"):
                return lambda: other.get(f"{API}{path}", headers=headers)

            await until_status(asks(bearer), 200)
            assert (await asks(cookie)()).status_code == 200
            await leaving.post("/logout")
            await admin.delete(f"{API}/access/keys/{key['id']}")
            await until_status(asks(cookie), 401)
            await until_status(asks(bearer), 401)

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_grant_that_is_taken_away_ends_rights_and_streams(monkeypatch):
    monkeypatch.setattr("perdure.server.stream.RECHECK_SECONDS", 0.05)
    monkeypatch.setattr("perdure.server.accesses.FRESH_SECONDS", 0.0)

    async def story(site):
        admin = await site.key(ADMIN)
        path = (await admin.post(f"{API}/access/link", json={"actor": "bob"})).json()["path"]
        await admin.put(f"{API}/access/grants/bob", json={"grants": [{"role": "viewer", "workflows": ["order"]}]})
        bob = site.client(headers={"x-perdure": "1", "origin": site.url})
        await bob.post("/login", json={"token": path.partition("#")[2]})
        handle = await site.engine.start("order", key="o-1")
        await handle.until("waiting")
        before = (await bob.get(f"{API}/instances/order/o-1")).status_code
        async with bob.stream("GET", f"{API}/stream", params={"channels": "instance:order/o-1"}) as stream:
            lines = stream.aiter_lines()
            async for line in lines:
                if line == "event: live":
                    break
            await admin.put(f"{API}/access/grants/bob", json={})
            after = (await bob.get(f"{API}/instances/order/o-1")).status_code
            told = [line async for line in lines]
        return before, after, told

    before, after, told = run(story)

    assert (before, after) == (200, 403)
    assert "event: bye" in told


def test_keys_for_grants_keep_their_own_rights():
    """A key has what it was made with; grants of its actor are for logins of people."""

    async def story(site):
        client = await site.key(Grant("viewer", ("order",)), actor="bob")
        admin = await site.login()
        await admin.put(f"{API}/access/grants/bob", json={"grants": [{"role": "operator"}]})
        return (await client.get(f"{API}/whoami")).json()["grants"]

    assert [each["role"] for each in run(story)] == ["viewer"]
