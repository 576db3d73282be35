"""What a step does to its arguments is not seen by its flow: not while that is in memory, nor after a restart."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest

import perdure
from perdure import Context
from perdure.flows.copies import for_step
from tests.flows.conftest import Stage


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    items: list[str]


class Struct(msgspec.Struct, frozen=True):
    items: list[str]


class Pair(NamedTuple):
    name: str
    items: list[str]


class Colour(Enum):
    RED = 1


async def spoil(given: Any, named: Any) -> int:
    for each in (given, named["x"]):
        each.append("spoilt")
    return len(given)


@pytest.mark.parametrize("colour", ["async", "plain"])
async def test_a_flow_does_not_see_what_a_step_does_to_its_arguments(stage: Stage, colour: str) -> None:
    def spoil_in_a_thread(given: Any, named: Any) -> int:
        given.append("spoilt")
        named["x"].append("spoilt")
        return len(given)

    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        given: list[str] = ["a"]
        named: dict[str, Any] = {"x": []}
        step = spoil if colour == "async" else spoil_in_a_thread
        first = await ctx.step("first", step, given, named=named)
        second = await ctx.step("second", step, given, named=named)
        return [first, second, given, named]

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == [2, 2, ["a"], {"x": []}]


async def test_each_attempt_gets_the_arguments_as_they_were(memory: Stage) -> None:
    seen: list[list[int]] = []

    async def fails_once(numbers: list[int]) -> None:
        numbers.append(4)
        seen.append(numbers)
        if len(seen) == 1:
            raise ValueError("not yet")

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step.options(backoff=perdure.Backoff(base=0))("fails once", fails_once, [1, 2, 3])

    async with memory.open(flow) as engine:
        await (await engine.start(flow)).result(60)
    assert seen == [[1, 2, 3, 4], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    "value",
    [
        ["a"],
        {"a": ["b"]},
        ("a", ["b"]),
        {1, 2},
        bytearray(b"x"),
        Cart(["a"]),
        Frozen(["a"]),
        Struct(["a"]),
        Pair("p", []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_data_is_copied_to_its_last_part(value: Any) -> None:
    (copied,), kwargs = for_step((value,), {"named": value})

    assert copied == value and copied is not value
    assert kwargs == {"named": value} and kwargs["named"] is copied, "one object for the flow is one for the step"
    for name in ("items",):
        assert not hasattr(value, name) or getattr(copied, name) is not getattr(value, name)


def test_a_model_of_pydantic_is_copied() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", items=(list[str], []))(items=["a"])

    (copied,), _ = for_step((model,), {})

    assert copied == model and copied.items is not model.items


def test_what_is_no_plain_data_is_passed_itself() -> None:
    lock, event = threading.Lock(), asyncio.Event()
    mixed = [["data"], lock]
    numbers, red = (1, "a", None), Colour.RED

    args, kwargs = for_step((mixed, numbers, red), {"event": event})

    assert args[0] is mixed and args[1] is numbers and args[2] is red and kwargs["event"] is event


def test_data_that_holds_itself_is_copied_once() -> None:
    ring: list[Any] = [1]
    ring.append(ring)

    (copied,), _ = for_step((ring,), {})

    assert copied is not ring and copied[1] is copied
