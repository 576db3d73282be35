"""Secrets by reference: a cell names them, a call gets their values, and no byte that is stored has them."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import perdure
from perdure.cells.bound_manifest import BoundManifest
from perdure.cells.effects import Http, Publish, SecretHeader, Step
from perdure.cells.manifest import read
from tests.cells.desk import Done, Go, answer, heard, say
from tests.executors.site import Asked, Site

VALUE = "hunter2/µ & co: the password"
WRITTEN = [
    VALUE.encode(),
    base64.b64encode(VALUE.encode()).rstrip(b"="),
    base64.urlsafe_b64encode(VALUE.encode()).rstrip(b"="),
    quote(VALUE, safe="").encode(),
    quote(VALUE).encode(),
    VALUE.encode("latin-1"),
    VALUE.encode().hex().encode(),
]


class Login(perdure.Effect, name="test/login@1"):
    user: str
    password: perdure.Secret
    mode: str = ""

    class Receipt(perdure.Record):
        said: str
        raw: bytes
        all: dict[str, str]


SEEN: list[Any] = []
BEGUN, GO = asyncio.Event(), asyncio.Event()


@perdure.effect_handler(Login)
async def login(params: Login, call: perdure.Call) -> Login.Receipt:
    if params.mode == "wait":
        BEGUN.set()
        await GO.wait()
    return performed(params)


@perdure.effect_handler(Login)
def login_in_a_thread(params: Login, call: perdure.Call) -> Login.Receipt:
    return performed(params)


def performed(params: Any) -> Login.Receipt:
    SEEN.append(params.password)
    logging.getLogger("shop.bank").warning("logs in with %s", params.password)
    try:
        raise KeyError(params.password)
    except KeyError:
        logging.getLogger("shop.bank").exception("it went wrong")
    perdure.progress(1, 2, f"logging in with {params.password}")
    perdure.emit({"password": params.password})
    if params.mode == "raise":
        raise ValueError(f"the password {params.password} ({quote(params.password)}) is wrong")
    written = {"base64": base64.b64encode(b"user:" + params.password.encode()).decode(), "url": quote(params.password)}
    return Login.Receipt(f"{params.user}:{params.password}", params.password.encode(), written)


@perdure.cell("test/door@1", key="key", effects=[Login, Publish])
def door(state: Done | None, event: Go | perdure.ReceiptOf[Login]) -> perdure.Next:
    if isinstance(event, Go):
        digest = event.data.decode() or None
        secret = perdure.Secret("door-password", digest, prefix="pw ")
        return perdure.Next(Done(1), effects=[Login("ann", secret, event.what)])
    return say(event, event.value and [event.value.said, event.value.raw, event.value.all])


def stored(directory: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def found_in(data: bytes) -> list[bytes]:
    return [written for written in WRITTEN if written in data]


@pytest.mark.parametrize("handler", [login, login_in_a_thread])
@pytest.mark.parametrize("mode", ["", "raise"])
async def test_a_secret_is_never_in_any_byte_stored(handler: Any, mode: str, tmp_path: Path, caplog: Any):
    SEEN.clear()
    caplog.set_level(logging.DEBUG)
    secrets = {"door-password": VALUE}
    async with perdure.open(tmp_path / "door.db", workflows=[door], handlers=[handler], secrets=secrets) as engine:
        await engine.send(Go("k", mode))

        found = await answer(engine, "test/door")
        while_open = stored(tmp_path)  # with the write-ahead log

    assert [f"pw {VALUE}"] == SEEN  # the call itself had it
    assert "logs in with pw <secret door-password>" in caplog.text
    for data in [*while_open.values(), *stored(tmp_path).values(), repr(found).encode(), caplog.text.encode()]:
        assert found_in(data) == []
    together = b"".join(stored(tmp_path).values())
    assert b"door-password" in together  # the reference is there
    assert b"<secret door-password>" in together


@perdure.step
def enter(user: str, password: perdure.Secret, *, more: dict[str, perdure.Secret], mode: str = "") -> dict[str, Any]:
    pins: Any = more
    assert pins == {"pin": "the pin 1234-5678"}  # at any depth
    made = performed(Login(user, password, mode))
    return {"said": made.said, "raw": made.raw, "all": made.all}


@perdure.step
async def enter_later(user: str, password: perdure.Secret, *, more: Any, mode: str = "") -> dict[str, Any]:
    assert isinstance(more["pin"], dict)  # nothing says that this is a secret
    pins: Any = {"pin": "the pin 1234-5678"}
    return enter.function(user, password, more=pins, mode=mode)


@perdure.cell("test/gate@1", key="key", effects=[Step, Publish])
def gate(state: Done | None, event: Go | perdure.ReceiptOf[Step]) -> perdure.Next:
    if isinstance(event, Go):
        function = enter if event.data == b"" else enter_later
        password, pin = perdure.Secret("door-password", prefix="pw "), perdure.Secret("pin", prefix="the pin ")
        return perdure.Next(Done(1), effects=[Step.of(function, "ann", password, more={"pin": pin}, mode=event.what)])
    return say(event, event.value and event.value.value)


@pytest.mark.parametrize("later", [b"", b"later"], ids=["plain", "async"])
@pytest.mark.parametrize("mode", ["", "raise"])
async def test_a_step_gets_the_values_of_its_arguments_and_no_byte_stored_has_them(
    later: bytes, mode: str, tmp_path: Path, caplog: Any
):
    SEEN.clear()
    caplog.set_level(logging.DEBUG)
    secrets = {"door-password": VALUE, "pin": "1234-5678"}
    async with perdure.open(tmp_path / "door.db", workflows=[gate], secrets=secrets) as engine:
        await engine.send(Go("k", mode, later))

        found = await answer(engine, "test/gate")
        while_open = stored(tmp_path)

    assert [f"pw {VALUE}"] == SEEN
    assert "logs in with pw <secret door-password>" in caplog.text
    if mode:
        assert found["error"][1].startswith("the password pw <secret door-password> (pw%20<secret door-password>)")
    else:
        assert found["value"]["said"] == "ann:pw <secret door-password>"
    for data in [*while_open.values(), *stored(tmp_path).values(), repr(found).encode(), caplog.text.encode()]:
        assert found_in(data) == []


async def test_a_step_whose_secret_is_missing_is_an_error_and_it_is_not_called():
    SEEN.clear()
    async with perdure.open(":memory:", workflows=[gate], secrets={"pin": "1234-5678"}) as engine:
        await engine.send(Go("k"))

        assert (await answer(engine, "test/gate"))["error"][0] == "SecretMissing"
    assert SEEN == []


async def test_frames_of_a_call_do_not_show_its_secret():
    secrets = {"door-password": VALUE}
    async with perdure.open(":memory:", workflows=[door], handlers=[login], secrets=secrets) as engine:
        await engine.send(Go("k", "wait"))
        await BEGUN.wait()
        (running,) = engine._shard.running.values()
        stream = engine._connection.streams.open(running.instance, [])
        GO.set()
        await answer(engine, "test/door")
        frames = await heard(stream)

    assert [frame.note or frame.chunk for frame in frames] == [
        "logging in with pw <secret door-password>",
        {"password": "pw <secret door-password>"},
    ]


@perdure.effect_handler(Login)
async def login_beside(params: Login, call: perdure.Call) -> Login.Receipt:
    async def fail() -> None:
        raise ValueError(f"the password {params.password} is wrong")

    asyncio.ensure_future(fail())  # noqa: RUF006  # that is the mistake
    return performed(params)


async def test_what_is_logged_of_a_task_that_a_handler_leaves_behind_does_not_show_the_secret(caplog: Any):
    secrets = {"door-password": VALUE}
    async with perdure.open(":memory:", workflows=[door], handlers=[login_beside], secrets=secrets) as engine:
        await engine.send(Go("k"))
        await answer(engine, "test/door")
    gc.collect()

    assert "Task exception was never retrieved" in caplog.text
    assert "the password pw <secret door-password> is wrong" in caplog.text
    assert found_in(caplog.text.encode()) == []


async def test_the_hash_of_the_parameters_is_that_of_the_reference():
    found = []
    for value in ("one value", "another value"):
        async with perdure.open(
            ":memory:", workflows=[door], handlers=[login], secrets={"door-password": value}
        ) as engine:
            await engine.send(Go("k"))
            found.append((await answer(engine, "test/door"))["params_hash"])

    assert found[0] == found[1]


async def test_a_secret_that_is_missing_is_an_error_and_nothing_is_called():
    SEEN.clear()
    async with perdure.open(":memory:", workflows=[door], handlers=[login], secrets={"other": "x"}) as engine:
        await engine.send(Go("k"))

        found = await answer(engine, "test/door")

    assert (found["status"], found["error"][0], SEEN) == ("error", "SecretMissing", [])


async def test_a_secret_that_is_not_the_one_that_was_meant_is_an_error():
    async with perdure.open(":memory:", workflows=[door], handlers=[login], secrets={"door-password": VALUE}) as engine:
        await engine.send(Go("k", "", b"sha256:" + b"0" * 64))

        found = await answer(engine, "test/door")

    assert (found["status"], found["error"][0]) == ("error", "SecretChanged")


class Source:
    """Somebody's own: it may do anything."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def get(self, name: str) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


SOURCES = {
    "raises": (KeyError(VALUE), "its source raised KeyError"),
    "is away": (OSError(f"https://vault/?token={VALUE}"), "its source raised OSError"),
    "says what it is": (perdure.SecretMissing("door-password", "the vault is sealed"), "the vault is sealed"),
    "has none": (None, "its source gave NoneType, which is no text"),
    "has bytes": (VALUE.encode(), "its source gave bytes, which is no text"),
    "has an empty one": ("", "it is there, but empty"),
    "has half a character": ("\ud800", "it is no valid Unicode"),
}


@pytest.mark.parametrize("source", SOURCES)
async def test_whatever_a_source_does_is_an_error_of_the_call_and_the_engine_goes_on(source: str, tmp_path: Path):
    SEEN.clear()
    given, why = SOURCES[source]
    file = tmp_path / "door.db"
    async with perdure.open(file, workflows=[door], handlers=[login], secrets=Source(given)) as engine:
        await engine.send(Go("k"))

        found = await answer(engine, "test/door")

    assert (found["status"], found["error"][0], SEEN) == ("error", "SecretMissing", [])
    assert why in found["error"][1]
    assert found_in(b"".join(stored(tmp_path).values())) == []


@pytest.mark.parametrize("wrong", [["door-password"], "door-password", 7])
async def test_what_is_no_source_is_refused_when_the_engine_is_opened(wrong: Any):
    with pytest.raises(perdure.BadCall, match=r"secrets= takes a dict or an object with get\(name\)"):
        async with perdure.open(":memory:", workflows=[door], handlers=[login], secrets=wrong):
            pass


async def test_without_a_source_secrets_come_from_the_environment(monkeypatch: Any):
    SEEN.clear()
    monkeypatch.setenv("PERDURE_SECRET_DOOR_PASSWORD", VALUE)
    async with perdure.open(":memory:", workflows=[door], handlers=[login]) as engine:
        await engine.send(Go("k"))
        await answer(engine, "test/door")

    assert [f"pw {VALUE}"] == SEEN


PING = {
    "schemas": {"test/Ping@1": {"record": {"to": "text"}}, "test/Up@1": {"record": {"up": "bool"}}},
    "effects": {
        "test/ping@1": {
            "params": {"record": {"keys": {"map": {"key": "text", "value": {"option": {"ref": "sys/Secret@1"}}}}}}
        }
    },
    "cells": {
        "test/pinger@1": {
            "state": {"ref": "test/Up@1"},
            "event": {"ref": "test/Ping@1"},
            "key": "text",
            "effects": ["test/ping@1", "sys/publish@1"],
            "impl": f"{__name__}:pinger",
        }
    },
    "routing": [{"event": "test/Ping@1", "cell": "test/pinger@1", "key_field": "to"}],
}


async def test_a_handler_of_plain_data_gets_the_values_too(tmp_path: Path):
    SEEN.clear()
    world = BoundManifest(read(PING))

    async with perdure.open(
        tmp_path / "ping.db", workflows=[world], handlers=[ping], secrets={"door-password": VALUE}
    ) as engine:
        await engine.send(perdure.Datum("test/Ping@1", {"to": "k"}))
        await engine.handle("test/pinger", "k").result(timeout=60)

    assert SEEN == [{"a": VALUE, "b": None}]
    assert found_in(b"".join(stored(tmp_path).values())) == []


def pinger(state: Any, event: Any, ctx: Any) -> perdure.Next:
    if isinstance(event, perdure.Datum):
        keys = {"a": {"name": "door-password", "digest": None, "prefix": ""}, "b": None}
        return perdure.Next({"up": False}, effects=[perdure.Datum("test/ping@1", {"keys": keys})])
    return perdure.Next(None)


@perdure.effect_handler("test/ping@1")
async def ping(params: Any, call: perdure.Call) -> None:
    SEEN.append(params["keys"])


@perdure.cell("test/caller@1", key="key", effects=[Http, Publish])
def caller(state: Done | None, event: Go | perdure.ReceiptOf[Http]) -> perdure.Next:
    if isinstance(event, Go):
        bearer = SecretHeader("authorization", perdure.Secret("api-key", prefix="Bearer "))
        return perdure.Next(Done(1), effects=[Http("GET", event.what, [bearer])])
    return say(event, event.value and event.value.body)


async def test_a_header_of_a_request_holds_a_secret_and_an_answer_that_echoes_it_is_redacted(tmp_path: Path):
    async def echo(asked: Asked, writer: Any) -> None:
        body = asked.headers["authorization"].encode("latin-1")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nx-echo: %s\r\n\r\n%s" % (len(body), body, body))

    async with (
        Site({"/": echo}) as site,
        perdure.open(
            tmp_path / "api.db", workflows=[caller], allow=["127.0.0.1"], secrets={"api-key": VALUE}
        ) as engine,
    ):
        await engine.send(Go("k", site.url()))

        found = await answer(engine, "test/caller")

    assert site.asked[0].headers["authorization"] == f"Bearer {VALUE}"
    assert found["value"] == b"Bearer <secret api-key>"
    assert found_in(b"".join(stored(tmp_path).values())) == []
