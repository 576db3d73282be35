"""What the simulated worlds run: small real flows and cells, and a raw machine for what no flow does.

Every workload comes to the same end whatever happens on the way, so a world full of faults is held
against a calm one. A workload is a function that asks its world for instances and answers which outcome
each must have: a value, the name of an error, or a function of the outcome.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from perdure.cells.author import CellContext, Effect, Next, ReceiptOf, Rejected, cell
from perdure.cells.bound_manifest import manifest
from perdure.cells.effects import Alarm
from perdure.cells.handlers import Call as CellCall
from perdure.cells.handlers import effect_handler
from perdure.codec import decode, encode
from perdure.codec.record import Nat, Record, Time
from perdure.errors import ChildFailed, Fatal, JoinFailed, OutcomeUnknown, ReceiveTimeout, RollBack, StepFailed
from perdure.executors.info import step_info
from perdure.executors.signatures import Key, Keyring, sign
from perdure.flows.author import Backoff, Break, Continue, Failed, flow, step
from perdure.flows.context import Context
from perdure.graphs import Graph, Node, tool
from perdure.graphs import Limits as GraphLimits
from perdure.kernel.decision import Decision, Fact, Outcome, Reply, Stuck
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import Call, Timer, Wait
from perdure.kernel.events import Address, Event, Message, ReceiptArrived, Retried, Settled, Started, Woken
from perdure.kernel.instance import Instance
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine
from perdure.kernel.moment import Moment
from perdure.kernel.outside import Outside, Verify, outside_of, unsigned
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.routing import Subscription
from perdure.kernel.rows import response_name
from perdure.kernel.rules import RULER
from perdure.kernel.status import TERMINAL, Status
from perdure.ports.executor import Work
from perdure.ports.outside import OpenEffect
from perdure.ports.outside import answer as said_outside
from perdure.runtime.virtual_clock import SECOND
from perdure.testing.cells import state_of
from perdure.testing.disks import Disk
from perdure.testing.simulation import Simulation
from tests.simulation.workers import QUEUE, WithWorkers

QUICK = Backoff(base=0.01, factor=1, jitter=0.5)

Expected = dict[tuple[str, str], Any]
"""What must become of each instance, by workflow and key."""

# ---- steps ---------------------------------------------------------------------------------------------


@step(retries=40, backoff=QUICK)
async def double(value: int, failures: int = 0) -> int:
    """Fails as often as it is told, then doubles."""
    if step_info().attempt <= failures:
        raise ConnectionError(f"attempt {step_info().attempt}")
    return 2 * value


@step(retries=40, backoff=Backoff(base=0))
def slow_double(value: int) -> int:
    return 2 * value


@step(retries=40)
async def hopeless() -> None:
    raise Fatal("never")


@step(retries=2, backoff=QUICK)
async def failing() -> None:
    raise ValueError("as always")


async def triple(value: int) -> Any:
    return 3 * value


# ---- flows ---------------------------------------------------------------------------------------------


@flow
async def order(ctx: Context, cents: int) -> int:
    charged = await ctx.step("charge", double, cents, 1)
    await ctx.sleep("settle", 0.05)
    ctx.publish("charged", charged)
    shipped = await ctx.step("ship", slow_double, charged)
    try:
        await ctx.step("bonus", hopeless)
    except StepFailed:
        ctx.publish("bonus", "none")
    return shipped + await ctx.step("ship", double, 1)


@flow
async def fan(ctx: Context) -> list[int]:
    async def part(value: int) -> int:
        return await ctx.step("part", slow_double, value)

    first: list[int] = list(await asyncio.gather(double(1), ctx.step("slow", slow_double, 2), double(3, 1)))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part(n)) for n in range(3)]
    try:
        async with asyncio.timeout(0.04):
            await asyncio.sleep(30)
    except TimeoutError:
        first.append(0)
    return first + [task.result() for task in tasks]


@flow
async def talk(ctx: Context, count: int) -> list[int]:
    """Every message exactly once, however the receives are cut short."""
    heard: list[int] = []
    while len(heard) < count:
        try:
            if len(heard) % 2:
                heard.append((await ctx.receive("word", timeout=0.05)).body)
            else:
                async with asyncio.timeout(0.05):
                    message = await ctx.receive("word", "other")
                    heard.append(message.body)
        except (ReceiveTimeout, TimeoutError):
            await ctx.step("wait", double, 0)
    return sorted(heard)


@flow
async def cut(ctx: Context, count: int) -> list[int]:
    """A receive and its cancellation in the very same delivery: the message must stay."""
    heard: list[int] = []

    async def listen() -> int:
        body: int = (await ctx.receive("word")).body
        return body

    while len(heard) < count:
        listener = asyncio.ensure_future(listen())
        await asyncio.sleep(0)
        first = (await ctx.receive()).body
        listener.cancel()
        with suppress(asyncio.CancelledError):
            heard.append(await listener)
        heard.append(first)
    return sorted(heard)


@flow
async def looper(ctx: Context, rounds: int) -> int:
    async def body(ctx: Context, state: int) -> Continue[int] | Break[int]:
        value = await ctx.step("add", double, 1)
        if state % 3 == 2:
            await asyncio.gather(ctx.step("twin", double, 0), ctx.step("twin", slow_double, 0))
        if state == 4:
            await ctx.sleep("nap", 0.01)
        state += value // 2
        return Break(state) if state >= rounds else Continue(state)

    first: int = await ctx.loop("rounds", body, 0, keep=2, prune_every=2)
    return first + await ctx.step("after", double, 1)


@flow
async def listener(ctx: Context, count: int) -> list[int]:
    async def body(ctx: Context, state: list[int]) -> Continue[list[int]] | Break[list[int]]:
        state = [*state, (await ctx.receive("word")).body]
        await ctx.step("note", double, len(state))
        return Break(sorted(state)) if len(state) >= count else Continue(state)

    heard: list[int] = await ctx.loop("ears", body, [], keep=1, prune_every=1)
    return heard


@flow
async def leaf(ctx: Context, value: int) -> int:
    if value < 0:
        raise ValueError("a leaf must not be negative")
    return await ctx.step("grow", double, value)


@flow
async def sleeper(ctx: Context) -> None:
    try:
        await ctx.sleep("long", 3600)
    finally:
        await ctx.step("close", double, 1)


@flow
async def family(ctx: Context) -> list[Any]:
    results: list[Any] = [await ctx.child(leaf, 3)]
    try:
        await ctx.child(leaf, -1)
    except ChildFailed as error:
        results.append(error.status)
    results.append(await ctx.child(leaf, 5, key=f"{ctx.key}-detached", detach=True))
    winner, value = await ctx.race("race", {"nap": lambda: ctx.child(sleeper), "work": lambda: ctx.child(leaf, 7)})
    return [*results, winner, value]


@flow
async def ping(ctx: Context, other: str, rounds: int) -> int:
    total = 0
    for n in range(rounds):
        ctx.send(f"pong/{other}", "ball", n)
        total += (await ctx.receive("ball")).body
    ctx.send(f"pong/{other}", "ball", -1)
    return total


@flow
async def pong(ctx: Context, other: str) -> int:
    count = 0
    while True:
        ball: int = (await ctx.receive("ball")).body
        if ball < 0:
            return count
        count += await ctx.step("hit", slow_double, 1)
        ctx.send(f"ping/{other}", "ball", ball + 1)


@flow
async def patient(ctx: Context) -> str:
    """Waits for ever, until it is cancelled; cleans up with steps."""

    async def probe() -> None:
        await ctx.step("probe", double, 1)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(probe())
            group.create_task(ctx.sleep("for ever", 1_000_000))
    finally:
        await ctx.step("release", double, 1, 1)
    return "not reached"


@flow
async def desk(ctx: Context, count: int) -> list[int]:
    """Each message is dealt with once, and answered, although it is taken more than once."""

    async def body(ctx: Context, state: list[int]) -> Continue[list[int]] | Break[list[int]]:
        message = await ctx.receive("word", ack=True)
        await ctx.step("look", double, 1)
        again = await ctx.receive("word", ack=True)
        await ctx.step("work", slow_double, 1)
        state = [*state, again.body]
        again.complete(len(state))
        assert message.body == again.body
        return Break(sorted(state)) if len(state) >= count else Continue(state)

    heard: list[int] = await ctx.loop("desk", body, [], keep=1, prune_every=1)
    return heard


@flow
async def napper(ctx: Context) -> list[str]:
    found = []
    for _ in range(3):
        await ctx.sleep("nap", 3600)
        found.append("nap")
        await ctx.step("stretch", double, 1)
    return found


@flow
async def payer(ctx: Context) -> list[Any]:
    pay = ctx.step.options(once=True, retries=0)
    first: Any = await pay("pay", triple, 2)
    both = await asyncio.gather(pay("pay", triple, 2), ctx.step("other", double, 1), pay("pay", triple, 2))
    return [first, both[0], both[2]]


@flow
async def prudent(ctx: Context) -> Any:
    try:
        return await ctx.step.options(once=True, unknown="raise", retries=0)("pay", triple, 2)
    except OutcomeUnknown:
        return "looked up"


@flow
async def sketch(ctx: Context) -> int:
    value = await ctx.step("first", double, 1)
    light = ctx.step.options(ephemeral=True)
    for _ in range(3):
        value = await light("double", double, value)
    value = await ctx.step("middle", double, value, 1)
    return await light("last", slow_double, value)


@flow
async def tries(ctx: Context) -> list[Any]:
    async def block(ctx: Context) -> int:
        value = await ctx.step("double", double, 1, 1)
        await ctx.step("never", hopeless)
        return value

    answers: list[Any] = [
        await ctx.attempt("hopeless", hopeless),
        await ctx.attempt("failing", failing),
        await ctx.attempt("double", double, 4),
        await ctx.attempt("block", block),
    ]
    return [answer.kind if isinstance(answer, Failed) else answer.value for answer in answers]


@flow
async def saga(ctx: Context, rounds: int) -> list[int]:
    """Takes back what it did, once to a checkpoint and then all of it."""
    done = ctx.step.options(undo=double, retries=40, backoff=QUICK)

    async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
        await done("loop", double, n)
        return Continue(n + 1) if n < rounds else Break(n)

    await done("first", double, 1)
    await ctx.loop("rounds", body, 0, keep=1, prune_every=1)
    try:
        async with ctx.checkpoint("here"):
            await asyncio.gather(done("left", double, 2), done("right", slow_double, 3))
            raise RollBack("try again", to="here")
    except RollBack:
        await done("second", double, 4)
    raise RollBack("all of it")


@step(retries=40, backoff=QUICK)
async def keep(value: int) -> None:
    raise Fatal(f"{value} cannot be taken back")


@flow
async def regretful(ctx: Context) -> None:
    """What it did last can be undone, what it did first cannot: a person must say that it is done."""
    await ctx.step.options(undo=keep)("first", double, 1)
    await ctx.step.options(undo=double)("second", double, 2)
    await ctx.step("third", hopeless)


@flow
async def picky(ctx: Context) -> int:
    """Fails when it hears something wrong."""
    word: int = (await ctx.receive("word")).body
    if word < 0:
        raise ValueError("a wrong word")
    return await ctx.step("use", double, word)


@flow
async def stubborn(ctx: Context) -> list[Any]:
    """Fails with its child, and is retried: what it had done in its other branch stays done, what was undone is not."""

    async def left() -> int:
        return await ctx.step("left", slow_double, 2)

    async def right() -> int:
        return int(await ctx.child(picky, key=f"{ctx.key}-child"))

    first = await ctx.step.options(undo=double)("first", double, 1)
    both = await ctx.join("both", {"left": left, "right": right})
    return [first, both["left"], both["right"], await ctx.step("last", double, 5)]


@flow
async def wanderer(ctx: Context) -> list[int]:
    """Hears a wrong word, and is sent back to where it heard it."""
    first = await ctx.step("first", double, 1)
    async with asyncio.TaskGroup() as group:
        aside = group.create_task(ctx.step("aside", slow_double, 4))
        word: int = (await ctx.receive("word")).body
        used = await ctx.step("use", double, word)
        await ctx.receive("end")
    return [first, used, aside.result()]


@flow
async def branches(ctx: Context) -> list[Any]:
    async def stumble() -> None:
        await ctx.step("stumble", failing)

    async def walk() -> int:
        await ctx.sleep("rest", 0.03)
        return await ctx.step("walk", double, 4)

    try:
        await ctx.join("both", {"walk": walk, "stumble": stumble})
    except JoinFailed as error:
        failed = sorted(error.errors)
    return [failed, *await ctx.race("quick", {"slow": lambda: ctx.sleep("slow", 3600), "walk": walk})]


@flow
async def mapper(ctx: Context) -> list[int]:
    return await ctx.map("all", lambda n: ctx.step("one", double, n), [1, 2, 3], concurrency=2)


@flow
async def dice(ctx: Context) -> int:
    """What it does next depends on recorded dice and recorded time."""
    for _ in range(2):
        await ctx.step(f"face {ctx.random.randrange(1_000_000)}", double, 1)
        await ctx.sleep(f"until {ctx.now().timestamp()}", 0.01)
    return ctx.uuid().version or 0


@flow
async def hasty(ctx: Context) -> str:
    """A step that may run at most twice: two deaths and its outcome is unknown."""
    try:
        await ctx.step.options(retries=0)("once", slow_double, 1)
    except StepFailed as error:
        return type(error).__name__
    return "done"


# ---- a raw machine -------------------------------------------------------------------------------------


@step(retries=40, backoff=QUICK, executor=QUEUE)
async def far_double(value: int, failures: int = 0) -> int:
    return await double.function(value, failures)


@step(retries=40, backoff=QUICK, executor=QUEUE, timeout=20.0)
def far_slow_double(value: int) -> int:
    return 2 * value


@step(once=True, unknown="raise", executor=QUEUE)
async def far_once() -> str:
    return "paid"


@step(retries=40, executor=QUEUE)
async def far_hopeless() -> None:
    raise Fatal("never")


@flow
async def queued(ctx: Context, rounds: int) -> list[Any]:
    """Steps of a queue, alone, side by side, beside others of the engine, withdrawn, hopeless, and once only."""
    found: list[Any] = [await ctx.step("first", far_double, 1, 1)]
    for n in range(rounds):
        both = await asyncio.gather(ctx.step("far", far_slow_double, n), ctx.step("near", double, n))
        found.append(sum(both))
    try:
        async with asyncio.timeout(0.05):
            await ctx.step("cut", far_double, 5)
    except TimeoutError:
        pass
    try:
        await ctx.step("hopeless", far_hopeless)
    except StepFailed as error:
        found.append(type(error).__name__)
    try:
        found.append(await ctx.step("pay", far_once))
    except OutcomeUnknown:
        found.append("unknown")
    return found


def earn(amount: int) -> int:
    return amount


class _Account(msgspec.Struct):
    goal: int = 0
    items: int = 0
    total: int = 0
    jobs: int = 0


class Ledger:
    """A workflow without a dialect: messages add up until there are `goal` of them.

    Each message is one item. `add` announces it, `work` asks an executor, `later` sets a timer, `boom` raises
    as long as the code is `broken`, `halt` stops for a person.
    """

    version = "1"
    parameters = b""
    limits = Limits()
    policy = Policy()
    subscriptions: tuple[Subscription, ...] = ()

    def __init__(self, name: str = "ledger") -> None:
        self.name = name
        self.broken = True

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        return _LedgerMachine(self, snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation()

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return encode(list(args))

    def decode_result(self, value: bytes) -> Any:
        return decode(value)


class Tally(Ledger):
    """Hears what ledgers announce."""

    subscriptions = (Subscription("added", "to"),)


class _LedgerMachine:
    def __init__(self, workflow: Ledger, snapshot: bytes | None) -> None:
        self._workflow = workflow
        self._state = _Account() if snapshot is None else msgspec.msgpack.decode(snapshot, type=_Account)

    def work(self, intent: bytes) -> object:
        return Work(earn, (3,), {}, int)

    def snapshot(self) -> bytes | None:
        return msgspec.msgpack.encode(self._state)

    def dispose(self) -> None:
        pass

    def deliver(self, event: Event, moment: Moment) -> Decision:
        state = self._state
        match event:
            case Started(input=value):
                (state.goal,) = decode(value)
                return Decision(open=(Wait("mail"),))
            case ReceiptArrived(receipt=receipt):
                assert receipt.status in ("ok", "unknown"), receipt
                gained = decode(receipt.value) if receipt.value is not None else 100
                return self._item(gained)
            case Message(name="add" | "added", body=body):
                return self._add(event.name, decode(body))
            case Message(name="work"):
                state.jobs += 1
                return Decision(open=(Call(f"job#{state.jobs}", executor="thread", deliveries_max=1000),))
            case Message(name="later"):
                state.jobs += 1
                return Decision(open=(Timer(f"later#{state.jobs}", moment.at + SECOND // 50),))
            case Message(name="boom"):
                if self._workflow.broken:
                    raise ZeroDivisionError("the code is broken")
                return self._item(1000)
            case Message(name="halt"):
                return Decision(stuck=Stuck(Failure("Halt", "a person must look"), "desk"))
            case Retried() | Settled():
                return self._item(10_000)
            case _:
                return Decision()

    def _add(self, name: str, value: Any) -> Decision:
        if name == "added":
            return self._item(value["n"])
        fact = Fact("added", encode({"to": value["to"], "n": value["n"]}))
        decision = self._item(value["n"])
        return msgspec.structs.replace(decision, announce=(fact,), reply=Reply(value=encode(self._state.total)))

    def _item(self, gained: int) -> Decision:
        state = self._state
        state.items += 1
        state.total += gained
        publish = (("total", encode(state.total)),)
        if state.items < state.goal:
            return Decision(publish=publish)
        return Decision(publish=publish, outcome=Outcome(Status.COMPLETED, encode(state.total)))


# ---- cells ---------------------------------------------------------------------------------------------


class Bought(Record, name="sim/Bought@1"):
    order: str
    item: str


class Paid(Record, name="sim/Paid@1"):
    order: str
    item: str


class Shipped(Record, name="sim/Shipped@1"):
    order: str


class Pay(Effect, name="sim/pay@1", timeout=SECOND // 4):
    order: str
    attempt: Nat

    class Receipt(Record):
        order: str


class Pack(Effect, name="sim/pack@1", once=True):
    order: str

    class Receipt(Record):
        order: str


class Purchase(Record, name="sim/Purchase@1"):
    item: str
    attempt: Nat = 1


@cell("sim/purchase@1", key="order", effects=[Pay, Alarm])
def purchase(state: Purchase | None, event: Bought | Shipped | ReceiptOf[Pay | Alarm], ctx: CellContext) -> Next:
    """Pays, trying again after a while; tells the stock; and is gone when it has shipped."""
    match event:
        case Bought(item=item):
            return Next(Purchase(item), effects=[Pay(ctx.key, 1)])
        case Shipped() | _ if state is None or isinstance(event, Shipped):
            return Next(None)
        case ReceiptOf(effect=effect, ok=True) if effect is Pay:
            assert event.value.order == ctx.key
            return Next(state, events=[Paid(ctx.key, state.item)])
        case ReceiptOf(effect=effect) if effect is Pay:
            again = Purchase(state.item, state.attempt + 1)
            return Next(again, effects=[Alarm(after=SECOND // 100 * min(state.attempt, 5))])
        case _:
            return Next(state, effects=[Pay(ctx.key, state.attempt)])


class Stock(Record, name="sim/Stock@1"):
    packing: list[str] = []  # noqa: RUF012  # a struct copies it
    sold: list[str] = []  # noqa: RUF012


@cell("sim/stock@1", key="item", effects=[Pack])
def stock(state: Stock | None, event: Paid | ReceiptOf[Pack]) -> Next:
    """Packs what was paid. Nobody knows whether a parcel was packed when the process died: it is sent all the same."""
    before = state or Stock()
    if isinstance(event, Paid):
        return Next(Stock([*before.packing, event.order], before.sold), effects=[Pack(event.order)])
    order = event.params.order
    left = [each for each in before.packing if each != order]
    return Next(Stock(left, [*before.sold, order]), events=[Shipped(order)])


class Opened(Record, name="sim/Opened@1"):
    key: str
    close: bool = False


class Session(Record, name="sim/Session@1"):
    since: Time


@cell("sim/session@1", key="key", effects=[Alarm, Pay])
def session(state: Session | None, event: Opened | ReceiptOf[Alarm | Pay], ctx: CellContext) -> Next:
    """Is closed while it waits, or closes by itself: what it had open is withdrawn."""
    if isinstance(event, Opened) and not event.close:
        return Next(
            Session(ctx.now), effects=[Alarm(after=SECOND // 5), Alarm(at=ctx.now + 3600 * SECOND), Pay("s", 9)]
        )
    if isinstance(event, ReceiptOf) and event.effect is Pay and state is not None:
        return Next(state)
    return Next(None)


class Fragile(Record, name="sim/Fragile@1"):
    key: str


class Code:
    """What a person mends."""

    broken = True


@cell("sim/glass@1", key="key", effects=[])
def glass(state: Fragile | None, event: Fragile) -> Next:
    """Its very first event is poison, as long as the code is broken."""
    if Code.broken:
        raise ZeroDivisionError("the code is broken")
    return Next(None)


SHOP = manifest(purchase, stock, session, glass)


class Ticked(Record, name="sim/Ticked@1"):
    key: str


class Count(Record, name="sim/Count@1"):
    ticks: Nat
    paid: bool = False


class Score(Record, name="sim/Score@1"):
    paid: bool
    ticks: Nat
    since: str


TICKS = 6


@cell("sim/counter@1", key="key", effects=[Pay, Alarm])
def counter(state: Count | None, event: Ticked | ReceiptOf[Pay | Alarm], ctx: CellContext) -> Next:
    """Counts, and pays; ends when it has done both. What it has open may be answered to the next definition."""
    before = state or Count(0)
    match event:
        case Ticked():
            now = Count(before.ticks + 1, before.paid)
            effects = [Pay(ctx.key, 9), Alarm(after=SECOND // 20)] if state is None else []
            return Next(now if now.ticks < TICKS or not now.paid else None, effects=effects)
        case ReceiptOf(effect=effect, ok=True) if effect is Pay:
            return Next(Count(before.ticks, True) if before.ticks < TICKS else None)
        case ReceiptOf(effect=effect) if effect is Pay:
            return Next(before, effects=[Pay(ctx.key, 9)])
        case _:
            return Next(before)


def scored(count: Count) -> Score:
    return Score(count.paid, count.ticks, f"{count.ticks} ticks")


@cell("sim/counter@2", key="key", effects=[Pay, Alarm], migrate=scored)
def score(state: Score | None, event: Ticked | ReceiptOf[Pay | Alarm], ctx: CellContext) -> Next:
    """The same with another state: whatever was counted before must be there."""
    before = state or Score(False, 0, "")
    match event:
        case Ticked():
            now = Score(before.paid, before.ticks + 1, before.since)
            effects = [Pay(ctx.key, 9), Alarm(after=SECOND // 20)] if state is None else []
            return Next(now if now.ticks < TICKS or not now.paid else None, effects=effects)
        case ReceiptOf(effect=effect, ok=True) if effect is Pay:
            return Next(Score(True, before.ticks, before.since) if before.ticks < TICKS else None)
        case ReceiptOf(effect=effect) if effect is Pay:
            return Next(before, effects=[Pay(ctx.key, 9)])
        case _:
            return Next(before)


REFORMED = manifest(score)


def _before_reform() -> list[Any]:
    """The first manifest is in force, and the code of the next one is there."""
    bound = manifest(counter)
    bound.earlier += REFORMED.cells
    return [bound]


@effect_handler(Pay)
async def pay(params: Pay, call: CellCall) -> Pay.Receipt:
    if params.attempt <= 2:
        raise ConnectionError(f"attempt {params.attempt}")
    return Pay.Receipt(params.order)


@effect_handler(Pack)
def pack(params: Pack, call: CellCall) -> Pack.Receipt:
    return Pack.Receipt(params.order)


class Claimed(Record, name="sim/Claimed@1"):
    key: str


class Withdrawn(Record, name="sim/Withdrawn@1"):
    key: str


class Concluded(Record, name="sim/Concluded@1"):
    key: str


class Approve(Effect, name="sim/approve@1", outside="judge"):
    key: str
    time: Nat

    class Receipt(Record):
        word: str


class Quote(Effect, name="sim/quote@1", outside="broker", timeout=SECOND // 4):
    key: str
    time: Nat

    class Receipt(Record):
        word: str


class Claim(Record, name="sim/Claim@1"):
    asked: Nat
    words: list[str] = []  # noqa: RUF012  # a struct copies it


@cell("sim/claim@1", key="key", effects=[Approve, Quote])
def claim(
    state: Claim | None, event: Claimed | Withdrawn | ReceiptOf[Approve | Quote] | Rejected, ctx: CellContext
) -> Next:
    """Asks two people outside, and asks again who does not answer in time or cannot be understood."""
    if isinstance(event, Claimed):
        return Next(Claim(2), effects=[Approve(ctx.key, 1), Quote(ctx.key, 2)])
    if state is None or isinstance(event, Withdrawn):
        return Next(None)
    if isinstance(event, ReceiptOf) and event.value is not None:
        word = event.value.word
        assert word.startswith(event.intent) and event.executor == TRUSTED[event.effect.__perdure_name__], word
        words = [*state.words, word]
        return Next(None, events=[Concluded(ctx.key)]) if len(words) == 2 else Next(Claim(state.asked, words))
    name = event.effect if isinstance(event, Rejected) else event.effect.__perdure_name__
    again = Approve if name == Approve.__perdure_name__ else Quote
    return Next(Claim(state.asked + 1, state.words), effects=[again(ctx.key, state.asked + 1)])


class Cases(Record, name="sim/Cases@1"):
    concluded: list[str] = []  # noqa: RUF012  # a struct copies it


@cell("sim/court@1", effects=[])
def court(state: Cases | None, event: Concluded) -> Next:
    return Next(Cases(sorted([*(state or Cases()).concluded, event.key])))


TRUSTED = {"sim/approve@1": "judge", "sim/quote@1": "broker"}
SECRETS = {name: Key.hmac(f"{name}-1", name.encode() * 8) for name in TRUSTED.values()}
KEYS = Keyring({name: [key] for name, key in SECRETS.items()})
FORGER = {name: Key.hmac(f"{name}-1", b"somebody else's." * 2) for name in SECRETS}


# ---- graphs --------------------------------------------------------------------------------------------


@tool(writes=True, retries=9, backoff=QUICK)
async def stamp(number: int) -> int:
    return 10 * number


WORN_OUT = "worn out"
"""Of a call that crashes have met as often as it may be delivered."""


def _worn_out(result: Any) -> bool:
    assert result.outcome == "completed" or result.reason == "unknown", result
    return bool(result.outcome != "completed")


async def agent(node: Node) -> Any:
    """A planner that waits for what it submitted, under one place; a loop that uses a tool; a sum."""
    match node.name:
        case "plan":
            names = await node.submit([{"name": f"part{number}"} for number in range(3)])
            found = await node.results(names)
            return WORN_OUT if any(_worn_out(each) for each in found.values()) else sum(x.value for x in found.values())
        case "again":
            try:
                stamped = await node.use("stamp", number=node.iteration + 1)
            except OutcomeUnknown:
                return Break(WORN_OUT)
            thought = await node.step("think", lambda: stamped + 1)
            return Break(thought + (node.previous or 0)) if node.iteration == 2 else thought + (node.previous or 0)
        case "all":
            plan, again = node.inputs["plan"], node.inputs["again"]
            worn_out = _worn_out(plan) or _worn_out(again) or WORN_OUT in (plan.value, again.value)
            return WORN_OUT if worn_out else plan.value + again.value
        case _:
            return int(node.name[-1])


def agents() -> Graph:
    graph = Graph("agents", runner=agent, tools=[stamp], limits=GraphLimits(running=1), rest_after=0.05)
    graph.node("plan")
    graph.loop("again", max_iters=5)
    graph.node("all", after=["plan", "again"], needs="all_terminal")
    graph.reduce("end", "collect", after=["all"], needs="all_terminal")
    return graph


def _agents(world: Simulation) -> Expected:
    world.start(AGENTS, key="a")
    return {("agents", "a"): _one_of({"all": 3 + 63}, {"all": WORN_OUT}, {})}


AGENTS = agents()

# ---- workloads -----------------------------------------------------------------------------------------


class Workload(NamedTuple):
    name: str
    workflows: Callable[[], list[Any]]
    begin: Callable[[Simulation], Expected]
    handlers: tuple[Any, ...] = ()
    verify: Verify = unsigned
    workers: int = 0  # of the queue `work`

    def simulation(self, *, disk: Disk | None = None, **options: Any) -> Simulation:
        """A simulation that has what this workload needs. On a file the engine itself serves the queue."""
        options |= {"handlers": self.handlers, "verify": self.verify}
        if self.workers and disk is None:
            return WithWorkers(self.workflows(), workers=self.workers, **options)
        return Simulation(self.workflows(), disk=disk, **options)


def _orders(world: Simulation) -> Expected:
    world.start(order, 5, key="a")
    world.start(hasty, key="h")
    return {("order", "a"): 22, ("hasty", "h"): _one_of("done", "OutcomeUnknown")}


def _fans(world: Simulation) -> Expected:
    world.start(fan, key="a")
    return {("fan", "a"): [2, 4, 6, 0, 0, 2, 4]}


def _talks(world: Simulation) -> Expected:
    handle = world.start(talk, 3, key="a")
    for n in range(3):
        world.at(world.dice.random() * 0.3, partial(handle.send, "word", n, id=f"w{n}"))
    return {("talk", "a"): [0, 1, 2]}


def _cuts(world: Simulation) -> Expected:
    handle = world.start(cut, 4, key="a")
    for n in range(4):
        world.at(world.dice.random() * 0.2, partial(handle.send, "word", n, id=f"w{n}"))
    world.at(0.3, lambda: handle.send("word", 4, id="w4"))
    return {("cut", "a"): _part_of(range(5), 4)}


def _loops(world: Simulation) -> Expected:
    world.start(looper, 5, key="a")
    return {("looper", "a"): 7}


def _ears(world: Simulation) -> Expected:
    handle = world.start(listener, 3, key="b")
    for n in range(3):
        world.at(world.dice.random() * 0.3, partial(handle.send, "word", n, id=f"w{n}"))
    return {("listener", "b"): [0, 1, 2]}


def _families(world: Simulation) -> Expected:
    world.start(family, key="a")
    return {
        ("family", "a"): [6, "failed", "a-detached", "work", 14],
        ("leaf", "a-detached"): 10,
        ("sleeper", "a/race/nap/sleeper"): "cancelled",
    }


def _games(world: Simulation) -> Expected:
    def second() -> None:
        world.start(ping, "p", 3, key="q")

    world.start(pong, "q", key="p", after=second)
    return {("ping", "q"): 6, ("pong", "p"): 6}


def _cancels(world: Simulation) -> Expected:
    handle = world.start(patient, key="a")
    world.at(world.dice.random() * 0.3, handle.cancel)
    again = world.start(leaf, 1, key="b")
    world.at(0.1 + world.dice.random() * 0.2, lambda: _again(world))
    del again
    return {("patient", "a"): "cancelled", ("leaf", "b"): 2}


def _again(world: Simulation) -> None:
    """The same key once more: the same instance while it runs, a new generation after its end."""
    world.start(leaf, 1, key="b", reuse="always")


def _branches(world: Simulation) -> Expected:
    world.start(branches, key="a")
    return {("branches", "a"): [["stumble"], "walk", 8]}


def _maps(world: Simulation) -> Expected:
    world.start(mapper, key="a")
    world.start(dice, key="d")
    return {("mapper", "a"): [2, 4, 6], ("dice", "d"): 4}


def _ledgers(world: Simulation) -> Expected:
    ledger, tally = world.workflows.newest("ledger"), world.workflows.newest("tally")
    assert ledger is not None and tally is not None
    ledger.broken = world.dice.random() < 0.7
    words = [
        ("add", {"to": "t", "n": 1}),
        ("add", {"to": "t", "n": 2}),
        ("work", 0),
        ("work", 0),
        ("later", 0),
    ]
    words += [("boom", 0)] if world.dice.random() < 0.6 else []
    words += [("halt", 0)] if world.dice.random() < 0.6 else []
    total = {"work": 0, "later": 100, "boom": 1000, "halt": 10_000}
    sums = 9 + sum(total.get(name, 0) for name, _ in words)
    world.auditor.may_break.add("ledger")

    def talk_to_it() -> None:
        handle = world.start(ledger, len(words), key="a")
        for n, (name, body) in enumerate(words):
            early = 0.05 if name in ("boom", "halt") else 0.5
            world.at(
                world.dice.random() * early,
                partial(handle.send, name, body, id=f"{name}{n}"),
            )

    world.start(tally, 2, key="t", after=talk_to_it)
    world.at(0.6, lambda: _operate(world, ledger))
    return {("ledger", "a"): sums, ("tally", "t"): 3}


def _operate(world: Simulation, ledger: Ledger) -> None:
    """A person looks in from time to time: mends the code, tries again, or answers by hand."""
    ledger.broken = False
    for head in list(world.database.heads.values()):
        if head.status == Status.STUCK:
            address = (head.workflow, head.key)
            asked = [r for r in world.requests if r.settled is None and isinstance(r.event, Retried | Settled)]
            if not asked:
                kept = world.auditor.kept(head.id)
                if kept or world.dice.random() < 0.5:
                    world.retry(*address)
                else:
                    world.settle(*address, "desk", 0)
    world.at(0.1, lambda: _operate(world, ledger))


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _part_of(values: Any, least: int) -> Callable[[Any], bool]:
    return lambda found: (
        isinstance(found, list) and len(set(found)) == len(found) >= least and set(found) <= set(values)
    )


def _desks(world: Simulation) -> Expected:
    handle = world.start(desk, 4, key="a")
    for n in range(4):
        world.at(world.dice.random() * 0.3, partial(handle.send, "word", n, id=f"w{n}"))

    def answered(value: Any) -> bool:
        responses = [world.published(Address("desk", "a"), response_name(f"w{n}")) for n in range(4)]
        return value == [0, 1, 2, 3] and sorted(responses) == [1, 2, 3, 4]

    return {("desk", "a"): answered}


def _naps(world: Simulation) -> Expected:
    world.start(napper, key="a")
    _wake(world)
    return {("napper", "a"): ["nap", "nap", "nap"]}


def _wake(world: Simulation) -> None:
    """Somebody shakes it again and again: only sleeps hear that."""
    head = next(iter(world.database.heads.values()), None)
    if head is None or head.status not in TERMINAL:
        if head is not None:
            world.request(Address("napper", "a"), Woken(), "wake")
        world.at(0.1 + world.dice.random() * 0.1, lambda: _wake(world))


def _pays(world: Simulation) -> Expected:
    world.start(payer, key="a")
    world.start(prudent, key="b")
    world.at(0.4, lambda: _settle(world, 2))

    def paid_once(value: Any) -> bool:
        executed = Counter(each.key for each in world.auditor.executions if each.location.endswith(("pay", "pay#2")))
        known = all(each in (6, "settled") for each in value)
        return known and all(times == 1 for times in executed.values())

    return {("payer", "a"): paid_once, ("prudent", "b"): _one_of(6, "looked up")}


def _settle(world: Simulation, instances: int) -> None:
    """A person answers for what nobody else knows."""
    for head in list(world.database.heads.values()):
        pending = [r for r in world.requests if r.settled is None and isinstance(r.event, Settled)]
        if head.status == Status.STUCK and not pending:
            stuck = world.auditor.stuck(head.id)
            world.settle(head.workflow, head.key, stuck.location if stuck is not None else "", "settled")
    ended = [head for head in world.database.heads.values() if head.status in TERMINAL]
    if len(ended) < instances:
        world.at(0.1, lambda: _settle(world, instances))


def _sketches(world: Simulation) -> Expected:
    world.start(sketch, key="a")
    return {("sketch", "a"): 64}


def _sagas(world: Simulation) -> Expected:
    world.start(saga, 3, key="a")
    return {("saga", "a"): "failed"}


def _comebacks(world: Simulation) -> Expected:
    world.start(stubborn, key="a")
    world.start(wanderer, key="b")
    world.watched = True
    _help(world, set())

    def left_was_done_once(value: Any) -> bool:
        done = Counter(call.location for call in world.auditor.calls.values() if call.answered)
        return value == [2, 4, 14, 10] and done["both/left/left"] == 1 and done["last"] == 1 and done["first"] >= 3

    return {("stubborn", "a"): left_was_done_once, ("wanderer", "b"): [2, 14, 8], ("picky", "a-child"): 14}


def _help(world: Simulation, done: set[str]) -> None:
    """A person looks now and then, and does the next thing once the one before has shown."""
    child, parent, other = Address("picky", "a-child"), Address("stubborn", "a"), Address("wanderer", "b")

    def once(name: str, action: Callable[[], object]) -> None:
        if name not in done:
            done.add(name)
            action()

    stubborn_now = _seen(world, parent)
    if stubborn_now is not None and stubborn_now.status is Status.FAILED and not world.asks("retry"):
        again = world.behind(parent).retry()
        assert again is not None
        world.request(parent, again, "retry")
    child_now = _seen(world, child)
    if child_now is not None and _waits(child_now, "word"):
        generation = child_now.generation
        once(f"{generation}", lambda: world.send(child, "word", -1 if generation == 1 else 7, f"w{generation}"))
    wanderer_now = _seen(world, other)
    if wanderer_now is not None and not wanderer_now.rewound:
        if _waits(wanderer_now, "word"):
            once("wrong", lambda: world.send(other, "word", 1, "w"))
        if _waits(wanderer_now, "end") and not world.asks("rewind"):
            back = world.behind(other)
            point = back.point_of("receive:word")
            assert point is not None
            world.request(other, back.rewind("receive:word", point, force=True), "rewind")
    elif wanderer_now is not None:
        if _waits(wanderer_now, "word"):
            once("right", lambda: world.send(other, "word", 7, "w2"))
        if _waits(wanderer_now, "end"):
            once("end", lambda: world.send(other, "end", None, "e"))
    ended = [head.workflow for head in world.database.heads.values() if head.status == Status.COMPLETED]
    world.watched = not {"stubborn", "wanderer"} <= set(ended)
    if world.watched:
        world.at(0.05 + world.dice.random() * 0.1, lambda: _help(world, done))


def _seen(world: Simulation, address: Address) -> Instance | None:
    return world.auditor.live(world.database.names.get((address.workflow, address.key), 0))


def _waits(instance: Instance, name: str) -> bool:
    return (name,) in [intent.effect.names for intent in instance.open.values() if type(intent.effect) is Wait]


def _regrets(world: Simulation) -> Expected:
    world.start(regretful, key="a")
    world.at(0.2, lambda: _settle(world, 1))
    return {("regretful", "a"): "failed"}


def _forks(world: Simulation) -> Expected:
    """A person forks what has completed, and forks the fork: each goes on from the past of the one before."""
    world.start(looper, 9, key="a")
    world.watched = True
    _fork(world, ["a", "b", "c"])
    return {("looper", key): 11 for key in "abc"}


def _fork(world: Simulation, keys: list[str]) -> None:
    source, *rest = keys
    world.watched = bool(rest)
    if not rest:
        return
    id = world.database.names.get(("looper", source), 0)
    if id and world.database.heads[id].status == Status.COMPLETED:
        behind = world.behind(Address("looper", source))
        point = behind.point_of("rounds/~4")
        assert point is not None
        forked = behind.fork(rest[0], "rounds/~4", point, {})
        start = Started("looper", rest[0], behind.input, world.clock.entropy(16), looper.version, forked=forked)
        world.request(Address("looper", rest[0]), start, "fork")
        keys = rest
    world.at(0.05 + world.dice.random() * 0.1, lambda: _fork(world, keys))


def _shops(world: Simulation) -> Expected:
    """Orders of two kinds of cells that talk to each other; sessions that end early; one order that comes twice."""
    Code.broken = world.dice.random() < 0.7
    world.auditor.may_break.add("sim/glass")
    for n in range(3):
        bought = partial(world.announce, Bought(f"o{n}", "book" if n else "pen"), id=f"b{n}", correlation=f"c{n}")
        world.at(world.dice.random() * 0.2, bought)
    for n, close in enumerate((False, True, False, True)):
        world.at(world.dice.random() * 0.4, partial(world.announce, Opened("s", close), id=f"s{n}"))
    world.at(world.dice.random() * 0.1, partial(world.announce, Fragile("g"), id="g"))
    world.watched = True
    _attend(world, set())

    def all_were_sold(value: Any) -> bool:
        sold = [state_of(world, stock.name, item) for item in ("book", "pen")]
        return sold == [Stock([], ["o1", "o2"]), Stock([], ["o0", "o0"])] or sold == [
            Stock([], ["o2", "o1"]),
            Stock([], ["o0", "o0"]),
        ]

    ends: Expected = {("sim/purchase", f"o{n}"): None for n in (1, 2)}
    return {**ends, ("sim/purchase", "o0"): all_were_sold, ("sim/session", "s"): None, ("sim/glass", "g"): None}


def _attend(world: Simulation, done: set[str]) -> None:
    """A person mends the code of what is stuck, and orders again what was delivered."""
    heads = world.database.heads.values()
    if any(head.workflow == "sim/glass" and head.status == Status.STUCK for head in heads) and not world.asks("retry"):
        Code.broken = False
        world.retry("sim/glass", "g")
    ended = [head.key for head in heads if head.workflow in ("sim/purchase", "sim/glass") and head.status in TERMINAL]
    if "o0" in ended and "again" not in done:
        done.add("again")
        world.announce(Bought("o0", "pen"), id="again")
    world.watched = len(ended) < 5
    if world.watched:
        world.at(0.05 + world.dice.random() * 0.1, lambda: _attend(world, done))


def _reforms(world: Simulation) -> Expected:
    """Cells count while the manifest changes under them: no tick is lost, and none counts twice."""
    keys = ("a", "b", "c")
    for key in keys:
        for n in range(TICKS):
            world.at(world.dice.random() * 0.5, partial(world.announce, Ticked(key), id=f"{key}{n}"))
    order = {"manifest": REFORMED.manifest.bytes, "mode": world.dice.choice(("pinned", "migrate", "strict"))}

    def apply() -> None:
        world.request(RULER, Message("sys/apply", encode(order), "apply"), "apply")

    world.at(world.dice.random() * 0.4, apply)
    world.watched = True
    _wait_for_ends(world, "sim/counter", len(keys))
    return {("sim/counter", key): None for key in keys}


def _claims(world: Simulation) -> Expected:
    """Cells ask people outside, and others answer as well. Each intent hears one receipt, of who was asked."""
    keys = ("a", "b", "c")
    for key in keys:
        world.at(world.dice.random() * 0.2, partial(world.announce, Claimed(key), id=f"claim {key}"))
    world.at(world.dice.random() * 0.6, partial(world.announce, Withdrawn("c"), id="withdraw c"))
    world.watched = True
    _people(world, {})

    def each_concluded_once(value: Any) -> bool:
        cases = state_of(world, court.name)
        return cases is not None and cases.concluded in (["a", "b"], ["a", "b", "c"])

    return {("sim/claim", key): each_concluded_once if key == "a" else None for key in keys}


def _people(world: Simulation, asked: dict[bytes, tuple[int, OpenEffect]]) -> None:
    """They look now and then, at what is open and at what was, and say something about it, or nothing."""
    open = set()
    for instance in world.auditor.open_instances():
        for intent in instance.open.values():
            outside = outside_of(intent.effect)
            if outside is not None:
                asked[intent.id] = (instance.id, _as_asked(instance.address, intent.id, outside))
                open.add(intent.id)
    for id, (asker, effect) in list(asked.items()):
        if id in open or world.dice.random() < 0.2:
            for answer in world.dice.choice(ANSWERS)(world, effect):
                world.counts["answers from outside"] += 1
                world.counts["late answers from outside"] += id not in open
                if answer.by is None:
                    world.post_receipt(asker, id, answer)  # no client of ours does that
                else:
                    world.request(asker, ReceiptArrived(id, answer), "answer")
    heads = [head for head in world.database.heads.values() if head.workflow == "sim/claim"]
    coming = world.clock.steady < SECOND or len({head.key for head in heads}) < 3 or world.database.inbox
    world.watched = bool(coming) or any(head.status not in TERMINAL for head in heads)
    if world.watched:
        world.at(0.03 + world.dice.random() * 0.1, lambda: _people(world, asked))


def _as_asked(address: Address, intent: bytes, outside: Outside) -> OpenEffect:
    return OpenEffect(
        intent=intent.hex(),
        effect=outside.effect,
        executor=outside.executor,
        params=outside.params,
        params_hash="",
        workflow=address.workflow,
        key=address.key,
        entry=outside.entry,
        issuer=outside.issuer,
    )


def _said(effect: OpenEffect, word: Any, *, key: Key | None = None, executor: str = "") -> Receipt:
    value = {"word": word}
    signature = sign(effect, key or SECRETS[effect.executor], ok=value)
    return said_outside(executor or effect.executor, ok=value, signature=signature)


def _true(world: Simulation, effect: OpenEffect) -> list[Receipt]:
    return [_said(effect, f"{effect.intent} yes")]


def _twice(world: Simulation, effect: OpenEffect) -> list[Receipt]:
    """Once of two minds, and once the same again."""
    yes, no = (_said(effect, f"{effect.intent} {word}") for word in ("yes", "no"))
    return [yes, no, yes]


def _nothing(world: Simulation, effect: OpenEffect) -> list[Receipt]:
    return []


def _unreadable(world: Simulation, effect: OpenEffect) -> list[Receipt]:
    return [_said(effect, 7)]


def _forged(world: Simulation, effect: OpenEffect) -> list[Receipt]:
    """With another key, by another executor with a good key of its own, of another intent, unsigned, by nobody."""
    world.counts["forged answers from outside"] += 5
    other = "broker" if effect.executor == "judge" else "judge"
    stolen = msgspec.structs.replace(effect, intent="00" * 32)
    value = {"word": "forged"}
    return [
        _said(effect, "forged", key=FORGER[effect.executor]),
        _said(msgspec.structs.replace(effect, executor=other), "forged", executor=other),
        said_outside(effect.executor, ok=value, signature=sign(stolen, SECRETS[effect.executor], ok=value)),
        said_outside(effect.executor, ok=value),
        Receipt("ok", encode(value)),
    ]


ANSWERS = (_true, _true, _twice, _nothing, _unreadable, _forged, _forged)


def _wait_for_ends(world: Simulation, workflow: str, count: int) -> None:
    heads = world.database.heads.values()
    ended = [head for head in heads if head.workflow == workflow and head.status in TERMINAL]
    world.watched = len(ended) < count
    if world.watched:
        world.at(0.05, lambda: _wait_for_ends(world, workflow, count))


def _queues(world: Simulation) -> Expected:
    expected: Expected = {}
    for key in "ab":
        world.start(queued, 2, key=key)
        endings = [[2, 0, 4, "StepFailed", end] for end in ("paid", "unknown")]
        endings += [[2, 0, 4, "OutcomeUnknown", end] for end in ("paid", "unknown")]  # too many workers died of it
        expected["queued", key] = _one_of(*endings)
    gone = world.start(queued, 9, key="c")  # cancelled, or completed before that
    world.at(world.dice.random() * 2, gone.cancel)
    return expected


def _tries(world: Simulation) -> Expected:
    world.start(tries, key="a")
    kinds = ("exhausted", "unknown")  # too many crashes use up its few attempts as well
    return {("tries", "a"): _one_of(*(["fatal", kind, 8, "fatal"] for kind in kinds))}


WORKLOADS: tuple[Workload, ...] = (
    Workload("orders", lambda: [order, hasty], _orders),
    Workload("fans", lambda: [fan], _fans),
    Workload("talks", lambda: [talk], _talks),
    Workload("cuts", lambda: [cut], _cuts),
    Workload("loops", lambda: [looper], _loops),
    Workload("ears", lambda: [listener], _ears),
    Workload("families", lambda: [family, leaf, sleeper], _families),
    Workload("games", lambda: [ping, pong], _games),
    Workload("cancels", lambda: [patient, leaf], _cancels),
    Workload("branches", lambda: [branches], _branches),
    Workload("maps", lambda: [mapper, dice], _maps),
    Workload("desks", lambda: [desk], _desks),
    Workload("naps", lambda: [napper], _naps),
    Workload("pays", lambda: [payer, prudent], _pays),
    Workload("sketches", lambda: [sketch], _sketches),
    Workload("tries", lambda: [tries], _tries),
    Workload("sagas", lambda: [saga], _sagas),
    Workload("regrets", lambda: [regretful], _regrets),
    Workload("forks", lambda: [looper], _forks),
    Workload("comebacks", lambda: [stubborn, picky, wanderer], _comebacks),
    Workload("ledgers", lambda: [Ledger("ledger"), Tally("tally")], _ledgers),
    Workload("shops", lambda: [SHOP], _shops, (pay, pack)),
    Workload("reforms", _before_reform, _reforms, (pay,)),
    Workload("claims", lambda: [manifest(claim, court)], _claims, verify=KEYS.judge),
    Workload("queues", lambda: [queued], _queues, workers=3),
    Workload("agents", lambda: [AGENTS], _agents),
)


def verdict(expected: Any, outcome: Outcome | None, decoded: Callable[[bytes], Any]) -> str:
    """What is wrong with an outcome, or an empty text."""
    if outcome is None:
        return "has no outcome"
    if isinstance(expected, str) and expected in (Status.CANCELLED, Status.FAILED):
        return "" if outcome.status == expected else f"{outcome.status} instead of {expected}"
    if outcome.status is not Status.COMPLETED:
        return f"{outcome.status}: {outcome.error}"
    value = decoded(outcome.value) if outcome.value is not None else None
    good = expected(value) if callable(expected) else value == expected
    return "" if good else f"ended with {value!r}" + ("" if callable(expected) else f" instead of {expected!r}")
