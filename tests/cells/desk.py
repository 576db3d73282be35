"""What the tests of effects share: a cell that asks for whatever its event says, and publishes the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import perdure
from perdure.cells.effects import Publish


class Go(perdure.Record, name="test/Go@1"):
    key: str
    what: str = ""
    data: bytes = b""


class Done(perdure.Record, name="test/Done@1"):
    asked: perdure.Nat


def told(receipt: perdure.ReceiptOf[Any]) -> dict[str, Any]:
    """All of a receipt that can be published."""
    error = receipt.error
    signature = receipt.signature
    return {
        "status": receipt.status,
        "error": None if error is None else [error.type, error.message],
        "executor": receipt.executor,
        "issuer": receipt.issuer,
        "cell": receipt.cell,
        "key": receipt.key,
        "intent": receipt.intent,
        "entry": receipt.entry,
        "effect": receipt.effect.__perdure_name__,
        "params_hash": receipt.params_hash,
        "cost": receipt.cost,
        "signature": None if signature is None else [signature.algorithm, signature.key],
    }


def say(receipt: perdure.ReceiptOf[Any], value: Any = None) -> perdure.Next:
    """The answer for the test to read; the cell is gone then."""
    return perdure.Next(None, effects=[Publish.of("answer", {**told(receipt), "value": value})])


async def answer(engine: perdure.Client, workflow: str, key: str = "k") -> dict[str, Any]:
    """What the cell said at its end."""
    handle = engine.handle(workflow, key)
    await handle.result(timeout=60)
    found: dict[str, Any] = await handle.read("answer")
    return found


async def settled(engine: perdure.Engine) -> None:
    """Everything that is known by now is recorded."""
    done = asyncio.Event()
    engine._shard.when_settled(done.set)
    await done.wait()


async def heard(stream: Any) -> list[perdure.Frame]:
    """The frames that came until now."""
    stream.end()
    frames = []
    while (frame := await stream.take()) is not None:
        frames.append(frame)
    return frames
