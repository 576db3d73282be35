"""The app inside other ASGI hosts, and its OpenAPI document."""

import asyncio
import re

import httpx
from fastapi import FastAPI
from openapi_spec_validator import validate
from starlette.applications import Starlette
from starlette.routing import Mount

import perdure
from perdure.server import Grant, Login, Settings, app
from perdure.server.openapi import document
from tests.server.site import order, run

SETTINGS = Settings(secret="a secret of this test")


def who(request):
    assert dict(request["headers"]).get(b"x-user", b"").decode() == request.headers.get("x-user", "")
    assert not hasattr(request, "user")
    name = request.headers.get("X-User", "")
    return Login(perdure.Actor(name), (Grant("operator"),)) if name else None


def test_a_mounted_app_works_below_a_sub_path_without_lifespan():
    async def told(make):
        async with perdure.open(":memory:", workflows=[order]) as engine:
            host = make(app(engine, actor=who, settings=SETTINGS))
            transport = httpx.ASGITransport(host)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client:
                mine = {"x-user": "ann"}
                made = {"workflow": "order", "key": "o-1"}
                started = await client.post("/perdure/api/v1/instances", json=made, headers=mine)
                await engine.handle("order/o-1").until("waiting")
                listed = await client.get("/perdure/api/v1/instances", headers=mine)
                stranger = await client.get("/perdure/api/v1/instances")
                page = await client.get("/perdure/instances/order/o-1", headers={**mine, "accept": "text/html"})
                files = re.findall('href="(/perdure/ui/[^"]+)"', page.text)
                found = {name.split("/", 4)[4]: (await client.get(name, headers=mine)).status_code for name in files}
                return started.status_code, len(listed.json()["items"]), stranger.status_code, found

    def fastapi(mounted):
        host = FastAPI()
        host.mount("/perdure", mounted)
        return host

    for make in (fastapi, lambda mounted: Starlette(routes=[Mount("/perdure", mounted)])):
        started, listed, stranger, files = asyncio.run(told(make))
        assert (started, listed, stranger) == (201, 1, 401)
        assert set(files.values()) == {200}
        needed = {"all.css", "main.js", "lib/html.js", "vendor/preact.js", "pages/instance.js", "lib/timeline.js"}
        assert needed < files.keys() and "pages/instances.js" not in files, (
            "what its address needs is asked for at once"
        )


def test_the_host_says_who_asks_and_the_actor_is_recorded():
    async def story():
        async with perdure.open(":memory:", workflows=[order]) as engine:
            transport = httpx.ASGITransport(app(engine, actor=who, settings=SETTINGS))
            async with httpx.AsyncClient(transport=transport, base_url="http://x", headers={"x-user": "bob"}) as client:
                await client.post("/api/v1/instances", json={"workflow": "order", "key": "o-1"})
                return (await client.get("/api/v1/instances/order/o-1/-/history")).json()

    assert asyncio.run(story())["asked"]["1"]["by"] == "bob"


def test_a_cookie_of_the_host_does_not_let_another_site_write():
    """Browsers add cookies and passwords to requests of other sites, too."""
    own = {"x-perdure": "1", "origin": "http://shop.example", "sec-fetch-site": "same-origin"}
    foreign = [
        {"cookie": "session=1"},
        {"cookie": "session=1", "origin": "http://evil.example", "x-perdure": "1"},
        {"authorization": "Basic YW5uOmFubg=="},
        {"sec-fetch-site": "cross-site", "x-perdure": "1", "origin": "http://evil.example"},
    ]
    good = [{}, {"cookie": "session=1", **own}, {"cookie": "session=1", "authorization": "Bearer of-the-host"}]

    async def story():
        async with perdure.open(":memory:", workflows=[order]) as engine:
            transport = httpx.ASGITransport(app(engine, actor=who, settings=SETTINGS))
            headers = {"x-user": "bob"}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://shop.example", headers=headers
            ) as client:
                body = {"workflow": "order", "key": "o-1"}
                return [
                    (await client.post("/api/v1/instances", json=body, headers=h)).status_code for h in foreign + good
                ]

    found = asyncio.run(story())

    assert found == [403] * 4 + [201] * 3


def test_the_openapi_document_is_valid_and_served():
    async def story(site):
        client = await site.login()
        return (await client.get("/openapi.json")).json()

    served = run(story)

    validate(served)
    assert served == document()
    assert served["openapi"] == "3.1.1"
