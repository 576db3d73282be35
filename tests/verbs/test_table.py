"""The table of verbs, as a face uses it: parameters from JSON, an answer that is data."""

from typing import get_type_hints

import msgspec
import pytest

import perdure
from perdure.codec.phrases import jsonable
from perdure.errors import CallerError, InstanceEnded, UnclearRequest
from perdure.verbs.table import VERBS


@perdure.flow
async def order(ctx: perdure.Context, cents: int) -> object:
    message = await ctx.receive("decision")
    return message.body


async def call(client, verb, **given):
    """As a server would: what came is JSON, and so is what goes out."""
    row = VERBS[verb]
    answer = await row.function(client, msgspec.convert(given, row.params))
    assert type(answer) is row.answer
    return jsonable(answer)


@pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))
def test_a_function_takes_and_answers_what_its_row_says(verb):
    hints = get_type_hints(verb.function)

    assert (hints["given"], hints["return"]) == (verb.params, verb.answer)
    assert verb.function.__name__ == verb.name.replace(" ", "_")


async def test_an_instance_is_started_seen_and_moved_by_verbs(tmp_path):
    async with perdure.open(tmp_path / "a.db", workflows=[order]) as engine:
        started = await call(engine, "start", workflow="order", input={"cents": 5}, key="o-1", tags={"shop": "a"})
        await engine.handle("order", "o-1").until("waiting")
        why = await call(engine, "why", id="o-1")
        await call(engine, "tag", id="o-1", name="shop", value="b")
        listed = await call(engine, "ls", tags={"shop": "b"})
        sent = await call(engine, "send", id="o-1", name="decision", body={"ok": True})
        await engine.handle("order", "o-1").result()
        shown = await call(engine, "show", id="order/o-1")
        history = await call(engine, "history", id="o-1", values=False)

    assert started == {"id": "order/o-1", "workflow": "order", "key": "o-1"}
    assert why["reasons"][0]["todo"] == [{"text": "", "command": ["send", "order/o-1", "decision", "{}"]}]
    assert [each["id"] for each in listed["instances"]] == ["order/o-1"]
    assert sent == {"id": "order/o-1", "sent": "decision"}
    assert (shown["status"], shown["result"]) == ("completed", {"ok": True})
    assert [each["event"] for each in history["history"]] == ["started", "tagged", "message"]
    assert all("value" not in each for each in history["history"])


async def test_what_cannot_be_done_is_an_error_of_the_caller(tmp_path):
    async with perdure.open(tmp_path / "a.db", workflows=[order]) as engine:
        await call(engine, "start", workflow="order", input={"cents": 5}, key="o-1")
        await call(engine, "send", id="o-1", name="decision")
        await engine.handle("order", "o-1").result()

        with pytest.raises(InstanceEnded):
            await call(engine, "cancel", id="o-1")
        with pytest.raises(UnclearRequest):
            await call(engine, "show", id="")
        with pytest.raises(CallerError):
            await call(engine, "retry", id="o-1")
        with pytest.raises(msgspec.ValidationError):
            await call(engine, "settle", id="o-1", location="x", **{"as": "perhaps"})


async def test_two_histories_are_compared_and_exported(tmp_path):
    async with perdure.open(tmp_path / "a.db", workflows=[order]) as engine:
        for key, cents in (("a", 1), ("b", 2)):
            await call(engine, "start", workflow="order", input={"cents": cents}, key=key)
            await call(engine, "send", id=key, name="decision")
            await engine.handle("order", key).result()
        compared = await call(engine, "diff", a="a", b="b")
        exported = await call(engine, "export", id="a")

    assert not compared["same"]
    assert [each["what"] for each in compared["differences"]] == ["input"]
    assert exported["entries"] == 2 and '"workflow": "order"' in exported["text"]
