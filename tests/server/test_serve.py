"""`perdure serve` as a real process."""

import asyncio
import ipaddress
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import perdure
from perdure.server import Login, Settings, app
from perdure.server.configuration import without_password
from perdure.server.serve import bind, serve
from tests.server.site import ADMIN, order, run

SHOP = """
import perdure

@perdure.flow
async def order(ctx: perdure.Context, order_id: str) -> str:
    message = await ctx.receive("decision")
    return message.body
"""


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@contextmanager
def served(folder, *words):
    command = [sys.executable, "-m", "perdure", "serve", *words, "--listen", "127.0.0.1:0", "--json"]
    env = {**os.environ, "PERDURE_DB": str(folder / "shop.db"), "PERDURE_SERVER_SECRET": "a secret for this test"}
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        yield json.loads(line), process
    finally:
        process.kill()
        process.wait()


def login(told):
    headers = {"x-perdure": "1", "origin": told["url"]}
    client = httpx.Client(base_url=told["url"], headers=headers, trust_env=False, timeout=120)
    token = re.split("#", told["login"])[1]
    assert client.post("/login", json={"token": token}).status_code == 200
    return client


def test_two_commands_show_a_run_and_stopping_loses_no_acknowledged_write(shop):
    with served(shop, "shop") as (told, process):
        client = login(told)
        made = {"workflow": "order", "key": "o-1", "input": {"order_id": "o-1"}}
        assert client.post("/api/v1/instances", json=made).status_code == 201
        assert client.get("/health/ready").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with served(shop, "shop") as (told, process):
        assert login(told).get("/api/v1/instances/order/o-1").json()["workflow"] == "order"


def certificate(folder):
    """A certificate of our own for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = made.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    (folder / "c.pem").write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    (folder / "k.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def test_tls_is_spoken_and_the_cookie_is_for_tls_alone(shop):
    certificate(shop)
    with served(shop, "shop", "--tls-cert", "c.pem", "--tls-key", "k.pem") as (told, _):
        trusted = ssl.create_default_context(cafile=str(shop / "c.pem"))
        own = {"x-perdure": "1", "origin": told["url"]}
        with httpx.Client(base_url=told["url"], headers=own, verify=trusted, trust_env=False) as client:
            answer = client.post("/login", json={"token": told["login"].split("#")[1]})
            me = client.get("/api/v1/whoami")

    assert told["url"].startswith("https://127.0.0.1:")
    assert answer.headers["set-cookie"].startswith("__Host-perdure=") and "; Secure" in answer.headers["set-cookie"]
    assert me.json()["grants"][0]["role"] == "admin"


def test_sigterm_ends_streams_with_bye_and_drains_what_runs(shop):
    with served(shop, "shop") as (told, process):
        client = login(told)
        with client.stream("GET", "/api/v1/stream", params={"channels": "fleet"}, timeout=60) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line == "event: live")
            process.send_signal(signal.SIGTERM)
            assert "event: bye" in list(lines)
        assert process.wait(60) == 0


def test_a_second_signal_waits_for_no_open_request(monkeypatch):
    monkeypatch.setattr("perdure.server.serve.GRACE_SECONDS", 600)

    async def story():
        seen, stop, hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()

        def who(scope):
            seen.set()
            return Login(perdure.Actor("ann"), (ADMIN,))

        async with perdure.open(":memory:", workflows=[order]) as engine:
            await (await engine.start("order", key="o-1")).until("waiting")
            listening = bind("127.0.0.1", 0)
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/instances/order/o-1/-/result?wait=60"
            server = app(engine, actor=who, settings=Settings(secret="a secret of this test"))
            running = asyncio.ensure_future(serve(server, listening, stop=stop, hurry=hurry))
            async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
                asked = asyncio.ensure_future(client.get(url))
                await seen.wait()
                stop.set()
                hurry.set()
                await running
                asked.cancel()

    asyncio.run(asyncio.wait_for(story(), 180))


def test_serve_without_modules_runs_no_code_and_asks_the_engine_elsewhere(shop):
    with served(shop, "shop") as (engine, _), served(shop) as (told, _):
        client, other = login(told), login(engine)
        made = {"workflow": "order", "key": "o-1", "input": {"order_id": "o-1"}}
        assert client.post("/api/v1/instances", json=made).status_code == 201
        other.get("/api/v1/instances/order/o-1/-/result?wait=1")
        sent = client.post("/api/v1/instances/order/o-1/-/messages", json={"name": "decision", "body": "yes"})
        assert sent.status_code == 200
        result = client.get("/api/v1/instances/order/o-1/-/result?wait=60").json()
        assert (result["status"], result["result"]) == ("completed", "yes")


def test_a_link_from_the_command_line_logs_in(shop):
    with served(shop, "shop") as (told, _):
        command = [sys.executable, "-m", "perdure", "access", "link", "--url", told["url"], "--actor", "bob", "--json"]
        made = subprocess.run([*command, "--db", str(shop / "shop.db")], capture_output=True, text=True, check=True)
        client = login({"url": told["url"], "login": json.loads(made.stdout)["login"]})
        me = client.get("/api/v1/whoami").json()
        assert (me["id"], me["grants"]) == ("bob", [])
        assert "access grant bob" in made.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--listen", "0.0.0.0:0"), "--tls-cert"),
        (("--listen", "nonsense"), "HOST:PORT"),
        (("--queue", "images"), "NAME=N"),
        (("--tls-cert", "c.pem"), "go together"),
        (("--tls-cert", "c.pem", "--tls-key", "k.pem"), "there is no file c.pem"),
        (("--redact", "card"), "/card/number"),
        (("--oidc", "http://id.example", "--oidc-client", "a"), "https URL"),
        (("--oidc", "https://id.example", "--oidc-client", "a", "--oidc-grant", "ops"), "CLAIM=VALUE ROLE"),
    ],
)
def test_what_would_be_unsafe_or_makes_no_sense_is_refused(shop, words, says):
    command = [sys.executable, "-m", "perdure", "serve", "--db", str(shop / "shop.db"), *words]
    ended = subprocess.run(command, cwd=shop, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 2
    assert says in ended.stderr


def test_a_password_is_not_shown():
    assert without_password("postgresql://shop:s3cret@db.example/shop") == "postgresql://shop@db.example/shop"
    assert without_password("postgresql://db.example/shop") == "postgresql://db.example/shop"
    assert without_password("postgresql://db/shop?password=x&a=1") == "postgresql://db/shop?password=…&a=1"
    assert without_password("/var/a@b.db") == "/var/a@b.db"


def test_ready_is_503_before_the_drain():
    """A balancer hears it while open requests are still answered."""

    async def story(site):
        client = await site.login()
        before = await client.get("/health/ready")
        await site.server.close()  # the first step of a stop: see `serve.py`
        return before, [await client.get(path) for path in ("/health/ready", "/health/live", "/api/v1/whoami")]

    before, (ready, live, who) = run(story)

    assert before.status_code == 200
    assert (ready.status_code, ready.json()["why"]) == (503, "the server is stopping")
    assert (live.status_code, who.status_code) == (200, 200)
