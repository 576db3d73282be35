"""One small flow for each group of operations, with a crash before and after everything that it does durably.

Each runs hot, and evicted after every entry, in memory and on a SQLite file. What its steps do outside is kept by
idempotency key, so it must look the same after any crash.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import Backoff, Break, Context, Continue, Failed, Fatal, Ok, RollBack, step_info
from perdure.testing import World, crash_test
from perdure.testing.crashes import Schedule, Search, WorkflowTrial
from perdure.testing.disks import Disk
from perdure.testing.faults import Faults
from perdure.testing.simulation import Simulation, quiet_log
from tests.disks import OnBoth, held, sqlite_disk, take_overs_of
from tests.simulation.sim import check
from tests.simulation.workloads import WORKLOADS
from tests.stages import LONG

OUTSIDE: dict[str, str] = {}
QUICK = Backoff(base=0.01)


async def note(text: str) -> str:
    """An idempotent side effect."""
    about = step_info()
    OUTSIDE[f"{about.instance} {about.location} {about.idempotency_key}"] = text
    return text


def note_in_a_thread(text: str) -> None:
    about = step_info()
    OUTSIDE[f"{about.instance} {about.location} {about.idempotency_key}"] = text


async def flaky(text: str) -> str:
    if step_info().attempt < 3:
        raise ConnectionError(f"attempt {step_info().attempt}")
    return await note(text)


async def fatal() -> None:
    raise Fatal("never")


async def undone(text: str) -> None:
    await note(f"undo {text}")


@perdure.flow
async def steps(ctx: Context) -> list[Any]:
    """In order, the same name again, a void step, a sync step."""
    first = await ctx.step("note", note, "a")
    await ctx.step("thread", note_in_a_thread, "b")
    return [first, await ctx.step("note", note, "c")]


@perdure.flow
async def retries(ctx: Context) -> str:
    step = ctx.step.options(retries=4, backoff=QUICK)
    try:
        await ctx.step.options(retries=1, backoff=QUICK)("hopeless", flaky, "x")
    except perdure.StepFailed as failed:
        return await step("flaky", flaky, str(failed.attempts))
    return "?"


async def slow_at_first() -> str:
    if step_info().attempt == 1:
        await asyncio.sleep(60)
    return await note("in time")


@perdure.flow
async def timeouts(ctx: Context) -> list[Any]:
    """A timeout that ends the step, and one that is tried again."""
    step = ctx.step.options(timeout=5, retries=2, backoff=QUICK)
    try:
        await step("slow", slow_at_first)
    except perdure.StepTimeout as timeout:
        return [timeout.attempts, await step.options(retry_on_timeout=True)("again", slow_at_first)]
    return []


@perdure.flow
async def attempts(ctx: Context) -> list[Any]:
    async def block(ctx: Context) -> str:
        await ctx.step("in a block", note, "a")
        await ctx.step("fatal", fatal)
        return "?"

    answers = [
        await ctx.attempt("fatal", fatal),
        await ctx.attempt("note", note, "b"),
        await ctx.attempt("block", block),
    ]
    return [answer.kind if isinstance(answer, Failed) else answer.value for answer in answers]


@perdure.flow
async def loops(ctx: Context) -> int:
    async def body(ctx: Context, state: int) -> Continue[int] | Break[int]:
        await ctx.step("note", note, str(state))
        return Break(state) if state == 4 else Continue(state + 1)

    return await ctx.loop("rounds", body, 0, keep=1, prune_every=2)


@perdure.flow
async def nested(ctx: Context) -> list[Any]:
    """A loop, a join and a race in every iteration of a loop that is pruned."""

    async def inner(ctx: Context, state: int) -> Continue[int] | Break[int]:
        await ctx.step("note", note, str(state))
        return Break(state) if state == 1 else Continue(state + 1)

    async def body(ctx: Context, state: list[Any]) -> Continue[list[Any]] | Break[list[Any]]:
        both = await ctx.join(
            "both",
            {"loop": lambda: ctx.loop("inner", inner, 0, keep=1, prune_every=1), "nap": lambda: ctx.sleep("nap", 1)},
        )
        winner, _ = await ctx.race("race", {"a": lambda: ctx.sleep("a", 9), "b": lambda: ctx.step("b", note, "b")})
        state = [*state, both["loop"], winner]
        return Break(state) if len(state) == 6 else Continue(state)

    return await ctx.loop("rounds", body, [], keep=1, prune_every=1)


@perdure.flow
async def sleeps(ctx: Context) -> list[bool]:
    before = ctx.now()
    await ctx.sleep("a week", timedelta(days=7))
    await ctx.sleep_until("past", before)
    await asyncio.sleep(60)
    return [ctx.now() - before >= timedelta(days=7, seconds=60)]


@perdure.flow
async def messages(ctx: Context) -> list[Any]:
    heard = [(await ctx.receive("word")).body]
    await ctx.step("between", note, heard[0])
    heard += [message.body for message in await ctx.receive_many("word", limit=5, timeout=60)]
    try:
        await ctx.receive("word", timeout=60)
    except perdure.ReceiveTimeout:
        heard.append("timeout")
    return [*heard, (await ctx.receive()).body]


@perdure.flow
async def answers(ctx: Context) -> str:
    """A message that is completed only after it came a second time."""
    first = await ctx.receive("question", ack=True)
    await ctx.step("think", note, first.body)
    again = await ctx.receive("question", ack=True)
    again.complete(f"answer to {again.body}")
    await ctx.step("after", note, "after")
    return str(again.body)


@perdure.flow
async def joins(ctx: Context) -> dict[str, Any]:
    async def failing(ctx: Context) -> None:
        await ctx.step("fails", fatal)

    done = await ctx.join("both", {"a": lambda: ctx.step("a", note, "a"), "b": lambda: ctx.step("b", note, "b")})
    try:
        await ctx.join("mixed", {"good": lambda: ctx.step("good", note, "g"), "bad": failing})
    except perdure.JoinFailed as failed:
        return {**done, "failed": sorted(failed.errors)}
    return done


@perdure.flow
async def races(ctx: Context) -> list[Any]:
    async def slow() -> str:
        await asyncio.sleep(0.9)
        return await note("too late")

    winner, _ = await ctx.race("cut", {"work": lambda: ctx.step("slow", slow), "nap": lambda: ctx.sleep("nap", 0.3)})
    second, value = await ctx.race(
        "won", {"work": lambda: ctx.step("quick", note, "q"), "nap": lambda: ctx.sleep("nap", 9)}
    )
    return [winner, second, value]


@perdure.flow
async def lost_races(ctx: Context) -> list[str]:
    """All fail."""
    try:
        await ctx.race("all", {name: lambda: ctx.step("fails", fatal) for name in "ab"})
    except perdure.RaceFailed as failed:
        return [await ctx.step("note", note, name) for name in failed.errors]
    return []


@perdure.flow
async def maps(ctx: Context) -> list[str]:
    return await ctx.map("all", lambda item: ctx.step("one", note, item), "abcd", concurrency=2)


@perdure.flow
async def tasks(ctx: Context) -> list[str]:
    """Ordinary asyncio."""

    async def third() -> None:
        await ctx.step("c", note, "c")

    both = await asyncio.gather(ctx.step("a", note, "a"), ctx.step("b", note, "b"))
    try:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(third())
            group.create_task(ctx.sleep("long", 60))
    except TimeoutError:
        return [*both, "timeout"]
    return [*both]


@perdure.flow
async def queues(ctx: Context) -> list[Any]:
    """The first of several tasks, a queue between two, recorded time and dice."""
    first, rest = await asyncio.wait(
        [asyncio.create_task(ctx.sleep("long", 60)), asyncio.create_task(ctx.step("quick", note, "quick"))],
        return_when=asyncio.FIRST_COMPLETED,
    )
    for task in rest:
        task.cancel()
    queue: asyncio.Queue[str] = asyncio.Queue(1)

    async def produce() -> None:
        for n in range(3):
            await queue.put(await ctx.step("make", note, f"{n} {ctx.random.random()} {ctx.now()} {ctx.uuid()}"))

    async def consume() -> list[str]:
        return [await ctx.step("use", note, await queue.get()) for _ in range(3)]

    _, used = await asyncio.gather(produce(), consume())
    return [[task.result() for task in first], [text[0] for text in used]]


@perdure.flow
async def undos(ctx: Context) -> None:
    """It fails, and what it did is undone in reverse order."""
    step = ctx.step.options(undo=undone)
    await step("a", note, "a")
    await ctx.join("both", {"b": lambda: step("b", note, "b"), "c": lambda: step("c", note, "c")})
    await ctx.step("fails", fatal)


@perdure.flow
async def undos_everywhere(ctx: Context) -> None:
    """What a loop, a race and an attempt did is undone too, after a cut in the middle of an undo as well."""
    step = ctx.step.options(undo=undone)

    async def body(ctx: Context, state: int) -> Continue[int] | Break[None]:
        await step("round", note, str(state))
        return Break(None) if state == 2 else Continue(state + 1)

    async def loser(ctx: Context) -> None:
        await step("lost", note, "lost")
        await ctx.sleep("long", 60)

    async def winner(ctx: Context) -> None:
        await ctx.sleep("short", 1)
        await step("won", note, "won")

    async def block(ctx: Context) -> None:
        await step("tried", note, "tried")
        await ctx.step("fails", fatal)

    await ctx.loop("rounds", body, 0)
    await ctx.race("race", {"loser": loser, "winner": winner})
    await ctx.attempt("block", block)
    raise RollBack("never")


@perdure.flow
async def checkpoints(ctx: Context) -> str:
    step = ctx.step.options(undo=undone)
    await step("kept", note, "kept")
    for item in ("first", "second"):
        try:
            async with ctx.checkpoint("item"):
                await step("take", note, item)
                if item == "first":
                    raise RollBack("not this one", to="item")
                return item
        except RollBack:
            await ctx.step("again", note, "again")
    return "?"


@perdure.flow
async def versions(ctx: Context) -> list[int]:
    found = [ctx.version("first", 2)]
    await ctx.step("a", note, "a")
    await ctx.removed("gone", "step")
    return [*found, ctx.version("second", 3)]


@perdure.flow
async def leaf(ctx: Context, text: str) -> str:
    if text == "bad":
        raise ValueError(text)
    await ctx.step("note", note, text)
    return text.upper()


@perdure.flow
async def children(ctx: Context) -> list[Any]:
    found: list[Any] = [await ctx.child(leaf, "a"), await ctx.child(leaf, "apart", key="apart", detach=True)]
    try:
        await ctx.child(leaf, "bad")
    except perdure.ChildFailed as failed:
        found.append(failed.status)
    return found


@perdure.flow
async def publishes(ctx: Context) -> str:
    for n in range(3):
        ctx.publish("progress", n)
        await ctx.step("note", note, str(n))
    ctx.publish("done", True)
    return "done"


@perdure.flow
async def ephemerals(ctx: Context) -> list[str]:
    step = ctx.step.options(ephemeral=True)
    found = [await step("cheap", note, str(n)) for n in range(3)]
    return [*found, await ctx.step("dear", note, "d"), await step("cheap", note, "last")]


@perdure.flow
async def listener(ctx: Context) -> str:
    return str((await ctx.receive("ball")).body)


@perdure.flow
async def senders(ctx: Context) -> str:
    await ctx.child(listener, key="listener", detach=True)
    ctx.send("listener/listener", "ball", "over")
    return await ctx.step("after", note, "after")


@perdure.flow
async def once(ctx: Context) -> list[Any]:
    step = ctx.step.options(once=True)
    found: list[Any] = [await step("pay", note, "paid")]
    answer = await ctx.attempt("or fail", fatal)
    assert not isinstance(answer, Ok)
    return [*found, answer.kind]


WORDS = [("word", "one"), ("word", "two"), (timedelta(days=1), "last", "three")]
QUESTION = [("question", "why?")]

GROUPS: list[tuple[Any, list[Any], Any]] = [
    (steps, [], ["a", "c"]),
    (retries, [], "2"),
    (timeouts, [], [1, "in time"]),
    (attempts, [], ["fatal", "b", "fatal"]),
    (loops, [], 4),
    (nested, [], [1, "b", 1, "b", 1, "b"]),
    (sleeps, [], [True]),
    (messages, WORDS, ["one", "two", "timeout", "three"]),
    (answers, QUESTION, "why?"),
    (joins, [], {"a": "a", "b": "b", "failed": ["bad"]}),
    (races, [], ["nap", "work", "q"]),
    (lost_races, [], ["a", "b"]),
    (maps, [], ["a", "b", "c", "d"]),
    (tasks, [], ["a", "b", "timeout"]),
    (queues, [], [["quick"], ["0", "1", "2"]]),
    (undos, [], ["both/c/c", "both/b/b", "a"]),
    (
        undos_everywhere,
        [],
        ["block/tried", "race/winner/won", "race/loser/lost", *(f"rounds/~{n}/round" for n in (2, 1, 0))],
    ),
    (checkpoints, [], "second"),
    (versions, [], [2, 3]),
    (children, [], ["A", "apart", "failed"]),
    (publishes, [], "done"),
    (ephemerals, [], ["0", "1", "2", "d", "last"]),
    (senders, [], "after"),
    (once, [], ["paid", "fatal"]),
]


every_group = pytest.mark.parametrize(
    ("flow", "sent"), [group[:2] for group in GROUPS], ids=lambda value: getattr(value, "name", "")
)
PAIRS, RANDOM = (60, 15) if LONG else (20, 5)


@every_group
def test_a_crash_anywhere_makes_no_difference(flow: perdure.Flow[..., Any], sent: list[Any]) -> None:
    """Each flow is evicted after every entry; the next test has those that stay in memory."""
    report = crash_test(
        flow, messages=sent, reset=OUTSIDE.clear, observe=lambda: dict(OUTSIDE), cache=0, pairs=PAIRS, random=RANDOM
    )

    assert report.singles >= 4
    assert report.pairs >= 10


@pytest.mark.parametrize("cache", [4096, 0][: 1 + LONG], ids=["hot", "evicted"][: 1 + LONG])
@every_group
def test_a_crash_anywhere_makes_no_difference_and_leaves_the_same_rows_in_a_file_as_in_memory(
    flow: perdure.Flow[..., Any], sent: list[Any], cache: int
) -> None:
    """`make test-long` has more schedules, and evicted flows on a file too."""
    with quiet_log():
        search = Search(OnBoth(trial_of(flow, sent, cache)), flow.name)
        report = search.all(None, PAIRS if LONG else 10, RANDOM if LONG else 3, seed=0)

    assert report.singles >= 4
    assert report.pairs >= 10


@every_group
def test_another_owner_at_any_commit_makes_no_difference(flow: perdure.Flow[..., Any], sent: list[Any]) -> None:
    """The one before does not know, and tries to write what it has decided: it is refused, and writes nothing."""
    with quiet_log():
        search = Search(trial_of(flow, sent, 4096), flow.name)
        endings = [search.check(Schedule((point,))) for point in take_overs_of(search.calm)]

    assert len(endings) >= 2 and all(ending.deaths for ending in endings)


def trial_of(flow: perdure.Flow[..., Any], sent: list[Any], cache: int) -> WorkflowTrial:
    return WorkflowTrial(
        flow,
        (),
        {},
        key="1",
        messages=sent,
        script={},
        reset=OUTSIDE.clear,
        observe=lambda: dict(OUTSIDE),
        cache=cache,
    )


@pytest.mark.parametrize(("flow", "sent", "result"), GROUPS, ids=lambda value: getattr(value, "name", ""))
def test_without_a_crash_it_ends_as_it_should(flow: perdure.Flow[..., Any], sent: list[Any], result: Any) -> None:
    """Else two wrong ends would be equal."""
    with World() as world:
        handle = world.start(flow)
        for message in sent:
            *at, name, body = message
            world.advance(*at or [0])
            handle.send(name, body)
        world.run()
        if flow in (undos, undos_everywhere):
            with pytest.raises(perdure.InstanceFailed, match="never"):
                handle.result()
            assert [run.name for run in world.runs()][-len(result) :] == result
        else:
            assert handle.result() == result


# ---- what people do to an instance while it runs: on the simulation, in memory and in a file -------------


@pytest.mark.parametrize("cache", [0, 4096][: 1 + LONG], ids=["evicted", "hot"][: 1 + LONG])
@pytest.mark.parametrize("name", ["cancels", "comebacks", "desks", "naps", "pays", "sagas"])
def test_a_crash_around_every_commit_makes_no_difference_to_what_people_do(name: str, cache: int) -> None:
    """Cancels, retries and rewinds, asks, wakes, answers for unknown outcomes, rollbacks; in memory and in a file."""
    workload = next(each for each in WORKLOADS if each.name == name)

    def lived(disk: Disk, planned: dict[int, str]) -> int:
        world = Simulation(workload.workflows(), seed=1, faults=Faults(cache=cache, commits=planned), disk=disk)
        expected = workload.begin(world)
        world.advance(1)
        world.run()
        check(world, expected)
        return world.counts["commits"]

    def commits(planned: dict[int, str]) -> int:
        in_memory = Disk()
        with sqlite_disk() as file:
            found = lived(in_memory, planned)
            assert lived(file, planned) == found
            assert held(file) == held(in_memory), planned
        return found

    for number in range(1, commits({}) + 1):
        for fate in ("crash_before", "crash_after"):
            assert commits({number: fate}) >= number
