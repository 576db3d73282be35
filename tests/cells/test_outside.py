"""Effects that somebody outside answers: a receipt is admitted only if it is what it should be."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import perdure
from perdure.cells.effects import Alarm, PersonAsked, Publish
from perdure.codec import digest, encode
from perdure.errors import ReceiptRefused, UnknownIntent
from perdure.kernel.events import ReceiptArrived
from perdure.kernel.receipt import Answerer, Failure, Receipt, ReceiptSignature
from perdure.kernel.rules import AUDIT, RULER
from perdure.ports.outside import answer as receipt_from
from tests.cells.desk import Done, Go, answer, say, settled

SECRET = bytes(range(32))
KEY = perdure.Key.hmac("psp-1", SECRET)
OTHER = perdure.Key.hmac("psp-1", bytes(32))
KEYS = perdure.Keyring({"psp": [KEY]})


class Charge(perdure.Effect, name="test/charge@1", outside="psp"):
    cents: perdure.Nat

    class Receipt(perdure.Record):
        auth: str
        note: str | None = None


@perdure.cell("test/till@1", key="key", effects=[Charge, Publish])
def till(state: Done | None, event: Go | perdure.ReceiptOf[Charge]) -> perdure.Next:
    if isinstance(event, Go):
        return perdure.Next(Done(1), effects=[Charge(4200).options(issuer="inv-7", key="charge-7")])
    return say(event, event.value and event.value.auth)


@perdure.cell("test/careful@1", key="key", effects=[Charge, Publish])
def careful(state: Done | None, event: Go | perdure.ReceiptOf[Charge] | perdure.Rejected) -> perdure.Next:
    match event:
        case Go():
            return perdure.Next(Done(1), effects=[Charge(4200)])
        case perdure.Rejected():
            told = [event.code, event.effect, event.payload_size, event.payload_hash, event.intent]
            return perdure.Next(None, effects=[Publish.of("answer", {"rejected": told, "text": event.message})])
        case receipt:
            return say(receipt)


@pytest.fixture(params=[":memory:", "till.db"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    return request.param if request.param == ":memory:" else tmp_path / request.param


async def asked(engine: perdure.Engine) -> perdure.OpenEffect:
    """The one effect that waits outside."""
    await settled(engine)
    (effect,) = await engine.open_effects()
    return effect


async def audits(engine: perdure.Client) -> list[dict[str, Any]]:
    lines = await engine.handle(RULER.workflow, RULER.key).history()
    return [line.value for line in lines if line.location == AUDIT]


# ---- finding and answering ---------------------------------------------------------------------------------------


async def test_what_waits_outside_is_listed_with_all_that_an_executor_needs(url):
    async with perdure.open(url, workflows=[till]) as engine:
        await engine.send(Go("k"))

        effect = await asked(engine)

        assert msgspec.structs.replace(effect, intent="", params_hash="") == perdure.OpenEffect(
            intent="",
            effect="test/charge@1",
            executor="psp",
            params={"cents": 4200},
            params_hash="",
            workflow="test/till",
            key="k",
            entry=1,
            issuer="inv-7",
            idempotency_key="charge-7",
        )
        assert await engine.open_effects("psp") == [effect]
        assert await engine.open_effects("somebody else") == []


async def test_many_that_wait_are_listed_in_pages(url):
    async with perdure.open(url, workflows=[till]) as engine:
        for number in range(5):
            await engine.send(Go(f"k{number}"))
        await settled(engine)

        first = await engine.open_effects("psp", limit=3)
        rest = await engine.open_effects("psp", after=first[-1].intent, limit=3)

        assert sorted(effect.key for effect in first + rest) == [f"k{number}" for number in range(5)]
        assert await engine.open_effects(limit=100) == first + rest


async def test_an_answer_is_the_receipt_with_its_whole_envelope(url):
    async with perdure.open(url, workflows=[till]) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        await engine.answer(effect, ok=Charge.Receipt("A1"), executor="psp", cost={"cents": 3})

        found = await answer(engine, "test/till")
        assert await engine.open_effects() == []
    assert found == {
        "status": "ok",
        "error": None,
        "value": "A1",
        "executor": "psp",
        "issuer": "inv-7",
        "cell": "test/till@1",
        "key": "k",
        "intent": effect.intent,
        "entry": 1,
        "effect": "test/charge@1",
        "params_hash": effect.params_hash,
        "cost": {"cents": 3},
        "signature": None,
    }


@pytest.mark.parametrize("status", ["error", "timeout", "cancelled", "unknown"])
async def test_an_effect_is_answered_with_any_status(status: Any):
    async with perdure.open(":memory:", workflows=[till]) as engine:
        await engine.send(Go("k"))

        await engine.answer(await asked(engine), status=status, error="the card", executor="psp")

        found = await answer(engine, "test/till")
    assert (found["status"], found["error"]) == (status, ["OutsideError", "the card"])


async def test_plain_data_is_brought_into_the_form_of_the_receipt():
    async with perdure.open(":memory:", workflows=[till]) as engine:
        await engine.send(Go("k"))

        await engine.answer((await asked(engine)).intent, ok={"auth": "A1"}, executor="psp")  # without the note

        assert (await answer(engine, "test/till"))["value"] == "A1"


@pytest.mark.parametrize("wrong", [{}, {"ok": 1, "error": "x"}, {"status": "ok"}, {"ok": 1, "status": "error"}])
async def test_an_answer_is_one_thing(wrong: Any):
    async with perdure.open(":memory:", workflows=[till]) as engine:
        await engine.send(Go("k"))

        with pytest.raises(perdure.BadCall):
            await engine.answer(await asked(engine), executor="psp", **wrong)


async def test_what_waits_outside_survives_a_restart(tmp_path: Any):
    async with perdure.open(tmp_path / "till.db", workflows=[till]) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

    async with perdure.open(tmp_path / "till.db", workflows=[till]) as engine:
        assert await engine.open_effects() == [effect]
        await engine.answer(effect, ok={"auth": "A1"}, executor="psp")

        assert (await answer(engine, "test/till"))["value"] == "A1"
        assert await engine.queries.check() == []


class Slow(perdure.Effect, name="test/slow@1", outside="psp", timeout=1):
    pass


@perdure.cell("test/hasty@1", key="key", effects=[Slow, Publish])
def hasty(state: Done | None, event: Go | perdure.ReceiptOf[Slow]) -> perdure.Next:
    return perdure.Next(Done(1), effects=[Slow()]) if isinstance(event, Go) else say(event)


async def test_nobody_answers_in_time(url):
    async with perdure.open(url, workflows=[hasty], keys=KEYS) as engine:
        await engine.send(Go("k"))

        found = await answer(engine, "test/hasty")

        assert (found["status"], found["executor"]) == ("timeout", "kernel")
        assert await engine.open_effects() == []


@perdure.cell("test/clerk@1", key="key", effects=[PersonAsked, Publish])
def clerk(state: Done | None, event: Go | perdure.ReceiptOf[PersonAsked]) -> perdure.Next:
    if isinstance(event, Go):
        return perdure.Next(Done(1), effects=[PersonAsked("approve?", event.what)])
    return say(event, event.value and event.value.answer)


async def test_a_question_of_an_older_world_is_answered_by_whoever_holds_its_intent():
    async with perdure.open(":memory:", workflows=[clerk]) as engine:
        await engine.send(Go("k", "42 EUR"))
        (effect,) = await engine.open_effects("person")
        assert effect.params == {"title": "approve?", "details": "42 EUR"}

        await engine.answer(effect, ok={"answer": "yes"}, executor="person")

        assert (await answer(engine, "test/clerk"))["value"] == "yes"


async def test_a_deleted_cell_withdraws_what_waits_outside():
    async with perdure.open(":memory:", workflows=[fickle]) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        await engine.send(Go("k", "drop it"))
        await settled(engine)

        assert await engine.open_effects() == []
        with pytest.raises(UnknownIntent):
            await engine.answer(effect, ok={"auth": "A1"}, executor="psp")


@perdure.cell("test/fickle@1", key="key", effects=[Charge])
def fickle(state: Done | None, event: Go | perdure.ReceiptOf[Charge]) -> perdure.Next:
    return perdure.Next(Done(1), effects=[Charge(1)]) if state is None else perdure.Next(None)


# ---- signatures --------------------------------------------------------------------------------------------------


async def test_a_signed_receipt_is_admitted_and_keeps_its_signature(url):
    async with perdure.open(url, workflows=[till], keys=KEYS) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)
        signature = perdure.sign(effect, KEY, ok={"auth": "A1"}, cost=3)

        await engine.answer(effect, ok={"auth": "A1"}, executor="psp", cost=3, signature=signature)

        found = await answer(engine, "test/till")
    assert (found["value"], found["cost"], found["signature"]) == ("A1", 3, ["hmac-sha256", "psp-1"])


async def test_an_error_is_signed_too():
    async with perdure.open(":memory:", workflows=[till], keys=KEYS) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)
        signature = perdure.sign(effect, KEY, error="declined")

        with pytest.raises(ReceiptRefused):
            await engine.answer(effect, error="approved", executor="psp", signature=signature)
        await engine.answer(effect, error="declined", executor="psp", signature=signature)

        assert (await answer(engine, "test/till"))["error"] == ["OutsideError", "declined"]


class Notice(perdure.Effect, name="test/notice@1", outside="psp"):
    """Its receipt has the form that an error has, too."""

    class Receipt(perdure.Record):
        type: str
        message: str
        data: bytes | None


@perdure.cell("test/noticer@1", key="key", effects=[Notice, Publish])
def noticer(state: Done | None, event: Go | perdure.ReceiptOf[Notice]) -> perdure.Next:
    return perdure.Next(Done(1), effects=[Notice()]) if isinstance(event, Go) else say(event)


SIGNED: Any = {"type": "paid", "message": "with card", "data": None}


def nested(depth: int) -> Failure:
    failure = DECLINED
    for _ in range(depth):
        failure = replace(DECLINED, causes=(failure,))
    return failure


DECLINED = Failure("OutsideError", "declined", retry=False)
ALTERED = {
    "a value beside what looks like it": (
        {"ok": SIGNED},
        Receipt("ok", encode({**SIGNED, "message": "with nothing"}), Failure("paid", "with card")),
    ),
    "another traceback": ({"error": "declined"}, Receipt("error", None, replace(DECLINED, traceback="elsewhere"))),
    "other causes": ({"error": "declined"}, Receipt("error", None, replace(DECLINED, causes=(Failure("E", "no"),)))),
    "causes of any depth": ({"error": "declined"}, Receipt("error", None, nested(200))),
    "other data": ({"error": "declined"}, Receipt("error", None, replace(DECLINED, encoded=encode(1)))),
    "to be tried again": ({"error": "declined"}, Receipt("error", None, replace(DECLINED, retry=True))),
    "a value beside the error": ({"error": "declined"}, Receipt("error", encode(1), DECLINED)),
}


@pytest.mark.parametrize("what", ALTERED)
async def test_every_part_of_an_answer_is_signed(what: str):
    """Past the client, which makes no such receipts: whoever can write to the database changes one on its way."""
    signed, altered = ALTERED[what]
    async with perdure.open(":memory:", workflows=[noticer], keys=KEYS) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)
        (head,) = await engine.instances(workflow="test/noticer")
        by = Answerer("psp", None, perdure.sign(effect, KEY, **signed))

        with pytest.raises(ReceiptRefused, match=r"mismatch|cannot be read"):
            await engine._connection.put(head.id, ReceiptArrived(bytes.fromhex(effect.intent), replace(altered, by=by)))

        await engine.answer(effect, executor="psp", signature=by.signature, **signed)
        assert (await answer(engine, "test/noticer"))["status"] == ("ok" if "ok" in signed else "error")


async def test_the_public_half_of_an_ed25519_key_is_enough_to_admit():
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    signing = perdure.Key.ed25519("e1", private=private.private_bytes_raw())
    public = perdure.Key.ed25519("e1", public=private.public_key().public_bytes_raw())
    async with perdure.open(":memory:", workflows=[till], keys=perdure.Keyring({"psp": [public]})) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        signature = perdure.sign(effect, signing, ok={"auth": "A1"})
        await engine.answer(effect, ok={"auth": "A1"}, executor="psp", signature=signature)

        assert (await answer(engine, "test/till"))["signature"] == ["ed25519", "e1"]


FORGED = {
    "no signature": (None, "missing"),
    "another key": (lambda effect: perdure.sign(effect, OTHER, ok={"auth": "A1"}), "mismatch"),
    "another value": (lambda effect: perdure.sign(effect, KEY, ok={"auth": "A2"}), "mismatch"),
    "another cost": (lambda effect: perdure.sign(effect, KEY, ok={"auth": "A1"}, cost=1), "mismatch"),
    "another status": (lambda effect: perdure.sign(effect, KEY, status="unknown"), "mismatch"),
    "another intent": (lambda effect: signed(effect, intent="00" * 32), "mismatch"),
    "another cell": (lambda effect: signed(effect, key="k2"), "mismatch"),
    "other parameters": (lambda effect: signed(effect, params={"cents": 1}), "mismatch"),
    "another entry": (lambda effect: signed(effect, entry=effect.entry + 1), "mismatch"),
    "another issuer": (lambda effect: signed(effect, issuer="inv-8"), "mismatch"),
    "no issuer": (lambda effect: signed(effect, issuer=""), "mismatch"),
    "another effect": (lambda effect: signed(effect, effect="test/refund@1"), "mismatch"),
    "an unknown key": (lambda effect: ReceiptSignature("hmac-sha256", "psp-9", bytes(32)), "unknown key"),
    "another algorithm": (lambda effect: ReceiptSignature("ed25519", "psp-1", bytes(64)), "wrong algorithm"),
}


def signed(open: perdure.OpenEffect, **changed: Any) -> ReceiptSignature:
    return perdure.sign(msgspec.structs.replace(open, **changed), KEY, ok={"auth": "A1"})


@pytest.mark.parametrize("how", FORGED)
async def test_a_forged_receipt_is_refused_and_audited_and_changes_nothing(how: str, caplog: Any):
    forge, why = FORGED[how]
    async with perdure.open(":memory:", workflows=[till], keys=KEYS) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)
        before = await engine.handle("test/till", "k").history()

        signature = None if forge is None else forge(effect)
        with caplog.at_level(logging.WARNING, "perdure"), pytest.raises(ReceiptRefused, match=why) as refused:
            await engine.answer(effect, ok={"auth": "A1"}, executor="psp", signature=signature)
        await settled(engine)

        assert refused.value.code == "bad-signature"
        assert await engine.handle("test/till", "k").history() == before
        assert await engine.open_effects() == [effect]
        (audit,) = await audits(engine)
        assert audit == {
            "code": "bad-signature",
            "why": refused.value.reason,
            "who": "psp",
            "what": "test/charge@1",
            "instance": "test/till/k",
            "intent": effect.intent,
        }
        assert engine.counts["receipts_refused"] == 1
        assert "test/till/k" in caplog.text
        assert SECRET.hex() not in caplog.text

        good = perdure.sign(effect, KEY, ok={"auth": "A1"})  # it still waits, and takes what is right
        await engine.answer(effect, ok={"auth": "A1"}, executor="psp", signature=good)
        assert (await answer(engine, "test/till"))["value"] == "A1"


async def test_the_key_of_another_executor_does_not_sign_for_this_one():
    bank = perdure.Key.hmac("bank-1", bytes(range(32, 64)))
    keys = perdure.Keyring({"psp": [KEY], "bank": [bank]})
    async with perdure.open(":memory:", workflows=[till], keys=keys) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        signature = perdure.sign(effect, bank, ok={"auth": "A1"})
        with pytest.raises(ReceiptRefused, match="unknown key"):
            await engine.answer(effect, ok={"auth": "A1"}, executor="psp", signature=signature)

        assert [audit["code"] for audit in await audits(engine)] == ["bad-signature"]
        assert await engine.open_effects() == [effect]


async def test_whose_last_key_is_gone_nobody_answers_for():
    async with perdure.open(":memory:", workflows=[till], keys=perdure.Keyring({"psp": []})) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        for signature, why in ((None, "missing"), (perdure.sign(effect, KEY, ok={"auth": "A1"}), "unknown key")):
            with pytest.raises(ReceiptRefused, match=why):
                await engine.answer(effect, ok={"auth": "A1"}, executor="psp", signature=signature)


NO_SIGNATURES = {
    "a text": "abc",
    "bytes": b"abc",
    "a value that is text": ReceiptSignature("hmac-sha256", "psp-1", "abc"),  # type: ignore[arg-type]
    "no value": ReceiptSignature("hmac-sha256", "psp-1", None),  # type: ignore[arg-type]
    "a key that is a number": ReceiptSignature("hmac-sha256", 1, b"abc"),  # type: ignore[arg-type]
    "no algorithm": ReceiptSignature(None, "psp-1", b"abc"),  # type: ignore[arg-type]
    "half a character": ReceiptSignature("hmac-sha256", "\ud800", b"abc"),
    "too long": ReceiptSignature("hmac-sha256", "psp-1", bytes(1025)),
    "a name too long": ReceiptSignature("hmac-sha256", "x" * 1025, b"abc"),
}


@pytest.mark.parametrize("keys", [None, KEYS], ids=["no keys", "keys"])
@pytest.mark.parametrize("given", NO_SIGNATURES.values(), ids=NO_SIGNATURES)
async def test_what_is_no_signature_is_refused_before_it_gets_to_an_engine(keys: Any, given: Any, tmp_path: Any):
    """Recorded, it could not be read again: no engine could open the database any more."""
    async with perdure.open(tmp_path / "till.db", workflows=[till], keys=keys) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        for way in (engine.answer(effect, ok={"auth": "A1"}, executor="psp", signature=given), posted(tmp_path, given)):
            with pytest.raises(perdure.BadCall, match=r"takes what perdure\.sign"):
                await asyncio.wait_for(way, 5)

        good = perdure.sign(effect, KEY, ok={"auth": "A1"})
        await engine.answer(effect, ok={"auth": "A1"}, executor="psp", signature=good)
        assert (await answer(engine, "test/till"))["value"] == "A1"


async def posted(directory: Any, signature: Any) -> None:
    async with perdure.connect(directory / "till.db") as client:
        (effect,) = await client.open_effects()
        await client.answer(effect, ok={"auth": "A1"}, executor="psp", signature=signature)


async def with_a_bad_cost(engine: perdure.Engine, file: Any, workflow: str) -> None:
    """Past the client's own checks: whoever can write to the database posts any bytes."""
    (head,) = await engine.instances(workflow=workflow)
    effect = await asked(engine)
    by = Answerer("psp", b"no cost", ReceiptSignature("hmac-sha256", "psp-1", bytes(32)))
    receipt = Receipt("ok", encode({"auth": "A1", "note": None}), None, by)
    async with perdure.connect(file) as client:
        await client._connection.put(head.id, ReceiptArrived(bytes.fromhex(effect.intent), receipt))


async def test_a_cost_that_cannot_be_read_is_a_bad_signature_and_the_engine_goes_on(tmp_path: Any):
    file = tmp_path / "till.db"
    async with perdure.open(file, workflows=[till], keys=KEYS) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        await with_a_bad_cost(engine, file, "test/till")
        async with asyncio.timeout(60):
            while not await audits(engine):  # noqa: ASYNC110  # the engine looks into its inbox now and then
                await asyncio.sleep(0.001)

        (audit,) = await audits(engine)
        assert (audit["code"], audit["who"]) == ("bad-signature", "psp")
        assert "cannot be read" in audit["why"]
        good = perdure.sign(effect, KEY, ok={"auth": "A1"})
        await engine.answer(effect, ok={"auth": "A1"}, executor="psp", signature=good)
        assert (await answer(engine, "test/till"))["value"] == "A1"


async def test_a_cost_that_cannot_be_read_is_told_to_a_cell_that_takes_rejected(tmp_path: Any):
    file = tmp_path / "till.db"
    async with perdure.open(file, workflows=[careful]) as engine:
        await engine.send(Go("k"))

        await with_a_bad_cost(engine, file, "test/careful")

        assert (await answer(engine, "test/careful"))["rejected"][0] == "NotCanonical"


async def test_a_receipt_of_another_executor_is_refused_and_audited(url):
    keys = perdure.Keyring({"mallory": [KEY], "psp": [KEY]})
    async with perdure.open(url, workflows=[till], keys=keys) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)
        signature = perdure.sign(msgspec.structs.replace(effect, executor="mallory"), KEY, ok={"auth": "A1"})

        with pytest.raises(ReceiptRefused, match="answered by psp") as refused:
            await engine.answer(effect, ok={"auth": "A1"}, executor="mallory", signature=signature)
        await settled(engine)

        assert refused.value.code == "wrong-executor"
        assert [audit["who"] for audit in await audits(engine)] == ["mallory"]
        assert await engine.open_effects() == [effect]


async def test_an_identity_is_checked_where_there_are_no_keys():
    async with perdure.open(":memory:", workflows=[till]) as engine:
        await engine.send(Go("k"))

        with pytest.raises(ReceiptRefused) as refused:
            await engine.answer(await asked(engine), ok={"auth": "A1"}, executor="mallory")

        assert refused.value.code == "wrong-executor"


async def test_an_unknown_intent_is_refused():
    async with perdure.open(":memory:", workflows=[till]) as engine:
        with pytest.raises(UnknownIntent, match="00ff"):
            await engine.answer("00ff", ok=1, executor="psp")
        for wrong in ("not hex", None, 7, b"00ff"):
            with pytest.raises(perdure.CallerError, match="hex digits"):
                await engine.answer(wrong, ok=1, executor="psp")  # type: ignore[arg-type]


async def test_a_repeated_receipt_is_refused_and_has_no_effect(url):
    async with perdure.open(url, workflows=[till]) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)
        await engine.answer(effect, ok={"auth": "A1"}, executor="psp")
        history = await engine.handle("test/till", "k").history()

        with pytest.raises(UnknownIntent):
            await engine.answer(effect, ok={"auth": "A2"}, executor="psp")
        await settled(engine)

        assert await engine.handle("test/till", "k").history() == history
        assert (await answer(engine, "test/till"))["value"] == "A1"


async def test_two_answers_at_once_are_one():
    async with perdure.open(":memory:", workflows=[till]) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        both = [engine.answer(effect, ok={"auth": auth}, executor="psp") for auth in ("A1", "A2")]
        heard = await asyncio.gather(*both, return_exceptions=True)

        assert [type(each) for each in heard] == [type(None), UnknownIntent]
        assert (await answer(engine, "test/till"))["value"] == "A1"
        assert engine.counts["stale"] == 1


@perdure.cell("test/napper@1", key="key", effects=[Alarm, Publish])
def napper(state: Done | None, event: Go | perdure.ReceiptOf[Alarm]) -> perdure.Next:
    return perdure.Next(Done(1), effects=[Alarm(after=10**15)]) if isinstance(event, Go) else say(event)


async def test_what_the_engine_itself_answers_is_answered_by_nobody_else():
    async with perdure.open(":memory:", workflows=[napper]) as engine:
        await engine.send(Go("k"))
        await settled(engine)
        (head,) = await engine.instances(workflow="test/napper")
        (intent,) = engine._shard.kernel.instances()[head.id].open
        with pytest.raises(UnknownIntent):
            await engine.answer(intent.hex(), ok=None, executor="psp")

        forged = receipt_from("psp", ok=None)  # past the client's own check
        with pytest.raises(ReceiptRefused) as refused:
            await engine._connection.put(head.id, ReceiptArrived(intent, forged))

        assert refused.value.code == "not-outside"
        assert intent in engine._shard.kernel.instances()[head.id].open


# ---- from another process ----------------------------------------------------------------------------------------


async def test_an_executor_in_another_process_answers_through_the_inbox(tmp_path: Any):
    file = tmp_path / "till.db"
    async with perdure.open(file, workflows=[till], keys=KEYS) as engine:
        await engine.send(Go("k"))
        await settled(engine)

        executor = await asyncio.create_subprocess_exec(sys.executable, "-c", EXECUTOR, str(file), SECRET.hex())
        assert await executor.wait() == 0

        assert (await answer(engine, "test/till"))["value"] == "from outside"


EXECUTOR = """
import asyncio, sys
import perdure

async def main(url, secret):
    key = perdure.Key.hmac("psp-1", secret)
    async with perdure.connect(url) as client:
        (effect,) = await client.open_effects("psp")
        receipt = {"auth": "from outside"}
        await client.answer(effect, ok=receipt, executor="psp", signature=perdure.sign(effect, key, ok=receipt))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_forged_receipt_from_another_process_is_refused_by_the_engine_that_takes_it(tmp_path: Any):
    file = tmp_path / "till.db"
    async with perdure.open(file, workflows=[till], keys=KEYS) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

    async with perdure.connect(file) as client:  # nobody runs: it waits in the inbox
        await client.answer(effect, ok={"auth": "A1"}, executor="psp", signature=None)
        await client.answer(effect, ok={"auth": "A1"}, executor="mallory")
        await client._connection.put((await client.instances(workflow="test/till"))[0].id, ReceiptArrived(
            bytes.fromhex(effect.intent), Receipt("ok", encode({"auth": "A1", "note": None}))
        ))  # fmt: skip

    async with perdure.open(file, workflows=[till], keys=KEYS) as engine:
        await settled(engine)

        codes = [audit["code"] for audit in await audits(engine)]
        assert codes == ["bad-signature", "wrong-executor", "no-identity"]
        assert await engine.open_effects() == [effect]
        assert await engine.queries.undelivered() == []
        assert await engine.queries.check() == []


async def test_who_answers_from_another_process_and_waits_hears_what_the_engine_says(tmp_path: Any):
    file = tmp_path / "till.db"
    async with perdure.open(file, workflows=[till]) as engine, perdure.connect(file) as client:
        await engine.send(Go("k"))
        effect = await asked(engine)

        with pytest.raises(perdure.ReceiptRefused, match=r"answered by psp.*\(wrong-executor\)"):
            await client.answer(effect, ok={"auth": "A1"}, executor="mallory", wait=20)
        await client.answer(effect, ok={"auth": "A1"}, executor="psp", wait=20)

        assert await engine.open_effects() == []
        with pytest.raises(perdure.UnknownIntent):
            await client.answer(effect, ok={"auth": "A1"}, executor="psp", wait=20)


async def test_who_waits_for_an_engine_that_does_not_run_is_told_so(tmp_path: Any):
    file = tmp_path / "till.db"
    async with perdure.open(file, workflows=[till]) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

    async with perdure.connect(file) as client:
        with pytest.raises(perdure.AskTimeout, match="it is recorded, and one will"):
            await client.answer(effect, ok={"auth": "A1"}, executor="psp", wait=0.01)
        with pytest.raises(perdure.CallerError, match="a timeout is a number of seconds"):
            await client.answer(effect, ok={"auth": "A1"}, executor="psp", wait="soon")  # type: ignore[arg-type]
        assert len(await client.queries.undelivered()) == 1


# ---- receipts that cannot be read --------------------------------------------------------------------------------


async def test_a_receipt_that_cannot_be_read_is_told_to_a_cell_that_takes_rejected(url):
    async with perdure.open(url, workflows=[careful]) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)

        await engine.answer(effect, ok={"auth": 7}, executor="psp")

        found = await answer(engine, "test/careful")
        came = encode({"auth": 7})
        assert found["rejected"] == ["SchemaMismatch", "test/charge@1", len(came), digest(came), effect.intent]
        assert "$.auth" in found["text"]
        assert await engine.open_effects() == []


async def test_a_cell_that_does_not_take_rejected_fails_and_its_other_effects_are_withdrawn(url):
    async with perdure.open(url, workflows=[greedy]) as engine:
        await engine.send(Go("k"))
        await settled(engine)
        first, _ = await engine.open_effects()

        await engine.answer(first, ok={"auth": 7}, executor="psp")

        with pytest.raises(perdure.InstanceFailed, match="cannot be read"):
            await engine.handle("test/greedy", "k").result(timeout=60)
        assert await engine.open_effects() == []


@perdure.cell("test/greedy@1", key="key", effects=[Charge])
def greedy(state: Done | None, event: Go | perdure.ReceiptOf[Charge]) -> perdure.Next:
    return perdure.Next(Done(1), effects=[Charge(1), Charge(1)]) if isinstance(event, Go) else perdure.Next(state)


async def test_a_receipt_for_a_stuck_cell_waits_until_it_goes_on(tmp_path: Any):
    file = tmp_path / "stuck.db"
    async with perdure.open(file, workflows=[moody]) as engine:
        await engine.send(Go("k"))
        effect = await asked(engine)
        await engine.send(Go("k", "raise"))
        await settled(engine)
        await engine.answer(effect, ok={"auth": "A1"}, executor="psp")

    async with perdure.open(file, workflows=[moody]) as engine:
        MOOD.clear()
        await engine.handle("test/moody", "k").retry()

        assert (await answer(engine, "test/moody"))["value"] == "A1"
    MOOD.append("bad")


MOOD = ["bad"]


class Late(perdure.Effect, name="test/late@1", outside="psp", timeout=10**15):
    class Receipt(perdure.Record):
        auth: str


@perdure.cell("test/moody@1", key="key", effects=[Late, Publish])
def moody(state: Done | None, event: Go | perdure.ReceiptOf[Late]) -> perdure.Next:
    match event:
        case Go(what="raise"):
            if MOOD:
                raise ValueError("not now")
            return perdure.Next(state)
        case Go():
            return perdure.Next(Done(1), effects=[Late()])
        case receipt:
            return say(receipt, receipt.value and receipt.value.auth)
