"""Limits hold under a flood, and a flood of one actor does not slow another one."""

import asyncio

import pytest

from perdure.server import limits
from perdure.server.accesses import FRESH_SECONDS
from perdure.server.http import Request
from perdure.server.limits import Buckets
from perdure.server.problems import HttpProblem
from perdure.server.stream import RECHECK_SECONDS, read_channels
from tests.server.site import OPERATOR, VIEWER, run

API = "/api/v1"


def test_a_flood_of_one_actor_is_cut_and_others_are_answered():
    async def story(site):
        flooding, other = await site.key(VIEWER, actor="bot"), await site.key(VIEWER, actor="ann")
        site.server._buckets = Buckets(per_second=0.001, burst=50)
        flood = await asyncio.gather(*(flooding.get(f"{API}/whoami") for _ in range(120)))
        return flood, await other.get(f"{API}/whoami")

    flood, other = run(story)

    refused = [each for each in flood if each.status_code == 429]
    assert len(flood) - len(refused) == 50
    assert {each.json()["code"] for each in refused} == {"too-many-requests"}
    assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
    assert other.status_code == 200


def test_an_actor_has_twenty_streams_also_if_all_come_at_once():
    async def story(site):
        client = await site.key(VIEWER)
        async with asyncio.TaskGroup() as group:
            opened = [group.create_task(begin(client)) for _ in range(25)]
        answers = [each.result() for each in opened]
        for answer in answers:
            await answer.aclose()
        for _ in range(1000):
            if not site.server._streams:
                break
            await asyncio.sleep(0.01)
        again = await begin(client)
        await again.aclose()
        return [answer.status_code for answer in answers], again.status_code

    statuses, again = run(story)

    assert (statuses.count(200), statuses.count(429)) == (20, 5)
    assert again == 200


async def begin(client):
    request = client.build_request("GET", f"{API}/stream", params={"channels": "fleet"})
    return await client.send(request, stream=True)


def test_a_refused_stream_is_not_counted():
    async def story(site):
        client = await site.key(VIEWER)
        for _ in range(30):
            assert (await client.get(f"{API}/stream", params={"channels": "dance"})).status_code == 422
        return dict(site.server._streams)

    assert run(story) == {}


def test_a_stream_has_each_channel_once_and_a_hundred_at_most():
    assert read_channels(["list:,fleet", "fleet", "list:"]) == [("list", ""), ("fleet", "")]
    with pytest.raises(HttpProblem, match="at most 100 channels, found 101"):
        read_channels([f"list:workflow:a{n}" for n in range(101)])


def test_a_right_that_is_revoked_at_another_server_ends_streams_within_five_seconds():
    assert RECHECK_SECONDS + FRESH_SECONDS < 5


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("perdure.server.http.READ_SECONDS", 0.05)

    async def story(site):
        client = await site.key(OPERATOR)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(site.url.rpartition(":")[2]))
        key = client.headers["authorization"]
        head = (
            f"POST {API}/instances HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {key}\r\ncontent-length: 10\r\n\r\n{{"
        )
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return answer.split()[1]

    assert run(story) == b"408"


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\n", b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\nGET / HT"])
def test_a_connection_without_a_whole_request_is_closed(monkeypatch, begun):
    monkeypatch.setattr("perdure.server.limits.READ_SECONDS", 0.05)

    async def story(site):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(site.url.rpartition(":")[2]))
        writer.write(begun)
        await reader.read()  # until the server closes it
        writer.close()
        return (await (await site.login()).get(f"{API}/whoami")).status_code

    assert run(story) == 200


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"content": b"x" * (limits.VALUE_BODY_MAX + 1)}, 413),
        ({"content": b"[" * 65 + b"]" * 65}, 400),
        ({"headers": [(f"x-{n}", "1") for n in range(120)]}, 431),
        ({"params": {"q": "x" * 9000}}, 414),
    ],
)
def test_what_is_too_large_is_refused(more, status):
    async def story(site):
        client = await site.key(OPERATOR)
        headers = [*more.pop("headers", []), ("content-type", "application/json")]
        return await client.post(f"{API}/instances", headers=headers, **more)

    assert run(story).status_code == status


def test_a_body_without_a_length_is_cut_at_the_limit():
    async def story(site):
        client = await site.key(OPERATOR)

        async def parts():
            for _ in range(20):
                yield b"x" * (1024 * 1024)

        return await client.post(f"{API}/instances", content=parts())

    assert run(story).status_code == 413


def test_the_limits_are_those_of_the_documentation():
    assert (limits.requests()._rate, limits.requests()._burst) == (50, 200)
    assert (limits.failed_logins()._rate * 60, limits.failed_logins()._burst) == (5, 5)
    assert (limits.BODY_MAX, limits.VALUE_BODY_MAX, limits.URL_MAX) == (2**20, 2**24, 2**13)
    assert (limits.HEADERS_MAX, limits.DEPTH_MAX, limits.READ_SECONDS, limits.STREAMS_MAX) == (100, 64, 10, 20)


@pytest.mark.parametrize(
    ("proxied", "passed", "address"),
    [(False, "6.6.6.6", "10.0.0.1"), (True, "6.6.6.6, 9.9.9.9", "9.9.9.9"), (True, "", "10.0.0.1")],
)
async def test_failed_logins_are_counted_by_the_address_that_our_proxy_saw(proxied, passed, address):
    headers = [(b"x-forwarded-for", passed.encode())] if passed else []
    scope = {"method": "POST", "path": "/login", "headers": headers, "client": ("10.0.0.1", 1)}

    assert Request(scope, None, proxied=proxied).address == address  # type: ignore[arg-type]
