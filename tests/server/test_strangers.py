"""A stranger learns nothing, and a foreign name or origin gets nothing, on every face that the server has."""

import pytest

from perdure.server.routes import ROUTES
from tests.server.site import ADMIN, run

API = "/api/v1"
FACES = [
    *(("GET", path) for path in ("/", "/instances/order/o-1", "/openapi.json", "/ui/abc/app.css", "/nothing")),
    *(("POST", path) for path in ("/logout", "/", "/login/x", "/ui/abc/app.css")),
    *(("GET", f"{API}/{path}") for path in ("stream?channels=fleet", "nothing", "instances/order/o-1")),
    *((method, f"{API}/instances") for method in ("OPTIONS", "TRACE", "DELETE", "HEAD", "PROPFIND")),
]


def said(answer):
    """An answer without what differs between any two requests: its number, its path, the time."""
    body = {n: v for n, v in answer.json().items() if n not in ("request", "instance")} if answer.content else {}
    headers = {n: v for n, v in answer.headers.items() if n not in ("x-request", "date", "content-length")}
    return answer.status_code, body, headers


def path_of(route):
    path = route.path.replace("{id}", "order/o-1").replace("{name}", "order").replace("{entry}", "1")
    return API + path.replace("{task}", "1").replace("{actor}", "x").replace("{event}", "e").replace("{verb}", "show")


WRONG = {
    "none": {},
    "a key that is none": {"authorization": "Bearer pdk_000000000000_" + "a" * 43},
    "a text": {"authorization": "Bearer nonsense"},
    "a token of elsewhere": {"authorization": "Bearer eyJhbGciOiJub25lIn0.e30."},
    "another scheme": {"authorization": "Basic YW5uOmFubg=="},
    "a cookie that is none": {"cookie": "perdure=abc"},
}


def test_every_verb_and_face_gives_a_stranger_the_same_answer():
    async def story(site):
        await (await site.engine.start("order", key="o-1")).until("waiting")
        asked = [*FACES, *((route.method, path_of(route)) for route in ROUTES)]
        stranger = site.client()
        return {(m, p): await stranger.request(m, p) for m, p in asked}

    found = run(story)
    first = said(found["GET", f"{API}/nothing"])

    assert first[0] == 401
    for (method, path), answer in found.items():
        if method == "HEAD":
            assert (answer.status_code, answer.content) == (401, b"")
        else:
            assert said(answer) == first, (method, path)
        assert not {"server", "x-powered-by", "etag", "allow"} & set(answer.headers)
        assert "perdure/" not in str(answer.headers)


def test_wrong_expired_and_revoked_credentials_are_one_401():
    async def story(site):
        admin = await site.login()
        made = [
            (await admin.post(f"{API}/access/keys", json={"actor": "x", "roles": ["a"], "days": days})).json()
            for days in (90, 1e-9)
        ]
        await admin.delete(f"{API}/access/keys/{made[0]['id']}")
        wrong = {
            **WRONG,
            "revoked": {"authorization": f"Bearer {made[0]['key']}"},
            "expired": {"authorization": f"Bearer {made[1]['key']}"},
            "cut": {"authorization": f"Bearer {made[0]['key'][:-1]}"},
        }
        return {name: await site.client(headers=headers).get(f"{API}/whoami") for name, headers in wrong.items()}

    found = run(story)

    for name, answer in found.items():
        assert said(answer) == said(found["none"]), name
    assert found["none"].status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:7373"])
def test_a_foreign_host_gets_nothing_on_any_face(host):
    async def story(site):
        client = await site.key(ADMIN)
        cookies = (await site.login()).cookies
        token = site.server.accesses.own_link("ann")
        asked = [*FACES[:-2], *((route.method, path_of(route)) for route in ROUTES)]
        found = [await client.request(m, p, headers={"host": host}) for m, p in asked]
        found.append(await site.client(cookies=dict(cookies)).get("/", headers={"host": host, "accept": "text/html"}))
        own = {"host": host, "origin": f"http://{host}", "x-perdure": "1"}
        found.append(await site.client().post("/login", json={"token": token}, headers=own))
        return found

    for answer in run(story):
        assert answer.status_code == 403, answer.url
        assert answer.request.method == "HEAD" or answer.json()["code"] == "foreign-host"


def test_a_foreign_origin_writes_nothing_on_any_face():
    async def story(site):
        site.server._buckets._rate = site.server._buckets._burst = 1e9
        await (await site.engine.start("order", key="o-1")).until("waiting")
        cookies = dict((await site.login()).cookies)
        writes = [(route.method, path_of(route)) for route in ROUTES if not route.read] + [("POST", "/logout")]
        foreign = [
            {"x-perdure": "1", "origin": "http://evil.example"},
            {"x-perdure": "1", "origin": "null"},
            {"x-perdure": "1", "origin": site.url, "sec-fetch-site": "same-site"},
            {"origin": site.url},
            {},
        ]
        client = site.client(cookies=cookies)
        found = [await client.request(m, p, headers=headers) for m, p in writes for headers in foreign]
        token = site.server.accesses.own_link("eve")
        logins = [await site.client().post("/login", json={"token": token}, headers=headers) for headers in foreign]
        return found + logins, (await client.get(f"{API}/whoami")).status_code

    found, still = run(story)

    assert {(answer.status_code, answer.json()["code"]) for answer in found} == {(403, "foreign-origin")}
    assert still == 200


def test_no_origin_is_allowed_by_cors():
    async def story(site):
        client = await site.key(ADMIN)
        asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
        return [
            await client.options(f"{API}/instances", headers=asked),
            await client.get(f"{API}/whoami", headers=asked),
        ]

    for answer in run(story):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_stranger_hears_the_health_and_a_viewer_why():
    async def story(site):
        client, stranger = await site.key(ADMIN), site.client()
        ready = [(await each.get("/health/ready")).json() for each in (client, stranger)]
        site.server.stopping.set()
        late = [await each.get("/health/ready") for each in (client, stranger)]
        return ready, [(each.status_code, each.json()) for each in late]

    ready, late = run(story)

    assert ready == [{"ready": True, "why": ""}, {}]
    assert late == [(503, {"ready": False, "why": "the server is stopping"}), (503, {})]
