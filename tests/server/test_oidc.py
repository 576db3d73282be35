"""Logins by a real OIDC provider: bearer tokens, the code flow, and what is refused."""

import asyncio
import hmac
import json
import re
import time
from base64 import urlsafe_b64encode
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import RSAKey

from perdure.access.model import Grant
from perdure.errors import CallerError
from perdure.server.auth.claims import known_by, read_rule
from perdure.server.auth.oidc import Oidc, OidcSettings
from tests.server.provider import CLIENT, SECRET, provider
from tests.server.site import site

API = "/api/v1"
GRANTS = ("groups=ops operator order,approval", "groups=boss admin")


def told(story, **more):
    """A story of a site and its provider."""

    async def main():
        async with provider() as idp:
            oidc = OidcSettings(issuer=idp.issuer, client=CLIENT, secret=SECRET, grants=GRANTS, task_roles="groups")
            async with site(oidc=oidc, **more) as found:
                return await asyncio.wait_for(story(found, idp), 60)

    return asyncio.run(main())


def bearer(site, token):
    return site.client(headers={"authorization": f"Bearer {token}"})


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("alg", ["RS256", "ES256", "Ed25519", "EdDSA"])
def test_a_bearer_token_is_a_login_with_the_grants_of_its_claims(alg):
    async def story(site, idp):
        key = idp.keys["Ed25519" if alg == "EdDSA" else alg]
        client = bearer(site, idp.sign(alg, key=key, groups=["ops", "other"]))
        await (await site.engine.start("secret_plan", key="s-1")).until("waiting")
        return await client.get(f"{API}/whoami"), await client.get(f"{API}/instances/secret_plan/s-1")

    me, hidden = told(story)

    assert (me.json()["id"], me.json()["roles"], me.json()["via"]) == ("ann", ["ops", "other"], "oidc")
    assert me.json()["grants"] == [{"role": "operator", "workflows": ["order", "approval"], "values": True}]
    assert hidden.status_code == 404


def coded(idp, alg):
    claims = {"iss": idp.issuer, "aud": CLIENT, "sub": "ann", "groups": ["boss"], "exp": 2**33}
    parts = [{"alg": alg, "kid": "rsa"}, claims]
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)


def confused(idp):
    """The public key of the provider as the secret of an HMAC."""
    text = coded(idp, "HS256")
    mark = hmac.digest(idp.keys["RS256"].as_pem(private=False), text.encode(), "sha256")
    return f"{text}.{urlsafe_b64encode(mark).rstrip(b'=').decode()}"


WRONG = {
    "another audience": lambda idp: idp.sign(groups=["boss"], aud="other"),
    "no audience": lambda idp: idp.sign(groups=["boss"], aud=None),
    "another issuer": lambda idp: idp.sign(groups=["boss"], iss="https://evil.example"),
    "no issuer": lambda idp: idp.sign(groups=["boss"], iss=None),
    "expired": lambda idp: idp.sign(groups=["boss"], exp=int(time.time()) - 60),
    "no expiry": lambda idp: idp.sign(groups=["boss"], exp=None),
    "an expiry of text": lambda idp: idp.sign(groups=["boss"], exp="never"),
    "not yet": lambda idp: idp.sign(groups=["boss"], nbf=int(time.time()) + 600),
    "a key of another": lambda idp: idp.sign(key=RSAKey.generate_key(2048, {"kid": "rsa"}), groups=["boss"]),
    "an unknown key": lambda idp: idp.sign(key=RSAKey.generate_key(2048, {"kid": "new"}), groups=["boss"]),
    "another kind of key": lambda idp: idp.sign(header={"kid": "ec"}, groups=["boss"]),
    "another algorithm": lambda idp: idp.sign("RS512", key=idp.keys["RS256"], groups=["boss"]),
    "no algorithm": lambda idp: coded(idp, "none") + ".",
    "a public key as a secret": confused,
    "a cut signature": lambda idp: idp.sign(groups=["boss"])[:-6],
    "another type": lambda idp: idp.sign(header={"typ": "logout+jwt"}, groups=["boss"]),
    "a broken header": lambda idp: idp.sign(groups=["boss"]).replace("eyJ", "eyJj", 1),
    "no subject": lambda idp: idp.sign(sub=None, groups=["boss"]),
    "a subject that is no text": lambda idp: idp.sign(sub=["ann"], groups=["boss"]),
    "no group that is mapped": lambda idp: idp.sign(),
    "too long": lambda idp: idp.sign(groups=["boss", "x" * 20_000]),
    "no token": lambda idp: "a.b.c",
}


def test_each_wrong_token_is_one_and_the_same_401():
    async def story(site, idp):
        good = await bearer(site, idp.sign(groups=["boss"])).get(f"{API}/whoami")
        stranger = await site.client().get(f"{API}/whoami")
        answers = {name: await bearer(site, make(idp)).get(f"{API}/whoami") for name, make in WRONG.items()}
        return good, stranger, answers

    good, stranger, answers = told(story)

    def same(answer):
        body = {name: value for name, value in answer.json().items() if name != "request"}
        headers = {name: value for name, value in answer.headers.items() if name not in ("x-request", "date")}
        return answer.status_code, body, headers

    assert good.status_code == 200
    assert stranger.status_code == 401
    for name, answer in answers.items():
        assert same(answer) == same(stranger), name


def test_an_unknown_key_is_asked_for_once_a_minute_at_most():
    async def story(site, idp):
        clock = [1000.0]
        oidc = Oidc(OidcSettings(issuer=idp.issuer, client=CLIENT, grants=GRANTS), now=lambda: clock[0])
        assert await oidc.bearer(idp.sign()) is not None
        idp.keys["RS256"] = RSAKey.generate_key(2048, {"kid": "rotated"})
        strange = idp.sign(key=RSAKey.generate_key(2048, {"kid": "strange"}))
        early = await asyncio.gather(*(oidc.bearer(token) for token in (idp.sign(), strange, strange)))
        clock[0] += 61
        later = await asyncio.gather(*(oidc.bearer(token) for token in (idp.sign(), strange, strange)))
        return early, [each is not None for each in later], idp.fetched

    early, later, fetched = told(story)

    assert early == [None, None, None]
    assert later == [True, False, False]
    assert fetched == 2


def test_keys_of_before_serve_while_the_provider_does_not_answer():
    async def story(site, idp):
        clock = [1000.0]
        oidc = Oidc(OidcSettings(issuer=idp.issuer, client=CLIENT, grants=GRANTS), now=lambda: clock[0])
        token = idp.sign()
        assert await oidc.bearer(token) is not None
        idp.app.router.routes.clear()
        clock[0] += 3600
        return await oidc.bearer(token)

    assert told(story) is not None


async def walk(site, idp, client, to=""):
    """A browser's way through the code flow; the answer of its last page."""
    begun = await client.get("/login/oidc", params={"to": to} if to else {})
    assert begun.status_code == 303
    sent = await site.client().get(begun.headers["location"])
    back = urlsplit(sent.headers["location"])
    return await client.get(f"{back.path}?{back.query}")


def test_the_code_flow_logs_a_browser_in_and_the_audit_knows():
    async def story(site, idp):
        idp.claims = {"sub": "ann", "groups": ["boss"]}
        client = site.client(headers={"x-perdure": "1", "origin": site.url})
        page = await walk(site, idp, client, "/instances?q=status:stuck")
        me = await client.get(f"{API}/whoami")
        for _ in range(100):
            audit = (await client.get(f"{API}/audit")).json()["items"]
            if any(each["what"] == "login" for each in audit):
                break
        await client.post("/logout")
        return page, me, audit, await client.get(f"{API}/whoami"), idp.asked[0]

    page, me, audit, after, asked = told(story)

    cookies = page.headers.get_list("set-cookie")
    assert page.status_code == 200 and 'data-go="/instances?q=status:stuck"' in page.text
    assert any("SameSite=Strict" in each and "HttpOnly" in each for each in cookies)
    assert (me.json()["id"], me.json()["grants"][0]["role"]) == ("ann", "admin")
    assert [(each["by"], each["details"]["way"]) for each in audit if each["what"] == "login"] == [("ann", "oidc")]
    assert after.status_code == 401
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3


@pytest.mark.parametrize(
    ("claims", "spoil", "says"),
    [
        ({"sub": "eve"}, {}, "no rights here"),
        ({"sub": "ann", "groups": ["boss"]}, {"nonce": "another"}, "did not work"),
        ({"sub": "ann", "groups": ["boss"]}, {"aud": "other"}, "did not work"),
        ({"sub": "ann", "groups": ["boss"]}, {"aud": [CLIENT, "other"], "azp": "other"}, "did not work"),
        ({"sub": "ann", "groups": ["boss"]}, {"exp": 1000}, "did not work"),
        ({"groups": ["boss"], "sub": None}, {}, "did not work"),
    ],
)
def test_a_login_that_the_provider_does_not_vouch_for_is_none(claims, spoil, says):
    async def story(site, idp):
        idp.claims, idp.spoil = claims, spoil
        client = site.client()
        page = await walk(site, idp, client)
        return page, await client.get(f"{API}/whoami")

    page, me = told(story)

    assert (page.status_code, me.status_code) == (401, 401)
    assert says in page.text
    assert not [each for each in page.headers.get_list("set-cookie") if "-oidc=" not in each]


def test_an_answer_that_this_browser_did_not_ask_for_is_no_login():
    async def story(site, idp):
        idp.claims = {"sub": "ann", "groups": ["boss"]}
        client, victim = site.client(), site.client()
        begun = await client.get("/login/oidc")
        sent = urlsplit((await site.client().get(begun.headers["location"])).headers["location"])
        state = parse_qs(sent.query)["state"][0]
        asked = [
            await victim.get(f"{sent.path}?{sent.query}"),  # no cookie: a login that another one began
            await client.get(f"{sent.path}?code=code-1&state=other"),
            await client.get(f"{sent.path}?code=code-1&state={state}&state={state}"),
            await client.get(f"{sent.path}?error=access_denied&state={state}"),
        ]
        return [each.status_code for each in asked], await victim.get(f"{API}/whoami")

    statuses, me = told(story)

    assert statuses == [401] * 4
    assert me.status_code == 401


@pytest.mark.parametrize(
    "to", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", '/"><x']
)
def test_a_login_leads_to_a_page_of_this_server_alone(to):
    async def story(site, idp):
        idp.claims = {"sub": "ann", "groups": ["boss"]}
        return (await walk(site, idp, site.client(), to)).text

    found = re.search(r'data-go="([^"]*)"', told(story))

    assert found is not None and found[1] in ("/", "/&quot;&gt;&lt;x")


def test_without_a_provider_there_is_no_such_page():
    async def story():
        async with site() as found:
            page = await found.client(headers={"accept": "text/html"}).get("/login")
            return page.text, (await found.client().get("/login/oidc")).status_code

    text, status = asyncio.run(story())

    assert "<p hidden><a id=" in text
    assert status == 401


def test_a_provider_that_does_not_answer_is_told_on_the_page():
    async def story():
        settings = OidcSettings(issuer="http://127.0.0.1:9", client=CLIENT)
        async with site(oidc=settings) as found:
            page = await found.client().get("/login/oidc")
            return page.status_code, page.text, (await bearer(found, "a.b.c").get(f"{API}/whoami")).status_code

    status, text, strange = asyncio.run(story())

    assert (status, strange) == (503, 401)
    assert "does not answer" in text


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"issuer": "http://id.example", "client": "a"}, "https URL"),
        ({"issuer": "id.example", "client": "a"}, "https URL"),
        ({"issuer": "https://id.example"}, "needs a client"),
        ({"issuer": "https://id.example", "client": "a", "grants": ("groups ops",)}, "CLAIM=VALUE ROLE"),
        ({"issuer": "https://id.example", "client": "a", "grants": ("groups=ops king",)}, "viewer, operator"),
        ({"issuer": "https://id.example", "client": "a", "grants": ("a=b viewer x y",)}, "CLAIM=VALUE ROLE"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, says):
    async def story():
        Oidc(OidcSettings(**settings))

    with pytest.raises(CallerError, match=says):
        asyncio.run(story())


def test_a_rule_names_claim_role_workflows_and_whether_values_are_seen():
    rules = [read_rule(text) for text in ("groups='shop ops' viewer order,refund* no-values", "realm.roles=x author")]

    both = known_by({"sub": "ann", "groups": ["shop ops"], "realm": {"roles": ["x"]}}, rules)
    neither = known_by({"sub": "ann", "groups": "ops"}, rules)

    assert both is not None and neither is not None
    assert both.grants == (Grant("viewer", ("order", "refund*"), False), Grant("author"))
    assert neither.grants == ()


def test_an_address_that_the_provider_has_not_checked_names_no_one():
    assert known_by({"email": "ann@shop.example"}, [], actor="email") is None
    assert known_by({"email": "ann@shop.example", "email_verified": True}, [], actor="email") is not None
