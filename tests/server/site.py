"""A real server on a real socket, in the loop of the test."""

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import Literal

import httpx
import msgspec

import perdure
from perdure.access.model import Grant
from perdure.server import Settings, app
from perdure.server.serve import bind, serve


class Decision(msgspec.Struct):
    outcome: Literal["yes", "no"]
    comment: str = ""


async def charge(cents: int) -> str:
    return f"c-{cents}"


@perdure.flow
async def order(ctx, order_id: str = "o", cents: int = 0):
    paid = await ctx.step("charge", charge, cents)
    decision = await ctx.receive("decision")
    ctx.publish("decided", decision.body)
    return {"paid": paid, "decision": decision.body}


@perdure.flow
async def secret_plan(ctx, what: str = ""):
    await ctx.sleep("nap", 1000)


@perdure.flow
async def approval(ctx, amount: int = 0):
    done = await ctx.task("approve", title=f"Approve {amount}", roles=["manager"], answer=Decision)
    return done.answer.outcome


@perdure.flow
async def broken(ctx):
    raise ValueError("this flow fails")


@perdure.flow
async def family(ctx, depth: int = 0):
    if depth < 2:
        await ctx.child(family, depth + 1, key=f"f-{depth + 1}")
    await ctx.receive("go")


ALL = [order, secret_plan, approval, broken]


class Site:
    """`admin` is logged in by the login link; `key` makes clients of other actors."""

    def __init__(self, engine, server, url):
        self.engine, self.server, self.url = engine, server, url
        self.clients = []

    def client(self, **more):
        # There is no TLS here, and the certificates that nobody asks for take longer to read than a request.
        made = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=120, verify=False, **more)
        self.clients.append(made)
        return made

    async def login(self, actor="ann"):
        client = self.client(headers={"x-perdure": "1", "origin": self.url})
        answer = await client.post("/login", json={"token": self.server.accesses.own_link(actor)})
        assert answer.status_code == 200, answer.text
        return client

    async def key(self, *grants, actor="crm", roles=(), executor=""):
        admin = await self.login()
        said = {
            "actor": actor,
            "grants": [{"role": g.role, "workflows": list(g.workflows), "values": g.values} for g in grants],
            "roles": list(roles),
            "executor": executor,
        }
        answer = await admin.post("/api/v1/access/keys", json=said)
        assert answer.status_code == 201, answer.text
        return self.client(headers={"authorization": f"Bearer {answer.json()['key']}"})


@asynccontextmanager
async def site(url=":memory:", workflows=ALL, queues=None, **settings):
    """`connect=True`: a server alone, as `perdure serve --connect`; engines are elsewhere."""
    opened = {"workflows": workflows, "queues": queues, "drain": 0}
    around = perdure.connect(url) if settings.get("connect") else perdure.open(url, **opened)
    async with around as engine:
        listening = bind("127.0.0.1", 0)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = app(engine, settings=Settings(secret="a secret of this test", hosts=("127.0.0.1",), **settings))
        stop = asyncio.Event()
        running = asyncio.ensure_future(serve(server, listening, stop=stop))
        found = Site(engine, server, address)
        try:
            yield found
        finally:
            for client in found.clients:
                await client.aclose()
            stop.set()
            with suppress(asyncio.CancelledError):
                await running


def run(story, **more):
    """Tell a story about a site: an async function that is given one."""

    async def main():
        async with site(**more) as found:
            return await asyncio.wait_for(story(found), 180)

    return asyncio.run(main())


async def waiting(engine, handle):
    await handle.until("waiting", 60)


VIEWER, OPERATOR, ADMIN = Grant("viewer"), Grant("operator"), Grant("admin")
