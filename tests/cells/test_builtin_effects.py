"""Effects that every world has: they are there without a handler being given, and do what they say."""

from __future__ import annotations

import asyncio
import sys
from hashlib import sha256
from typing import Any

import pytest

import perdure
from perdure.cells.effects import Alarm, BlobGet, BlobPut, Header, Http, Publish, Spawn, Step
from perdure.codec import encode
from perdure.executors.builtin import Requests
from perdure.executors.http import Response
from tests.cells.desk import Done, Go, answer, say
from tests.executors.site import Site, says


@perdure.cell("test/fetch@1", key="key", effects=[Http, Publish])
def fetch(state: Done | None, event: Go | perdure.ReceiptOf[Http]) -> perdure.Next:
    if isinstance(event, Go):
        request = Http("POST", event.what, [Header("x-asked-by", event.key)], event.data)
        return perdure.Next(Done(1), effects=[request])
    value = event.value
    return say(event, value and [value.status, value.body, len(value.headers)])


async def test_an_http_request_is_made_and_its_answer_is_the_receipt_whatever_its_status():
    declined = says(b"declined", "402 Payment Required", x_reason="card")
    async with (
        Site({"/pay": declined}) as site,
        perdure.open(":memory:", workflows=[fetch], allow=["127.0.0.1"]) as engine,
    ):
        await engine.send(Go("k", site.url("/pay"), b"ping"))

        found = await answer(engine, "test/fetch")

    assert (found["status"], found["value"]) == ("ok", [402, b"declined", 2])
    assert found["executor"] == "effects"
    assert [(asked.line, asked.headers["x-asked-by"], asked.body) for asked in site.asked] == [
        ("POST /pay HTTP/1.1", "k", b"ping")
    ]


async def test_a_request_to_an_address_that_is_not_public_and_not_allowed_is_an_error_and_sends_nothing():
    async with Site({"/": says(b"secret")}) as site, perdure.open(":memory:", workflows=[fetch]) as engine:
        await engine.send(Go("k", site.url()))

        found = await answer(engine, "test/fetch")

    assert found["status"] == "error"
    assert found["error"][0] == "AddressRefused"
    assert site.asked == []


async def test_a_handler_that_is_given_for_an_effect_of_perdure_is_the_one_that_performs_it():
    @perdure.effect_handler(Http)
    async def offline(params: Http, call: perdure.Call) -> Http.Receipt:
        return Http.Receipt(503, [], b"offline")

    async with perdure.open(":memory:", workflows=[fetch], handlers=[offline]) as engine:
        await engine.send(Go("k", "http://example.com/"))

        assert (await answer(engine, "test/fetch"))["value"] == [503, b"offline", 0]


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 30), (90 * 10**9, 90)])
async def test_a_request_may_take_as_long_as_its_effect(timeout: int | None, seconds: float, monkeypatch: Any):
    given = []

    async def request(*args: Any, **options: Any) -> Response:
        given.append(options["timeout"])
        return Response(200, (), b"", "", 0.0)

    monkeypatch.setattr("perdure.executors.http.request", request)

    await Requests().perform(Http("GET", "http://example.com/"), perdure.Call("c", "k", "i", "ik", timeout=timeout))

    assert given == [seconds]


async def test_what_the_operator_allows_is_checked_when_the_engine_is_opened():
    for wrong in (["*.internal"], "intranet", "10.0.0.1", [2130706433], 7):
        with pytest.raises(perdure.BadCall, match=r"allow= takes"):
            async with perdure.open(":memory:", allow=wrong):  # type: ignore[arg-type]
                pass


class Kept(perdure.Record, name="test/Kept@1"):
    hash: str = ""
    size: perdure.Nat = 0


@perdure.cell("test/keeper@1", key="key", effects=[BlobPut, BlobGet, Publish])
def keeper(state: Kept | None, event: Go | perdure.ReceiptOf[BlobPut] | perdure.ReceiptOf[BlobGet]) -> perdure.Next:
    match event:
        case Go(what=""):
            return perdure.Next(Kept(), effects=[BlobPut(b"bytes to keep")])
        case Go():
            return perdure.Next(Kept(), effects=[BlobGet(event.what)])
        case perdure.ReceiptOf(effect=kind) if kind is BlobPut:
            return perdure.Next(Kept(event.value.hash, event.value.size), effects=[BlobGet(event.value.hash)])
        case receipt:
            return say(receipt, receipt.value and state and [state.hash, state.size, receipt.value.data])


@pytest.mark.parametrize("url", [":memory:", "cells.db"])
async def test_a_blob_is_put_and_comes_back_by_its_hash(url: str, tmp_path: Any):
    where = url if url == ":memory:" else tmp_path / url
    async with perdure.open(where, workflows=[keeper]) as engine:
        await engine.send(Go("k"))

        found = await answer(engine, "test/keeper")

    assert found["value"] == [f"sha256:{sha256(b'bytes to keep').hexdigest()}", 13, b"bytes to keep"]


async def test_a_blob_that_is_not_there_is_an_error():
    async with perdure.open(":memory:", workflows=[keeper]) as engine:
        await engine.send(Go("k", f"sha256:{'0' * 64}"))

        found = await answer(engine, "test/keeper")

    assert (found["status"], found["error"][0]) == ("error", "LookupError")


async def test_a_damaged_blob_is_an_error_and_never_a_value(tmp_path: Any):
    import apsw

    async with perdure.open(tmp_path / "cells.db", workflows=[keeper]) as engine:
        (digest,) = await engine.queries.put_blobs([b"whole"], 1)
        connection = apsw.Connection(str(tmp_path / "cells.db"))
        connection.execute("UPDATE blobs SET body = x'00'")
        connection.close()

        await engine.send(Go("k", f"sha256:{digest.hex()}"))
        found = await answer(engine, "test/keeper")

    assert (found["status"], found["error"][0]) == ("error", "Corrupt")


# ---- steps ------------------------------------------------------------------------------------------------------


@perdure.step
def add(a: int, b: int = 1) -> int:
    return a + b


@perdure.step
async def add_later(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@perdure.step
def fail(text: str) -> None:
    raise ValueError(text)


def not_a_step() -> str:
    return "it ran"


HERE = __name__


@perdure.cell("test/stepper@1", key="key", effects=[Step, Publish])
def stepper(state: Done | None, event: Go | perdure.ReceiptOf[Step]) -> perdure.Next:
    if isinstance(event, Go):
        return perdure.Next(Done(1), effects=[Step(event.what, event.data)])
    return say(event, event.value and event.value.value)


async def stepped(step: Step) -> dict[str, Any]:
    async with perdure.open(":memory:", workflows=[stepper]) as engine:
        await engine.send(Go("k", step.function, step.arguments))
        return await answer(engine, "test/stepper")


@pytest.mark.parametrize("function", [add, add_later])
async def test_a_python_step_is_run_by_its_place_and_its_result_is_the_receipt(function: Any):
    found = await stepped(Step.of(function, 41))

    assert (found["status"], found["value"]) == ("ok", 42)


async def test_a_step_that_raises_is_an_error():
    found = await stepped(Step.of(fail, "no such account"))

    assert (found["status"], found["error"]) == ("error", ["ValueError", "no such account"])


@pytest.mark.parametrize(
    "name", [f"{HERE}:not_a_step", f"{HERE}:nothing", "os:getcwd", "no_such_module_at_all:x", "nocolon", f"{HERE}:"]
)
async def test_anything_but_a_decorated_step_is_refused(name: str):
    found = await stepped(Step(name, encode({})))

    assert (found["status"], found["error"][0]) == ("error", "BadCall")
    assert name in found["error"][1]


@pytest.mark.parametrize(
    ("arguments", "error"), [({"a": "text"}, "NotConvertible"), ({}, "NotConvertible"), (7, "BadCall")]
)
async def test_a_step_with_other_arguments_than_it_takes_is_an_error(arguments: Any, error: str):
    found = await stepped(Step(f"{HERE}:add", encode(arguments)))

    assert (found["status"], found["error"][0]) == ("error", error)


async def test_a_module_that_data_names_is_not_imported(tmp_path: Any, monkeypatch: Any):
    (tmp_path / "hostile_steps.py").write_text("import perdure\n@perdure.step\ndef anything() -> None: ...")
    monkeypatch.syspath_prepend(tmp_path)

    found = await stepped(Step("hostile_steps:anything", encode({})))

    assert found["error"][0] == "BadCall"
    assert "'hostile_steps:anything' is not a function with @perdure.step in a module" in found["error"][1]
    assert "hostile_steps" not in sys.modules


async def test_a_step_of_a_script_is_found_without_running_the_script_again(tmp_path: Any):
    (tmp_path / "shop.py").write_text(SCRIPT)

    script = await asyncio.create_subprocess_exec(
        sys.executable, "shop.py", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await script.communicate()

    assert out.decode().split() == ["begins", "42"]


SCRIPT = """
import asyncio
import perdure
from perdure.cells.effects import Step

print("begins")

class Go(perdure.Record, name="test/Go@1"):
    key: str

class Sum(perdure.Record, name="test/Sum@1"):
    value: int = 0

@perdure.step
def add(a: int, b: int) -> int:
    return a + b

@perdure.cell("test/adder@1", key="key", effects=[Step])
def adder(state: Sum | None, event: Go | perdure.ReceiptOf[Step]) -> perdure.Next:
    if isinstance(event, Go):
        return perdure.Next(Sum(), effects=[Step.of(add, 40, 2)])
    return perdure.Next(Sum(event.value.value))

async def main():
    async with perdure.open(":memory:", workflows=[adder]) as engine:
        await engine.send(Go("k"))
        print((await engine.state(adder, "k", at_least=4)).value)

asyncio.run(main())
"""


# ---- children and timers -----------------------------------------------------------------------------------------


@perdure.flow
async def child(ctx: perdure.Context, how: str) -> dict[str, str]:
    if how == "fail":
        raise ValueError("the child gave up")
    if how == "wait":
        await ctx.receive("never")
    return {"did": how}


@perdure.cell("test/parent@1", key="key", effects=[Spawn, Publish])
def parent(state: Done | None, event: Go | perdure.ReceiptOf[Spawn]) -> perdure.Next:
    if isinstance(event, Go):
        how, _, detached = event.what.partition(" ")
        spawn = Spawn.of(child, how, key=f"child-{event.key}", detached=bool(detached))
        return perdure.Next(Done(1), effects=[spawn])
    return say(event, event.value and event.value.value)


async def test_a_childs_result_is_read_from_the_receipt():
    async with perdure.open(":memory:", workflows=[parent, child]) as engine:
        await engine.send(Go("k", "work"))

        found = await answer(engine, "test/parent")

    assert (found["status"], found["value"], found["executor"]) == ("ok", {"did": "work"}, "kernel")


def test_a_child_may_be_named_then_its_arguments_have_names():
    assert Spawn.of("child", how="work", key="k") == Spawn.of(child, "work", key="k")

    with pytest.raises(perdure.BadCall, match=r"Spawn.of\('child', ...\).* takes keyword arguments"):
        Spawn.of("child", "work", key="k")
    with pytest.raises(perdure.BadCall, match="3 is no workflow"):
        Spawn.of(3, key="k")


async def test_a_child_that_fails_is_an_error_with_what_it_recorded():
    async with perdure.open(":memory:", workflows=[parent, child]) as engine:
        await engine.send(Go("k", "fail"))

        found = await answer(engine, "test/parent")

    assert found["status"] == "error"
    assert "the child gave up" in found["error"][1]


async def test_a_child_that_is_cancelled_is_a_cancelled_receipt():
    async with perdure.open(":memory:", workflows=[parent, child]) as engine:
        await engine.send(Go("k", "wait"))
        await engine.handle(child, "child-k").cancel("not wanted")

        found = await answer(engine, "test/parent")

    assert found["status"] == "cancelled"
    assert "not wanted" in found["error"][1]


async def test_a_detached_child_is_answered_when_it_has_started():
    async with perdure.open(":memory:", workflows=[parent, child]) as engine:
        await engine.send(Go("k", "wait detached"))

        found = await answer(engine, "test/parent")

    assert (found["status"], found["value"]) == ("ok", "child-k")


@perdure.cell("test/sleeper@1", key="key", effects=[Alarm, Publish])
def sleeper(state: Done | None, event: Go | perdure.ReceiptOf[Alarm], ctx: perdure.CellContext) -> perdure.Next:
    if isinstance(event, Go):
        return perdure.Next(Done(1), effects=[Alarm(at=ctx.now) if event.what == "at" else Alarm(after=1)])
    return say(event)


@pytest.mark.parametrize("what", ["at", "after"])
async def test_a_timer_is_absolute_or_relative(what: str):
    async with perdure.open(":memory:", workflows=[sleeper]) as engine:
        await engine.send(Go("k", what))

        found = await answer(engine, "test/sleeper")

    assert (found["status"], found["value"], found["executor"]) == ("ok", None, "kernel")


# ---- what their schemas cannot say -------------------------------------------------------------------------------

REFUSED = {
    "a value": (Publish("x", b"no value"), r"sys/publish@1: \$\.value is not the canonical bytes of a value"),
    "bytes of another spelling": (Publish("x", bytes.fromhex("d9d9f71801")), r"\$\.value.*fewest bytes"),
    "a name": (Publish("", encode(1)), r"sys/publish@1: \$\.name"),
    "the name of a response": (Publish("&response/m-1", encode(1)), r"\$\.name is '&response/m-1'"),
    "the name of annotations": (Publish("annotations", encode(1)), r"\$\.name is 'annotations'"),
    "an input": (Spawn("child", "k", b"no value"), r"sys/child@1: \$\.input is not the canonical bytes"),
    "two times": (Alarm(at=1, after=1), r"sys/timer@1 at a time and after a while; give at= or after="),
    "arguments": (Step(f"{HERE}:add", b"no value"), r"sys/step@1: \$\.arguments is not the canonical bytes"),
}


@perdure.cell("test/wronger@1", key="key", effects=[Publish, Spawn, Step, Alarm])
def wronger(state: Done | None, event: Go | perdure.ReceiptOf[Spawn | Step | Alarm]) -> perdure.Next:
    return perdure.Next(Done(1), effects=[REFUSED[event.what][0]]) if isinstance(event, Go) else say(event)


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_no_value_or_no_name_is_refused_before_anything_is_opened(what: str):
    async with perdure.open(":memory:", workflows=[wronger, child]) as engine:
        await engine.send(Go("k", what))

        with pytest.raises(perdure.InstanceStuck, match=f"BadDecision.*{REFUSED[what][1]}"):
            await engine.handle("test/wronger", "k").result(timeout=60)
        assert await engine.handle("test/wronger", "k").waiting() == []
        assert await engine.instances(workflow=child) == []


# ---- declared but unimplemented ----------------------------------------------------------------------------------


class Mystery(perdure.Effect, name="test/mystery@1"):
    question: str

    class Receipt(perdure.Record):
        answer: str


@perdure.cell("test/asker@1", key="key", effects=[Mystery, Publish])
def asker(state: Done | None, event: Go | perdure.ReceiptOf[Mystery]) -> perdure.Next:
    if isinstance(event, Go):
        return perdure.Next(Done(1), effects=[Mystery("why?").options(issuer="inv-7", timeout=10**12)])
    return say(event, event.value and event.value.answer)


async def test_an_engine_refuses_to_start_when_a_declared_effect_has_no_handler():
    with pytest.raises(perdure.NoHandler, match=r"test/asker@1.*test/mystery@1"):
        async with perdure.open(":memory:", workflows=[asker]):
            pass


@perdure.cell("test/asker@2", key="key", effects=[Publish])
def asker_2(state: Done | None, event: Go) -> perdure.Next:
    return perdure.Next(Done(1))


async def test_an_engine_refuses_to_start_when_an_effect_of_an_earlier_version_has_no_handler():
    """There may be cells that began with it, and ask for it yet."""
    with pytest.raises(perdure.NoHandler, match=r"test/asker@1.*test/mystery@1"):
        async with perdure.open(":memory:", workflows=[asker, asker_2]):
            pass


async def test_a_lenient_engine_starts_and_answers_such_an_effect_with_an_error():
    async with perdure.open(":memory:", workflows=[asker], lenient=True) as engine:
        await engine.send(Go("k"))

        found = await answer(engine, "test/asker")

    assert (found["status"], found["error"][0]) == ("error", "NoHandler")
    assert "test/mystery@1" in found["error"][1]


async def undecorated(params: Mystery, call: perdure.Call) -> None: ...


NO_ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "a function": ({"handlers": [undecorated]}, r"did you forget @perdure\.effect_handler"),
    "an effect": ({"handlers": [Mystery]}, r"did you forget @perdure\.effect_handler"),
    "no list": ({"handlers": perdure.effect_handler(Mystery)(undecorated)}, r"write handlers=\[\.\.\.\]"),
    "a dict of keys": ({"keys": {"psp": []}, "lenient": True}, r"keys= takes a perdure\.Keyring"),
}


@pytest.mark.parametrize("what", NO_ARGUMENTS)
async def test_what_is_no_handler_and_no_keyring_is_refused_with_what_to_write(what: str):
    given, text = NO_ARGUMENTS[what]
    with pytest.raises(perdure.CallerError, match=text):
        async with perdure.open(":memory:", workflows=[asker], **given):
            pass


@perdure.effect_handler(Mystery)
async def solve(params: Mystery, call: perdure.Call) -> Mystery.Receipt:
    return Mystery.Receipt(f"{params.question} {call.timeout}")


async def test_the_receipt_of_a_handler_has_the_whole_envelope():
    async with perdure.open(":memory:", workflows=[asker], handlers=[solve]) as engine:
        await engine.send(Go("k"))

        found = await answer(engine, "test/asker")

    assert found["value"] == f"why? {10**12}"
    assert len(found.pop("intent")) == 64
    assert found == {
        "status": "ok",
        "error": None,
        "value": f"why? {10**12}",
        "executor": "effects",
        "issuer": "inv-7",
        "cell": "test/asker@1",
        "key": "k",
        "entry": 1,
        "effect": "test/mystery@1",
        "params_hash": f"sha256:{sha256(encode({'question': 'why?'})).hexdigest()}",
        "cost": None,
        "signature": None,
    }
