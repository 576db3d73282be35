"""Changing a live world: each step and each refusal, the three modes, and what a shadow run sees and leaves alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import perdure
from perdure import CellContext, Next, ReceiptOf
from perdure.cells.bound_manifest import BoundManifest
from perdure.cells.effects import Alarm
from perdure.cells.manifest import Manifest
from perdure.cells.patch import Change, data_of, hash_of, patch_between
from perdure.cells.world import WorldMachine
from perdure.codec import decode, encode
from perdure.kernel.events import Message, Started
from perdure.kernel.moment import Moment
from perdure.kernel.rules import RULER, decode_rules
from perdure.worlds.governance import Proposal

SECOND = 1_000_000_000


class Placed(perdure.Record, name="g/Placed@1"):
    id: str
    n: perdure.Nat


class Boomed(perdure.Record, name="g/Boomed@1"):
    id: str


class Sum(perdure.Record, name="g/Sum@1"):
    n: perdure.Nat


class Sum2(perdure.Record, name="g/Sum@2"):
    n: perdure.Nat
    note: str


class Pay(perdure.Effect, name="g/pay@1", outside="bank"):
    n: perdure.Nat

    class Receipt(perdure.Record):
        auth: str


@perdure.cell("g/sum@1", key="id", effects=[Pay])
def first(state: Sum | None, event: Placed | ReceiptOf[Pay]) -> Next:
    before = state.n if state is not None else 0
    if isinstance(event, ReceiptOf):
        return Next(Sum(before + 1000))
    return Next(Sum(before + event.n), effects=[Pay(event.n)] if event.n == 7 else [])


def tenfold(old: Sum) -> Sum2:
    if old.n == 13:
        raise ValueError("13 cannot be carried over")
    return Sum2(old.n * 10, "migrated")


@perdure.cell("g/sum@2", key="id", effects=[Pay, Alarm], migrate=tenfold)
def second(state: Sum2 | None, event: Placed | ReceiptOf[Pay] | ReceiptOf[Alarm], ctx: CellContext) -> Next:
    before = state or Sum2(0, "")
    if isinstance(event, ReceiptOf):
        return Next(Sum2(before.n + 1, event.effect.__name__))
    effects: list[Any] = [Pay(event.n)] if event.n == 7 else []
    return Next(
        Sum2(before.n + event.n, "new"), effects=[*effects, Alarm(after=60 * SECOND)] if event.n == 8 else effects
    )


FIRST, SECOND_ = perdure.manifest(first), perdure.manifest(second)


async def refused(asked: Any, code: str) -> str:
    with pytest.raises(perdure.RuleRefused) as found:
        await asked
    assert found.value.code == code
    return found.value.text


def test_a_patch_leads_from_one_manifest_to_another_and_back() -> None:
    there, back = patch_between(FIRST.manifest, SECOND_.manifest), patch_between(SECOND_.manifest, FIRST.manifest)

    from perdure.cells.patch import patched, read_patch

    assert patched(FIRST.manifest, read_patch(data_of(there))).hash == SECOND_.manifest.hash
    assert patched(SECOND_.manifest, back).hash == FIRST.manifest.hash
    assert patch_between(FIRST.manifest, FIRST.manifest) == ()
    with pytest.raises(perdure.StalePatch, match="make the patch again"):
        patched(SECOND_.manifest, there)


async def test_each_transition(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)

        proposed = await rules.propose(SECOND_)
        assert (proposed.number, proposed.status, proposed.base) == (1, "proposed", FIRST.manifest.hash)
        assert (await rules.shadow(1)).failures == []
        assert [found.status for found in await rules.proposals()] == ["shadowed"]
        assert (await rules.approve(1)).status == "approved"
        assert await rules.apply(1) == SECOND_.manifest.hash

        assert (await rules.manifest()).hash == SECOND_.manifest.hash
        found = (await rules.proposals())[0]
        assert (found.status, found.mode) == ("applied", "pinned")


async def test_each_refusal(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await rules.propose(SECOND_)

        assert "there is no proposal 2" in await refused(rules.approve(2), "unknown-proposal")
        assert "to be approved it must be shadowed" in await refused(rules.approve(1), "wrong-state")
        assert "to be applied it must be approved" in await refused(rules.apply(1), "wrong-state")
        rejected = await rules.reject(1, "not now")
        assert (rejected.status, rejected.reason) == ("rejected", "not now")
        for again in (rules.approve, rules.reject, rules.apply):
            await refused(again(1), "wrong-state")

        same = [await rules.propose(SECOND_), await rules.propose(SECOND_)]
        assert [found.number for found in same] == [2, 3], "the same patch twice is two proposals"
        for number in (2, 3):
            await rules.shadow(number)
            await rules.approve(number)
        await rules.apply(2)
        assert "make the patch again" in await refused(rules.apply(3), "stale-patch")
        assert [found.status for found in await rules.proposals()] == ["rejected", "applied", "approved"]
        await refused(rules.apply(FIRST, mode="sometimes"), "unknown-mode")  # type: ignore[arg-type]
        assert (await rules.manifest()).hash == SECOND_.manifest.hash


BECOMES = {
    ("proposed", "shadow"): "shadowed",
    ("proposed", "reject"): "rejected",
    ("shadowed", "shadow"): "shadowed",
    ("shadowed", "approve"): "approved",
    ("shadowed", "reject"): "rejected",
    ("approved", "reject"): "rejected",
    ("approved", "apply"): "applied",
}
"""All that there is. Whatever else is asked is refused, and changes nothing."""


@pytest.mark.parametrize("verb", ["shadow", "approve", "reject", "apply"])
@pytest.mark.parametrize("status", ["proposed", "shadowed", "approved", "rejected", "applied"])
def test_what_may_follow_on_what(status, verb):
    ways = {"proposed": [], "shadowed": ["shadow"], "approved": ["shadow", "approve"], "rejected": ["reject"]}
    machine = WorldMachine(None)
    machine.deliver(Started(RULER.workflow, RULER.key, FIRST.manifest.bytes, b"seed", "1"), Moment(1, b"seed", 1))

    def ask(verb: str) -> Any:
        bodies = {"propose": {"patch": data_of(patch_between(FIRST.manifest, SECOND_.manifest))}}
        body = bodies.get(verb, {"proposal": 1, "report": {"mode": "pinned"}})
        return decode(machine.deliver(Message(f"sys/{verb}", encode(body), verb), Moment(1, b"s", 1)).respond[0][1])

    def state() -> Any:
        return decode(machine.state)["proposals"][0]

    for asked in ("propose", *ways.get(status, ["shadow", "approve", "apply"])):
        assert "refused" not in ask(asked)
    before = state()
    assert before["status"] == status

    answer = ask(verb)

    if (status, verb) in BECOMES:
        assert state()["status"] == BECOMES[status, verb] and "refused" not in answer
    else:
        assert state() == before and answer["refused"] == "wrong-state" and f"proposal 1 is {status}" in answer["text"]


async def test_a_patch_with_a_stale_hash_or_a_broken_result_is_refused(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        definition = FIRST.manifest.data()["cells"]["g/sum@1"]

        await refused(rules.propose((Change("cells", "g/sum@1", "sha256:" + "0" * 64, definition),)), "stale-patch")
        await refused(rules.propose((Change("cells", "g/other@1", hash_of(definition), definition),)), "stale-patch")
        gone = (Change("schemas", "g/Sum@1", hash_of(FIRST.manifest.data()["schemas"]["g/Sum@1"])),)
        await refused(rules.propose(gone), "unknown-schema")
        nonsense = (Change("schemas", "g/New@1", "", {"record": {"x": "txt"}}),)
        await refused(rules.propose(nonsense), "bad-manifest")
        assert await rules.proposals() == []


async def test_a_manifest_that_the_engine_has_no_code_for_is_not_applied_at_once(stage):
    async with stage.open(first) as live:
        assert "deploy it first" in await refused(perdure.Governance(live.engine).apply(SECOND_), "no-code")


async def test_strict_is_blocked_with_all_counters_while_anything_lives(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST, mode="strict")
        await live.send(Placed("a", 1))
        await live.send(Placed("b", 7))

        text = await refused(rules.apply(SECOND_, mode="strict"), "blocked")

        assert "instances: 2, intents: 1, queued: 0; strict" in text
        assert (await rules.manifest()).hash == FIRST.manifest.hash


async def test_strict_counts_calls_under_way_and_what_waits_for_a_stuck_cell(stage):
    @perdure.effect_handler(Dig)
    async def dig(params: Dig, call: perdure.Call) -> Dig.Receipt:
        await asyncio.Event().wait()
        raise AssertionError

    @perdure.cell("g/sum@1", key="id", effects=[Dig])
    def poisoned(state: Sum | None, event: Placed | Boomed | ReceiptOf[Dig]) -> Next:
        if isinstance(event, Boomed):
            raise ValueError("boom")
        return Next(Sum(1), effects=[Dig(1)] if isinstance(event, Placed) else [])

    async with stage.open(poisoned, handlers=[dig]) as live:
        await live.send(Boomed("a"))
        await live.send(Boomed("a"))
        await live.send(Boomed("a"))
        await live.send(Placed("b", 1))

        text = await refused(
            perdure.Governance(live.engine).apply(perdure.manifest(poisoned), mode="strict"), "blocked"
        )

        assert "instances: 2, intents: 1, queued: 2; strict" in text


async def test_strict_counts_cells_that_the_manifest_in_force_does_not_name(stage):
    @perdure.flow
    async def beside_it(ctx: perdure.Context) -> None:
        await ctx.receive("go")

    async with stage.open(first, beside, beside_it) as live:
        rules = perdure.Governance(live.engine)
        await live.engine.start(beside_it, key="a flow is no cell")
        await live.send(Placed("a", 1))
        await rules.apply(perdure.manifest(beside))

        assert "instances: 1, intents: 0, queued: 0;" in await refused(rules.apply(FIRST, mode="strict"), "blocked")
        await live.engine.handle("g/sum", "a").cancel()
        await live.rest()
        await rules.apply(FIRST, mode="strict")


async def test_pinned_cells_stay_and_new_ones_begin_with_the_new_manifest(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await live.send(Placed("old", 1))

        await rules.apply(SECOND_)
        await live.send(Placed("old", 2))
        await live.send(Placed("new", 3))

        assert await live.state(first, "old") == Sum(3)
        assert await live.state(second, "new") == Sum2(3, "new")


async def test_migrated_cells_go_over_when_they_are_used_and_all_of_them_on_demand(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        for key in ("a", "b", "c"):
            await live.send(Placed(key, 1))

        await rules.apply(SECOND_, mode="migrate")
        await live.send(Placed("a", 5))
        assert await live.state(second, "a") == Sum2(15, "new")
        assert await live.state(first, "b") == Sum(1), "not used yet"
        assert "2 cells of g/sum are left" in await refused(rules.apply(FIRST), "migrating")

        assert await rules.migrate() == 2
        await live.rest()
        assert await live.state(second, "b") == await live.state(second, "c") == Sum2(10, "migrated")
        assert await rules.migrate() == 0
        versions = {found.version for found in await live.engine.instances(workflow="g/sum")}
        assert versions == set(SECOND_.in_force.versions.values())


async def test_an_open_effect_survives_the_migration_of_its_cell(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await live.send(Placed("a", 7))
        await rules.apply(SECOND_, mode="migrate")

        await live.answer(second, "a", {"auth": "x"})

        assert await live.state(second, "a") == Sum2(71, "Pay")


class Noted(perdure.Record, name="g/Noted@1"):
    hashes: list[str]


def note(state: Noted | None, event: Boomed, ctx: CellContext) -> Next:
    return Next(Noted([*(state.hashes if state else []), ctx.manifest_hash]))


async def test_the_hash_in_the_context_is_that_of_the_manifest_a_cell_has_gone_over_to(stage):
    before = perdure.cell("g/noted@1", key="id", effects=[])(note)
    after = perdure.cell("g/noted@2", key="id", effects=[], migrate=lambda old: old)(note)
    one, two = perdure.manifest(before), perdure.manifest(after)
    async with stage.open(before, after) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(one)
        await live.send(Boomed("a"))
        await rules.apply(two, mode="migrate")
        await live.send(Boomed("a"))

        assert (await live.state(after, "a")).hashes == [one.manifest.hash, two.manifest.hash]


async def test_a_cell_that_cannot_be_migrated_is_stuck_and_its_neighbours_are_not(stage):
    async with stage.open(first, second, replay=False) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await live.send(Placed("bad", 13))
        await live.send(Placed("good", 1))
        report = await rules.shadow(SECOND_, mode="migrate")
        assert [found for found in report.failures if "13 cannot be carried over" in found]

        await rules.apply(SECOND_, mode="migrate")
        await rules.migrate()
        await live.rest()

        assert await live.status(first, "bad") == "stuck"
        assert await live.state(second, "good") == Sum2(10, "migrated")


class Sum3(perdure.Record, name="g/Sum@3"):
    n: perdure.Nat
    came: str


def from_either(old: Sum | Sum2) -> Sum3:
    return Sum3(old.n, type(old).__name__)


@perdure.cell("g/sum@3", key="id", effects=[Pay, Alarm], migrate=from_either)
def third(state: Sum3 | None, event: Placed | ReceiptOf[Pay] | ReceiptOf[Alarm]) -> Next:
    return Next(state or Sum3(0, "new"))


@perdure.cell("g/beside@1", key="id", effects=[])
def beside(state: Sum | None, event: Boomed) -> Next:
    return Next(Sum(1))


THIRD = perdure.manifest(third)


async def half_migrated(live: Any) -> perdure.Governance:
    """A world of the second manifest, in which the cell `bad` could not go over and is stuck."""
    rules = perdure.Governance(live.engine)
    await rules.apply(FIRST)
    await live.send(Placed("bad", 13))
    await live.send(Placed("good", 1))
    await rules.apply(SECOND_, mode="migrate")
    await rules.migrate()
    await live.rest()
    assert await live.status(first, "bad") == "stuck"
    return rules


async def test_a_cell_that_could_not_go_over_goes_over_to_the_next_definition_with_what_waited(stage):
    async with stage.open(first, second, third) as live:
        rules = await half_migrated(live)
        await live.send(Placed("bad", 1))  # waits

        await rules.propose(THIRD)
        report = await rules.shadow(1, mode="migrate")
        assert (report.failures, report.changed) == ([], 2)
        await rules.approve(1)
        await rules.apply(1, mode="migrate")
        assert await live.status(first, "bad") == "stuck", "until somebody says so"
        assert await rules.migrate() == 2
        await live.rest()

        assert await live.state(third, "bad") == Sum3(13, "Sum")
        assert await live.state(third, "good") == Sum3(10, "Sum2")
        assert await live.status(third, "bad") == "waiting"
        assert len(await live.entries(third, "bad")) == 4, "made, stuck, gone over, and what waited"
        assert await rules.migrate() == 0
        await rules.apply(FIRST)


async def test_a_retry_of_a_migration_goes_to_what_is_in_force(stage):
    async with stage.open(first, second, third) as live:
        rules = await half_migrated(live)
        await rules.apply(THIRD, mode="migrate")

        await live.engine.handle("g/sum", "bad").retry()
        await live.rest()

        assert await live.state(third, "bad") == Sum3(13, "Sum")


async def test_a_manifest_that_leaves_a_definition_alone_is_applied_while_its_cells_go_over(stage):
    async with stage.open(first, second, third, beside) as live:
        rules = await half_migrated(live)

        await rules.apply(perdure.manifest(second, beside))
        await live.send(Boomed("x"))

        assert await live.state(beside, "x") == Sum(1)
        assert await rules.migrate() == 1, "it is still to go over"
        await rules.apply(perdure.manifest(third, beside), mode="migrate")
        await rules.migrate()
        await live.rest()
        assert await live.state(third, "bad") == Sum3(13, "Sum")


async def test_cells_that_are_to_go_over_are_not_left_behind(stage):
    async with stage.open(first, second, third, beside) as live:
        rules = await half_migrated(live)

        text = await refused(rules.apply(THIRD), "migrating")
        assert "1 cells of g/sum are left" in text and "mode migrate" in text
        await refused(rules.apply(perdure.manifest(beside), mode="migrate"), "migrating")
        await refused(rules.apply(THIRD, mode="strict"), "blocked")
        assert (await rules.manifest()).hash == SECOND_.manifest.hash

        await live.engine.handle("g/sum", "bad").cancel("it is not worth it")
        await live.rest()
        await rules.apply(THIRD)


async def test_a_cell_that_could_not_go_over_stays_where_it_is_when_the_world_goes_back(stage):
    @perdure.cell("g/sum@1", key="id", effects=[Pay], migrate=lambda state: {"n": state["n"] + 100})
    def origin(state: Sum | None, event: Placed | ReceiptOf[Pay]) -> Next:
        return Next(Sum((state.n if state is not None else 0) + 1))

    back = perdure.manifest(origin)
    async with stage.open(origin, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(back)
        for _ in range(13):
            await live.send(Placed("bad", 1))
        await live.send(Placed("good", 1))
        await rules.apply(SECOND_, mode="migrate")
        await rules.migrate()
        await live.rest()
        assert await live.status(origin, "bad") == "stuck"

        await rules.apply(back, mode="migrate")
        await live.engine.handle("g/sum", "bad").retry()
        await rules.migrate()
        await live.rest()

        assert await live.state(origin, "bad") == Sum(13), "it never went anywhere"
        assert await live.state(origin, "good") == Sum(110)


async def test_a_mended_function_takes_over_all_that_it_could_not_before(stage, monkeypatch):
    async with stage.open(first, second) as live:
        rules = await half_migrated(live)
        (definition,) = [each for each in live.engine._workflows if each.version.startswith("2-")]

        monkeypatch.setattr(definition, "_migrate", lambda state: {"n": state["n"], "note": "mended"})
        assert await rules.migrate() == 1
        await live.rest()

        assert await live.state(second, "bad") == Sum2(13, "mended")


async def test_a_function_is_not_given_a_state_that_it_does_not_name(stage):
    def from_second(old: Sum2) -> Sum3:
        raise AssertionError("a state of another schema may look like this one")

    @perdure.cell("g/sum@3", key="id", effects=[Pay, Alarm], migrate=from_second)
    def third_of_second(state: Sum3 | None, event: Placed | ReceiptOf[Pay] | ReceiptOf[Alarm]) -> Next:
        return Next(state)

    async with stage.open(first, second, third_of_second, replay=False) as live:
        rules = await half_migrated(live)

        report = await rules.shadow(perdure.manifest(third_of_second), mode="migrate")

        (told,) = [failure for failure in report.failures if "g/sum/bad" in failure]
        assert "the state is of g/Sum@1" in told and "takes g/Sum@2" in told and "joined by |" in told


async def test_a_cell_that_is_stuck_at_an_event_goes_over_after_it(stage):
    broken = True

    @perdure.cell("g/sum@1", key="id", effects=[Pay])
    def fragile(state: Sum | None, event: Placed | ReceiptOf[Pay]) -> Next:
        if broken and isinstance(event, Placed) and event.n == 2:
            raise ValueError("two")
        return Next(Sum((state.n if state is not None else 0) + 1))

    async with stage.open(fragile, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(perdure.manifest(fragile))
        await live.send(Placed("a", 1))
        await live.send(Placed("a", 2))
        await rules.apply(SECOND_, mode="migrate")
        await rules.migrate()
        await live.rest()
        assert await live.status(fragile, "a") == "stuck"

        broken = False
        await live.engine.handle("g/sum", "a").retry()
        await live.send(Placed("a", 3))

        assert await live.state(second, "a") == Sum2(23, "new")


async def test_a_proposal_whose_shadow_failed_is_not_approved(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await live.send(Placed("bad", 13))
        await rules.propose(SECOND_)

        await rules.shadow(1, mode="migrate")

        assert "13 cannot be carried over" in await refused(rules.approve(1), "shadow-failed")


async def test_a_proposal_is_applied_in_the_mode_of_its_shadow_run(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await rules.propose(SECOND_)
        await rules.shadow(1)
        await rules.approve(1)

        assert "was pinned, and it is to be applied migrate" in await refused(rules.apply(1, "migrate"), "shadow-mode")
        assert await rules.apply(1) == SECOND_.manifest.hash


async def test_after_a_migration_the_old_code_is_no_longer_needed(disk):
    async with disk.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await live.send(Placed("a", 1))
        await rules.apply(SECOND_, mode="migrate")
        await rules.migrate()

    disk.crash()
    async with disk.open(second) as live:
        await live.send(Placed("a", 2))
        assert await live.state(second, "a") == Sum2(12, "new")


async def test_code_without_the_manifest_in_force_does_not_open(disk):
    async with disk.open(first) as live:
        await live.send(Placed("a", 1))

    with pytest.raises(perdure.ManifestChanged):
        async with disk.open(second):
            pass
    async with disk.open(first) as live:
        assert await live.state(first, "a") == Sum(1)


async def test_governance_survives_a_restart(disk):
    async with disk.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await rules.propose(SECOND_)
        await rules.shadow(1)

    disk.crash()
    async with disk.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        assert (await rules.manifest()).hash == FIRST.manifest.hash
        await rules.approve(1)
        assert await rules.apply(1) == SECOND_.manifest.hash


async def test_a_shadow_run_changes_nothing_and_says_what_would_happen(stage):
    async with stage.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await live.send(Placed("a", 1))
        await live.send(Placed("b", 7))
        before = await live.journal()

        report = await rules.shadow(SECOND_, mode="migrate", horizon=timedelta(hours=1))

        assert await live.journal() == before
        assert report.failures == []
        assert report.changed == 2
        assert {
            "cell": "g/sum",
            "key": "a",
            "before": {"n": 1},
            "after": {"n": 10, "note": "migrated"},
        } in report.states
        assert report.allowlists == {"g/sum": {"added": ["sys/timer@1"], "removed": []}}
        assert report.open == {"g/pay@1": 1}
        assert report.statuses == {"sys/world 1 waiting": 1, f"g/sum {SECOND_.in_force.versions['g/sum']} waiting": 2}
        assert "not predicted" in report.caveat


class Dig(perdure.Effect, name="g/dig@1", once=True):
    depth: perdure.Nat

    class Receipt(perdure.Record):
        found: str


@perdure.cell("g/mine@1", key="id", effects=[Dig, Pay, Alarm])
def mine(state: Sum2 | None, event: Placed | ReceiptOf[Dig] | ReceiptOf[Pay] | ReceiptOf[Alarm]) -> Next:
    """Digs, pays for what was found, and digs again after a minute."""
    match event:
        case Placed(n=depth):
            return Next(Sum2(depth, "digging"), effects=[Dig(depth)])
        case ReceiptOf(params=Dig()):
            found = event.value.found if event.value is not None else event.status
            return Next(Sum2(0, f"found {found}"), effects=[Pay(1)])
        case ReceiptOf(params=Pay()):
            return Next(Sum2(1, f"paid {event.status} by {event.executor}"), effects=[Alarm(after=60 * SECOND)])
        case _:
            return Next(Sum2(2, "again"), effects=[Dig(2)])


async def test_a_shadow_run_performs_nothing_and_gives_up_nothing_that_is_being_performed(stage):
    dug: list[int] = []

    @perdure.effect_handler(Dig)
    async def dig(params: Dig, call: perdure.Call) -> Dig.Receipt:
        dug.append(params.depth)
        await asyncio.Event().wait()
        raise AssertionError

    async with stage.open(mine, handlers=[dig]) as live:
        rules = perdure.Governance(live.engine)
        await live.send(Placed("a", 9))

        unanswered = await rules.shadow(perdure.manifest(mine))
        answers = {"g/dig@1": {"found": "gold"}, "g/pay@1": {"auth": "x"}}
        answered = await rules.shadow(perdure.manifest(mine), receipts=answers, horizon=90)
        failed = await rules.shadow(perdure.manifest(mine), receipts={"g/dig@1": OSError("stone")})

        assert (unanswered.changed, unanswered.open) == (0, {"g/dig@1": 1}), "it goes on, once, where it runs"
        assert answered.effects == {"g/pay@1": 2, "g/dig@1": 1}, "up to the horizon"
        assert [state["after"] for state in answered.states] == [{"n": 1, "note": "paid ok by bank"}]
        assert [state["after"] for state in failed.states] == [{"n": 0, "note": "found error"}]
        assert failed.open == {"g/pay@1": 1}
        assert answered.first_effects[0] == {"cell": "g/mine", "key": "a", "effect": "g/pay@1", "location": "pay/~2#1"}
        assert (answered.horizon, answered.mode) == (90 * SECOND, "pinned")
        unread = await rules.shadow(perdure.manifest(mine), receipts={"g/dig@1": {"lost": "all"}})
        assert ["g/mine/a failed: " in failure for failure in unread.failures] == [True]
        assert dug == [9]


async def test_a_shadow_run_has_what_waits_in_mailboxes_and_that_meets_the_new_manifest(disk):
    async with disk.open(first, second) as live:
        await perdure.Governance(live.engine).apply(FIRST)
        await live.send(Placed("old", 1))
    async with perdure.connect(disk.url, workflows=[first, second]) as client:
        await client.send(Placed("old", 2))
        await client.send(Placed("fresh", 3))

        report = await perdure.Governance(client).shadow(SECOND_, mode="migrate")

        after = {state["key"]: state["after"] for state in report.states}
        assert after == {"old": {"n": 12, "note": "new"}, "fresh": {"n": 3, "note": "new"}}
        assert len(await client.queries.undelivered()) == 2


async def test_a_shadow_run_answers_as_was_answered_before_for_the_same_parameters(stage):
    @perdure.effect_handler(Dig)
    async def dig(params: Dig, call: perdure.Call) -> Dig.Receipt:
        return Dig.Receipt("gold" if params.depth == 9 else "stone")

    async with stage.open(mine, handlers=[dig]) as live:
        rules = perdure.Governance(live.engine)
        await live.send(Placed("a", 9))
        await live.until(mine, "a", Sum2(0, "found gold"))
        (asked,) = await live.engine.open_effects()
        await live.engine.answer(asked.intent, executor="bank", ok={"auth": "x"})
        await live.send(Placed("b", 9))
        await live.until(mine, "b", Sum2(0, "found gold"))

        report = await rules.shadow(perdure.manifest(mine), recorded=True, horizon=90)

        after = {state["key"]: state["after"]["note"] for state in report.states}
        assert after == {"a": "again", "b": "again"}, "the bank was asked for 1 before, and nobody has dug for 2"
        assert report.open == {"g/dig@1": 2}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"receipts": {"g/dog@1": {}}}, "no effect is named 'g/dog@1'; did you mean 'g/dig@1'"),
        ({"receipts": [1]}, "receipts are given by effect"),
        ({"horizon": -1}, "a horizon is 0 to 1,000,000,000 seconds, found -1"),
        ({"horizon": float("nan")}, "found nan"),
        ({"horizon": float("inf")}, "found inf"),
    ],
)
async def test_a_shadow_run_that_makes_no_sense_is_refused(options, told):
    async with perdure.open(":memory:", workflows=[mine], lenient=True) as engine:
        with pytest.raises(perdure.CallerError) as refused:
            await perdure.Governance(engine).shadow(perdure.manifest(mine), **options)

    assert told in str(refused.value)


async def test_governance_works_from_another_process(disk):
    async with disk.open(first, second) as live:
        await perdure.Governance(live.engine).apply(FIRST)
        await live.send(Placed("a", 1))
        async with perdure.connect(disk.url, workflows=[first, second]) as client:
            rules = perdure.Governance(client)
            proposal = await rules.propose(SECOND_)
            await rules.shadow(proposal.number)
            await rules.approve(proposal.number)
            assert await rules.apply(proposal.number) == SECOND_.manifest.hash
            assert "instances: 1" in await refused(rules.apply(FIRST, mode="strict"), "blocked")


def test_a_proposal_is_data() -> None:
    assert msgspec.json.encode(Proposal(1, "proposed", "", ()))
    assert isinstance(FIRST.manifest, Manifest)


async def test_of_two_manifests_that_are_applied_at_once_one_is_refused_and_no_cell_is_left_behind(stage):
    async with stage.open(first, second, third) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await live.send(Placed("a", 1))

        results = await asyncio.gather(
            rules.apply(SECOND_, mode="migrate"), rules.apply(THIRD, mode="migrate"), return_exceptions=True
        )

        codes = sorted(getattr(found, "code", "applied") for found in results)
        assert codes[0] == "applied" and codes[1] in ("applied-meanwhile", "applied")  # on a server one after the other
        assert await rules.migrate() == 1


def test_an_apply_that_an_earlier_engine_counted_is_decided_as_it_was_then():
    machine, moment = WorldMachine(None), Moment(1, b"seed", 1)
    machine.deliver(Started(RULER.workflow, RULER.key, FIRST.manifest.bytes, b"seed", "1"), moment)

    def apply(bound: BoundManifest, counts: dict[str, Any]) -> tuple[str, dict[str, tuple[str, ...]]]:
        body = {"manifest": bound.manifest.bytes, "mode": "migrate", "counts": counts}
        decision = machine.deliver(Message("sys/apply", encode(body), "id"), moment)
        published = dict(decision.publish).get("manifest")
        return decode(decision.respond[0][1]).get("refused", ""), decode_rules(published).migrating

    assert apply(SECOND_, {"unmigrated": 0}) == ("", {"g/sum": tuple(FIRST.in_force.versions.values())})
    assert apply(THIRD, {"unmigrated": 1}) == ("migrating", {})
    assert apply(THIRD, {"unmigrated": 0}) == ("", {"g/sum": tuple(SECOND_.in_force.versions.values())})


async def test_a_proposal_that_there_is_no_code_for_is_not_approved_and_not_applied(disk):
    async with disk.open(first, second) as live:
        await perdure.Governance(live.engine).apply(FIRST)
        await perdure.Governance(live.engine).propose(SECOND_)
        await perdure.Governance(live.engine).propose(SECOND_)
        await perdure.Governance(live.engine).shadow(1)
        await perdure.Governance(live.engine).approve(1)
    async with disk.open(FIRST) as live:
        rules = perdure.Governance(live.engine)

        assert "deploy it first" in await refused(rules.apply(1), "no-code")
        assert any("no code for g/sum" in failure for failure in (await rules.shadow(2)).failures)
        await refused(rules.approve(2), "shadow-failed")
        assert (await rules.manifest()).hash == FIRST.manifest.hash


async def test_an_engine_without_the_new_code_leaves_cells_alone_that_are_to_be_migrated(disk):
    async with disk.open(first, second) as live:
        rules = perdure.Governance(live.engine)
        await rules.apply(FIRST)
        await live.send(Placed("a", 1))
        await rules.apply(SECOND_, mode="migrate")
    async with perdure.connect(disk.url) as client:
        await client.send(Placed("a", 2))

    with pytest.raises(perdure.ManifestChanged):
        async with disk.open(FIRST, replay=False):
            pass

    async with disk.open(first, second) as live:
        await live.rest()
        assert await live.state(second, "a") == Sum2(12, "new")


async def test_a_cell_that_the_manifest_no_longer_has_waits_for_its_own_code_and_takes_no_other(disk):
    @perdure.cell("g/other@1", key="id", effects=[])
    def other(state: Sum | None, event: Boomed) -> Next:
        return Next(Sum(1))

    only_other = perdure.manifest(other)
    async with disk.open(first, other) as live:
        await live.send(Placed("a", 7))
        await perdure.Governance(live.engine).apply(only_other)
    async with perdure.connect(disk.url) as client:
        (asked,) = await client.open_effects()
        await client.answer(asked.intent, executor="bank", ok={"auth": "x"})

    with_other_code = perdure.manifest(other)
    with_other_code.earlier += SECOND_.cells
    async with disk.open(with_other_code, replay=False) as live:
        await live.rest()
        assert await live.status(first, "a") == "waiting"

    async with disk.open(first, other) as live:
        await live.rest()
        assert await live.state(first, "a") == Sum(1007)


async def test_a_shadow_run_ends_where_a_stuck_cell_has_a_timer_that_is_overdue(stage):
    @perdure.cell("g/sum@1", key="id", effects=[Alarm])
    def poisoned(state: Sum | None, event: Placed | Boomed | ReceiptOf[Alarm]) -> Next:
        if isinstance(event, Boomed):
            raise ValueError("boom")
        return Next(Sum(1), effects=[Alarm(at=2 * SECOND)] if isinstance(event, Placed) else [])

    async with stage.open(poisoned) as live:
        await asyncio.gather(live.engine.send(Placed("a", 1)), live.engine.send(Boomed("a")))
        await live.rest()
        assert await live.status(poisoned, "a") == "stuck"

        report = await perdure.Governance(live.engine).shadow(perdure.manifest(poisoned))

        assert report.failures == []
        assert await live.status(poisoned, "a") == "stuck"


@pytest.mark.parametrize("by", ["events", "timers"])
async def test_a_shadow_run_ends_where_cells_never_come_to_rest(stage, monkeypatch, by):
    monkeypatch.setattr("perdure.worlds.shadow.ENTRIES_MAX", 100)

    @perdure.cell("g/sum@1", key="id", effects=[Alarm])
    def restless(state: Sum | None, event: Placed | ReceiptOf[Alarm]) -> Next:
        if state is None:
            return Next(Sum(1), effects=[Alarm(after=1800 * SECOND)])
        return Next(Sum(1), events=[Placed("a", 1)]) if by == "events" else Next(Sum(1), effects=[Alarm(after=1)])

    async with stage.open(restless) as live:
        await live.send(Placed("a", 1))

        report = await perdure.Governance(live.engine).shadow(perdure.manifest(restless))

        assert [failure[-9:] for failure in report.failures] == ["(endless)"]
        assert len(await live.entries(restless, "a")) == 1
