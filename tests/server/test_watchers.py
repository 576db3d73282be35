"""Many watchers: each hears of each change once, and what does not concern them costs them nothing."""

import asyncio
import json
from collections import Counter

import perdure
from perdure.server import limits
from tests.server.site import ALL, VIEWER, run

API = "/api/v1"
WATCHERS, CHANGES = 60, 30


@perdure.flow
async def busy(ctx, n: int = 0):
    await ctx.receive("never")


class Watcher:
    """One connection, as cheap as it can be: `heard` counts the instances of its events."""

    def __init__(self, site, key, channel):
        self._address, self._key, self._channel = site.url.removeprefix("http://"), key, channel
        self.heard: Counter[str] = Counter()
        self.live, self.gaps = asyncio.Event(), 0
        self.task = asyncio.ensure_future(self._follow())

    async def _follow(self):
        host, _, port = self._address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"GET {API}/stream?channels={self._channel} HTTP/1.1\r\nhost: {host}\r\nauthorization: {self._key}\r\n\r\n"
        )
        writer.write(head.encode())
        name = b""
        while line := await reader.readline():
            if line.startswith(b"event: "):
                name = line[7:].strip()
                self.gaps += name == b"gap"
                if name == b"live":
                    self.live.set()
            elif line.startswith(b"data: ") and name == b"head":
                self.heard[json.loads(line[6:])["id"]] += 1
        writer.close()


async def watching(site, client, count, channel):
    watchers = [Watcher(site, client.headers["authorization"], channel) for _ in range(count)]
    await asyncio.gather(*[each.live.wait() for each in watchers])
    return watchers


async def leave(watchers):
    for each in watchers:
        each.task.cancel()
    await asyncio.gather(*[each.task for each in watchers], return_exceptions=True)


def test_a_thousand_watchers_hear_each_change_once(monkeypatch):
    """Fewer here: the bench has a thousand (S3-watchers)."""
    monkeypatch.setattr(limits, "STREAMS_MAX", WATCHERS)

    async def story(site):
        client = await site.key(VIEWER)
        watchers = await watching(site, client, WATCHERS, "list:workflow:busy")
        for n in range(CHANGES):
            await site.engine.start("busy", key=f"b-{n}")
            await site.engine.start("secret_plan", key=f"s-{n}")
        while any(f"busy/b-{CHANGES - 1}" not in each.heard for each in watchers):  # noqa: ASYNC110  # each has its own
            await asyncio.sleep(0.01)
        await leave(watchers)
        return [(each.heard, each.gaps) for each in watchers]

    told = run(story, workflows=[*ALL, busy])

    assert told == [({f"busy/b-{n}": 1 for n in range(CHANGES)}, 0)] * WATCHERS


def test_a_burst_elsewhere_is_no_gap_for_who_watches_something_else(monkeypatch):
    monkeypatch.setattr("perdure.server.stream.WAITING_MAX", 20)

    async def story(site):
        client = await site.key(VIEWER)
        (quiet,) = await watching(site, client, 1, "list:workflow:order")
        (loud,) = await watching(site, client, 1, "list:workflow:busy")
        await asyncio.gather(*[site.engine.start("busy", key=f"b-{n}") for n in range(300)])
        await site.engine.start("order", key="o")
        while "order/o" not in quiet.heard or not loud.gaps:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await leave([quiet, loud])
        return quiet.gaps, loud.gaps

    quiet, loud = run(story, workflows=[*ALL, busy])

    assert quiet == 0
    assert loud > 0


def counted(asked, name, method):
    async def ask(*args, **kwargs):
        asked.append(name)
        return await method(*args, **kwargs)

    return ask


def test_an_idle_server_asks_its_database_nothing(monkeypatch):
    async def story(site):
        client = await site.key(VIEWER)
        watchers = await watching(site, client, 3, "list:workflow:order")
        asked: list[str] = []
        queries = site.engine.queries
        for name in dir(type(queries)):
            method = getattr(queries, name)
            if not name.startswith("_") and asyncio.iscoroutinefunction(method) and name not in ("change", "changed"):
                monkeypatch.setattr(queries, name, counted(asked, name, method))
        for _ in range(50):  # turns of the loop, and of the clock that an engine looks into its inbox by
            await asyncio.sleep(0.01)
        idle = list(asked)
        await leave(watchers)
        await site.engine.start("order", key="o")
        await client.get(f"{API}/instances")
        return idle, asked

    idle, asked = run(story)

    assert idle == []
    assert "page" in asked
