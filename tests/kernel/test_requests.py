"""Requests of running calls: which are stale, and what a failed commit does to them."""

from __future__ import annotations

import asyncio

import pytest

import perdure
from perdure.kernel.effects import Call
from perdure.kernel.events import Address, Requested
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.mailbox import STALE
from perdure.kernel.refusals import refusal
from perdure.kernel.rules import NO_RULES
from perdure.kernel.workflows import Workflows
from perdure.testing.faults import Faults
from perdure.testing.user_simulation import UserSimulation
from perdure.testing.world import World
from tests.kernel.machines import Told


def asked(delivery: int, *, open_in: int | None = 2, held: bool = False) -> object:
    instance = Instance(Address("told", "k"))
    instance.id = instance.generation = 1
    if open_in is not None:
        instance.put(Intent(b"i", Call("a"), delivery=open_in, held=held))
    request = Requested(b"i", delivery, "1", "may-i", b"")
    return refusal(instance, request, Workflows([Told()]), NO_RULES, heard=True)


def test_a_request_of_an_earlier_delivery_is_stale():
    assert asked(2) is None
    assert asked(1) is STALE


def test_a_request_of_a_call_that_is_closed_or_held_is_stale():
    assert asked(2, open_in=None) is STALE
    assert asked(2, held=True) is STALE


async def clerk() -> str:
    return f"{await perdure.step_info().ask('price', 'tea')} {await perdure.step_info().ask('price', 'salt')}"


@perdure.flow
async def shop(ctx: perdure.Context) -> str:
    work = asyncio.create_task(ctx.step("clerk", clerk))
    for cents in (300, 40):
        (await ctx.receive("price")).complete(cents)
    return await work


@pytest.mark.parametrize("fate", ["true_error", "false_error", "late_commit", "crash_before", "crash_after"])
@pytest.mark.parametrize("commit", range(1, 6))
def test_a_failed_commit_loses_no_request(fate, commit):
    with World._on(UserSimulation(shop, seed=0, faults=Faults(commits={commit: fate}))) as world:
        try:
            handle = world.start(shop, key="k")
        except perdure.errors.PerdureError:  # the start itself met the failure: asked again, it is the same instance
            world.advance(60)
            handle = world.start(shop, key="k")
        world.advance(120)
        assert handle.result() == "300 40"
