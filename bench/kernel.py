"""What the kernel alone costs per step, without a store: µs of processor time, and units of plain Python.

    python -m bench.kernel

First whole steps through `Kernel.advance`, with the smallest machine there can be and with a flow, so that
the difference is what a flow costs. Then the parts of a step one by one; they are measured alone and do not
add up exactly.

A unit is what `bench/calibration.py` takes in the same moment. Microseconds belong to one machine and one minute; units
hardly change between machines, so a regression shows in them: `bench/PROFILE.md` has those of the last look.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import perdure
from bench.calibration import unit
from bench.measure import verify
from perdure.codec import decode as decode_value
from perdure.codec import encode as encode_value
from perdure.codec import seal
from perdure.executors.info import StepInfo, ok
from perdure.kernel.apply import apply
from perdure.kernel.batch import Batch
from perdure.kernel.decision import Decision
from perdure.kernel.effects import Call, Effect
from perdure.kernel.entry import Entry, encode, pack
from perdure.kernel.events import Address, Event, ReceiptArrived, Started
from perdure.kernel.gate import Executors
from perdure.kernel.identity import Identity
from perdure.kernel.instance import Instance
from perdure.kernel.kernel import Kernel
from perdure.kernel.limits import Limits
from perdure.kernel.location import Patterns
from perdure.kernel.machine import Machine
from perdure.kernel.mailbox import Offer
from perdure.kernel.moment import Moment
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import Receipt
from perdure.kernel.routing import Subscription

STEPS: Final = 2_000
ROUNDS: Final = 9
SEED: Final = bytes(16)
RECEIPT: Final = Receipt("ok", encode_value(7))


class Chain:
    """The smallest workflow: each receipt opens the next call."""

    name = "chain"
    version = "1"
    defaults = b""
    limits = Limits()
    policy = Policy()
    subscriptions: tuple[Subscription, ...] = ()

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        return Link()

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return False

    def where(self, machine: Machine, effect: Effect | None) -> str:
        return ""


class Link:
    def __init__(self) -> None:
        self._number = 0

    def deliver(self, event: Event, moment: Moment) -> Decision:
        self._number += 1
        return Decision(open=(Call(f"add#{self._number + 1}"),))

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes | None:
        return None

    def dispose(self) -> None:
        pass


@perdure.flow
async def chain(ctx: perdure.Context) -> None:
    while True:
        await ctx.step("add", _number, 7)


async def _number(n: int) -> int:
    return n


def whole_steps(workflow: Any, instances: int) -> float:
    """Seconds per step of so many instances that take turns: offer, advance, publications out, committed."""
    kernel = Kernel([workflow], Executors({"inline": None}))
    for key in range(instances):
        address = Address(workflow.name, str(key))
        kernel.offer(Offer(address, Started(workflow.name, str(key), encode_value({}), SEED)))
        kernel.adopt(address, None)
    batch = _turn(kernel)
    done = 0
    began = time.process_time()
    while done < STEPS:
        verify(
            len(batch.publications) == instances,
            f"{len(batch.publications)} steps of {instances} were opened",
        )
        for publication in batch.publications.values():
            kernel.offer(Offer(publication.instance, ReceiptArrived(publication.intent, RECEIPT), publication.intent))
            done += 1
        batch = _turn(kernel)
    seconds = time.process_time() - began
    for instance in kernel.instances().values():
        assert instance.machine is not None
        instance.machine.dispose()
    return seconds / done


def _turn(kernel: Kernel) -> Batch:
    batch = Batch()
    kernel.advance(batch, time.time_ns())
    kernel.close(batch)
    kernel.committed(batch)
    return batch


def flow_deliveries() -> float:
    """Seconds per delivery to a flow's machine, kernel left out."""
    machine = chain.machine("chain/k", None)
    decision = machine.deliver(
        Started("chain", "k", encode_value({}), SEED, generation=1), Moment(time.time_ns(), SEED, 1)
    )
    identity = Identity(Address("chain", "k"), 1)
    began = time.process_time()
    for number in range(2, STEPS + 2):
        intent = identity.intent(decision.open[0].location, 1)
        decision = machine.deliver(ReceiptArrived(intent, RECEIPT), Moment(0, SEED, number))
    seconds = time.process_time() - began
    machine.dispose()
    return seconds / STEPS


def parts() -> dict[str, Callable[[], object]]:
    """The pieces of one step, each with what it meets in the 12th step of a flow."""
    identity = Identity(Address("chain", "k"), 1)
    patterns = Patterns(["add", "add#"])
    effects = (Call("add#12"),)
    event = ReceiptArrived(identity.intent("add#11", 1), RECEIPT)
    packed, fresh = pack(effects, patterns)
    entry = Entry(12, 1, 12, time.time_ns(), event, Decision(open=effects), (), fresh)
    body = encode(entry, packed)
    applied = _applied()
    value = RECEIPT.value
    assert value is not None
    return {
        "intent id (blake2b)": lambda: identity.intent("add#12", 1),
        "pack the effect": lambda: pack(effects, patterns),
        "encode the entry, seal included": lambda: encode(entry, packed),
        "seal alone": lambda: seal(body),
        "apply": lambda: next(applied),
        "an empty batch": Batch,
        "receipt of a result (int)": lambda: ok(7, int),
        "decode the result (int)": lambda: decode_value(value),
        "step info": lambda: StepInfo("chain/k", "add#12", 1, 1, identity),
    }


def _applied() -> Iterator[None]:
    """Entries folded into one instance, one per `next`: a receipt that closes a call and opens the next."""
    instance = Instance(Address("chain", "k"))
    started = Started("chain", "k", b"", SEED, generation=1)
    apply(instance, Entry(1, 1, 1, 1, started, Decision(open=(Call("add#1"),)), (), ("add#",)))
    for n in count(2):
        event = ReceiptArrived(next(iter(instance.open)), RECEIPT)
        apply(instance, Entry(n, 1, n, n, event, Decision(open=(Call(f"add#{n}"),))))
        yield


async def _task_hops(tasks: int) -> float:
    """Seconds per step of what the inline executor needs of asyncio at the least: one task, awaited."""
    began = time.process_time()
    await asyncio.gather(*(_number(7) for _ in range(tasks)))
    return (time.process_time() - began) / tasks


def _call_time(call: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(STEPS):
        call()
    return (time.process_time() - began) / STEPS


def main() -> None:
    measured: dict[str, Callable[[], float]] = {
        "a step, smallest machine, 1 instance": lambda: whole_steps(Chain(), 1),
        "a step, smallest machine, 500 instances": lambda: whole_steps(Chain(), 500),
        "a step, flow, 1 instance": lambda: whole_steps(chain, 1),
        "a step, flow, 500 instances": lambda: whole_steps(chain, 500),
        "deliver to a flow's machine": flow_deliveries,
        "a task of asyncio (inline executor)": lambda: asyncio.run(_task_hops(STEPS)),
    }
    for name, call in parts().items():
        measured[f"  {name}"] = lambda call=call: _call_time(call)  # type: ignore[misc]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    for _ in range(ROUNDS):  # in turns, so that a busy machine hits all alike
        for name, measure in measured.items():
            one = unit()
            seconds = measure()
            found[name].append((seconds, 2 * seconds / (one + unit())))
    print(f"{'median of ' + str(ROUNDS) + ' rounds':46}{'µs':>8}{'best':>8}{'units':>8}")
    for name, values in found.items():
        times, units = zip(*values, strict=True)
        row = statistics.median(times) * 1e6, min(times) * 1e6, statistics.median(units)
        print(f"{name:46}" + "".join(f"{value:8.2f}" for value in row))


if __name__ == "__main__":
    main()
