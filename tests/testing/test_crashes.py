"""The crash test passes what is right, and finds each classic bug, with a story and a line that shows it again."""

import gc
import random
import time
from datetime import timedelta

import pytest

import perdure
from perdure import CallerError, Context, CrashTestFailed, step_info
from perdure.testing import World, WorldHandle, crash_test
from perdure.testing.crashes import agrees, parse
from perdure.testing.steps import StepLoop
from tests.simulation.workloads import Tally

OUTBOX: list[str] = []
LEDGER: dict[str, int] = {}


def reset() -> None:
    OUTBOX.clear()
    LEDGER.clear()


def outside() -> object:
    return [*OUTBOX], {**LEDGER}


async def price(item: str) -> int:
    return len(item) * 100


async def book_once(cents: int) -> str:
    LEDGER[step_info().idempotency_key] = cents
    return "booked"


async def book_always(cents: int) -> str:
    LEDGER[f"booking {len(LEDGER) + 1}"] = cents
    return "booked"


async def mail(text: str) -> None:
    OUTBOX.append(text)


# ---- what is right passes ------------------------------------------------------------------------------


@perdure.flow
async def careful(ctx: Context, item: str) -> str:
    cents = await ctx.step("price", price, item)
    decision = await ctx.receive("decision", timeout=timedelta(days=2))
    await ctx.sleep("cool off", timedelta(days=7))
    await ctx.step("book", book_once, cents)
    return f"{decision.body} {cents}"


def test_a_flow_that_does_it_right_passes():
    report = crash_test(
        careful,
        "lamp",
        messages=[(timedelta(days=1), "decision", "yes")],
        reset=reset,
        observe=lambda: list(LEDGER.values()),
    )

    assert (report.singles, report.random) == (12, 50)
    assert report.pairs > 50
    assert report.repeated == ("price", "book")
    assert "12 single crashes" in str(report) and "ran again: price, book" in str(report)


def test_ids_dice_and_recorded_times_may_differ_from_run_to_run():
    @perdure.flow
    async def rolls(ctx: Context) -> dict[str, object]:
        await ctx.step("price", price, "a")
        return {"id": ctx.uuid(), "dice": ctx.random.random(), "at": ctx.now(), "constant": 1}

    crash_test(rolls, random=20)


def test_the_winner_of_a_race_may_differ_from_run_to_run():
    @perdure.flow
    async def race(ctx: Context) -> tuple[str, int]:
        return await ctx.race("race", {"a": lambda: ctx.step("a", price, "a"), "b": lambda: ctx.step("b", price, "bb")})

    crash_test(race, random=30)


def test_a_step_that_may_run_once_is_answered_for_by_somebody_who_knows():
    @perdure.flow
    async def pays(ctx: Context) -> str:
        return await ctx.step.options(once=True)("book", book_always, 100)

    report = crash_test(pays, reset=reset, observe=outside)

    assert report.repeated == ()


def test_a_flow_that_handles_an_unknown_outcome_itself_may_end_otherwise():
    @perdure.flow
    async def pays(ctx: Context) -> str:
        try:
            return await ctx.step.options(once=True, unknown="raise")("book", book_always, 100)
        except perdure.OutcomeUnknown:
            return "looked up"

    crash_test(pays, reset=reset, observe=lambda: len(LEDGER) <= 1)


def test_a_flow_that_fails_must_fail_in_the_same_way():
    @perdure.flow
    async def fails(ctx: Context) -> None:
        cents = await ctx.step("price", price, "lamp")
        raise ValueError(f"{cents} is too much for {object()}")

    crash_test(fails, random=10)


def test_an_undo_that_ran_again_is_told_by_the_step_that_it_undoes():
    @perdure.flow
    async def takes_back(ctx: Context) -> None:
        await ctx.join("all", {"a": lambda: ctx.step.options(undo=mail)("price", price, "lamp")})
        raise perdure.RollBack("too dear")

    report = crash_test(takes_back, random=10)

    assert str(report).endswith("ran again: all/a/price, the undo of all/a/price")


def test_children_and_their_ends_count_too():
    @perdure.flow
    async def child(ctx: Context, item: str) -> int:
        return await ctx.step("price", price, item)

    @perdure.flow
    async def parent(ctx: Context) -> int:
        await ctx.child(child, "stray", key="stray", detach=True)
        return int(await ctx.child(child, "lamp"))

    assert crash_test(parent, random=10).repeated == ("price",)


def test_a_machine_of_any_dialect_is_tested_in_the_same_way():
    report = crash_test(Tally("tally"), 2, messages=[("added", {"n": 1}), ("added", {"n": 2})], random=20)

    assert report.singles == 6


def test_scripts_stand_in_for_steps():
    calls = []

    def scripted(item: str) -> int:
        calls.append(item)
        return 7

    crash_test(careful, "lamp", messages=[("decision", "yes")], script={"price": scripted}, random=0, pairs=0)

    assert calls and set(calls) == {"lamp"}


@pytest.mark.parametrize("cache", [4096, 0])
def test_pairs_are_a_sample_where_there_are_too_many(cache):
    report = crash_test(careful, "lamp", messages=[("decision", "yes")], pairs=9, random=3, cache=cache)

    assert (report.pairs, report.random) == (9, 3)


# ---- what people do ------------------------------------------------------------------------------------


@perdure.flow
async def desk(ctx: Context) -> str:
    """Answers questions, naps after each, and ends when it is asked 0."""
    answered = 0
    try:
        while True:
            question = await ctx.receive("question")
            answered += 1
            await ctx.step("book", book_once, answered)
            question.complete(question.body * 2)
            if question.body == 0:
                return f"{answered} answered"
            await ctx.sleep("nap", timedelta(days=1000))
    finally:
        await ctx.step("tidy", mail, "tidied")


def test_a_story_may_ask_wake_cancel_and_start_a_second_instance():
    ends: list[tuple[str, str, str]] = []

    def people(world: World, first: WorldHandle[str]) -> None:
        second = world.start(desk)
        assert first.ask("question", 21) == 42
        assert second.ask("question", 1) == 2
        world.advance(timedelta(days=1))
        first.wake("nap")
        second.cancel("no longer needed")
        assert first.ask("question", 0) == 0
        world.run()
        ends.append((first.result(), second.key, second.status))

    report = crash_test(desk, reset=reset, observe=lambda: sorted(LEDGER.values()), story=people, pairs=100, random=40)

    assert set(ends) == {("2 answered", "2", "cancelled")}
    assert report.singles > 20
    assert {"book", "tidy"} <= set(report.repeated)


def test_a_story_whose_expectation_a_crash_breaks_is_told_with_its_line():
    @perdure.flow
    async def forgetful(ctx: Context) -> None:
        asked = await ctx.receive("book")
        await ctx.step("book", book_always, 1)
        asked.complete(await ctx.step("count", LEDGER.__len__))

    def people(world: World, handle: WorldHandle[None]) -> None:
        assert handle.ask("book") == 1, "booked twice"

    told = r"does not survive a crash that comes .*: line \d+, in people: AssertionError: booked twice"
    with pytest.raises(CrashTestFailed, match=told) as found:
        crash_test(forgetful, reset=reset, story=people)

    assert "reset=reset, story=people, schedule='" in str(found.value)


def test_a_story_that_waits_for_nothing_goes_wrong_without_a_crash():
    def people(world: World, handle: WorldHandle[str]) -> None:
        handle.ask("what the desk does not hear")

    with pytest.raises(CrashTestFailed, match=r"even without a crash: line \d+, in people: NotYet"):
        crash_test(desk, reset=reset, story=people)


# ---- the classic bugs ----------------------------------------------------------------------------------


@perdure.flow
async def chatty(ctx: Context, item: str) -> int:
    cents = await ctx.step("price", price, item)
    OUTBOX.append(f"{item} costs {cents}")
    await ctx.sleep("cool off", 60)
    return cents


def test_an_effect_outside_of_a_step_is_found():
    with pytest.raises(CrashTestFailed) as failed:
        crash_test(chatty, "lamp", reset=reset, observe=outside)

    assert "a replay alone, in which no step runs, changes the outside world" in failed.value.finding
    assert "after:  (['lamp costs 400', 'lamp costs 400'], {})" in failed.value.finding
    assert "put what has an effect into a step" in failed.value.finding


@perdure.flow
async def double(ctx: Context, item: str) -> str:
    cents = await ctx.step("price", price, item)
    return await ctx.step("book", book_always, cents)


def test_a_step_that_is_not_idempotent_is_found():
    with pytest.raises(CrashTestFailed) as failed:
        crash_test(double, "lamp", reset=reset, observe=outside)

    assert "book ran 2 times" in failed.value.finding
    assert "idempotency_key" in failed.value.finding


@pytest.mark.filterwarnings("ignore::perdure.errors.FlowWarning")
def test_unrecorded_time_in_the_result_is_found_and_its_line_is_named():
    @perdure.flow
    async def hasty(ctx: Context) -> float:
        await ctx.step("price", price, "lamp")
        return time.time()

    with pytest.raises(CrashTestFailed) as failed:
        crash_test(hasty)

    assert "goes wrong even without a crash" in failed.value.finding
    assert "on replay" in failed.value.finding
    assert "test_crashes.py" in failed.value.finding and "use ctx.now()" in failed.value.finding
    assert failed.value.schedule == ""


def hidden() -> float:
    """Where no check of a flow's source looks."""
    return random.random()


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda ctx: ctx.sleep("nap", 60 + hidden()), "nap was due at"),
        (lambda ctx: ctx.step("mail", mail, str(hidden())), "ran again with other arguments"),
        (lambda ctx: ctx.step(f"mail {hidden()}", mail, ""), "Divergence|recorded is step"),
        (lambda ctx: ctx.publish("dice", hidden()) or ctx.sleep("nap", 1), "it published dice"),
    ],
)
def test_unrecorded_dice_are_found_wherever_they_go(use, text):
    @perdure.flow
    async def gambler(ctx: Context) -> None:
        await ctx.step("price", price, "lamp")
        await use(ctx)

    with pytest.raises(CrashTestFailed, match=text):
        crash_test(gambler)


def test_an_end_that_depends_on_a_crash_is_found():
    lives = []

    @perdure.flow
    async def forgetful(ctx: Context) -> int:
        lives.append(1)
        await ctx.step("price", price, "lamp")
        return len(lives)

    with pytest.raises(CrashTestFailed, match="when it ran, and with") as failed:
        crash_test(forgetful, reset=lives.clear)

    assert "even without a crash" in str(failed.value)


def test_a_flow_that_does_not_end_is_told_what_it_waits_for():
    with pytest.raises(CrashTestFailed, match=r"waits for a message 'go' .*messages=\[\(name, body\)\]"):

        @perdure.flow
        async def waits(ctx: Context) -> None:
            await ctx.receive("go")

        crash_test(waits)


# ---- what it tells -------------------------------------------------------------------------------------


def test_the_story_tells_what_happened_and_the_line_shows_it_again():
    with pytest.raises(CrashTestFailed) as failed:
        crash_test(double, "lamp", reset=reset, observe=outside)
    error = failed.value

    assert "dies" in error.story and "executes double/1 book attempt 1 delivery 2" in error.story
    assert "double/1: price ok 400 → step book" in error.story
    assert error.reproduce == (f"crash_test(double, 'lamp', reset=reset, observe=outside, schedule={error.schedule!r})")
    with pytest.raises(CrashTestFailed) as again:
        eval(error.reproduce, globals())
    assert str(again.value) == str(error)


def test_a_random_schedule_shows_itself_again_too():
    with pytest.raises(CrashTestFailed) as failed:
        for seed in range(100):
            crash_test(double, "lamp", reset=reset, observe=outside, schedule=f"random {seed}")

    with pytest.raises(CrashTestFailed) as again:
        eval(failed.value.reproduce, globals())
    assert str(again.value) == str(failed.value)
    assert "under random trouble" in str(again.value)


def test_a_schedule_that_is_survived_passes():
    report = crash_test(careful, "lamp", messages=[("decision", "yes")], schedule="after step 1, before commit 4")

    assert (report.singles, report.pairs, report.random) == (0, 1, 0)
    assert report.repeated == ("price",)


@pytest.mark.parametrize("text", ["tomorrow", "after step", "random x", "after commit 1 before commit 2"])
def test_a_schedule_that_cannot_be_read_says_what_can(text):
    with pytest.raises(CallerError, match="a schedule is crashes like before commit 3"):
        crash_test(careful, "lamp", schedule=text)


@pytest.mark.parametrize("text", ["before commit 3", "after commit 1, after step 2", "random 17"])
def test_a_schedule_reads_as_it_is_written(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize("message", [("go",), "go", (1, 2, 3)])
def test_a_message_that_is_none_is_refused(message):
    with pytest.raises(CallerError, match="messages="):
        crash_test(careful, "lamp", messages=[message])


def test_what_is_no_workflow_is_refused():
    with pytest.raises(CallerError, match="did you forget"):
        crash_test(price, "lamp")


async def test_it_is_for_plain_tests():
    with pytest.raises(CallerError, match="plain `def` tests"):
        crash_test(careful, "lamp")


def test_no_event_loop_is_left_open():
    before = open_loops()  # of other tests

    crash_test(careful, "lamp", messages=[("decision", "yes")], pairs=5, random=5)

    assert [loop for loop in open_loops() if loop not in before] == []


def open_loops() -> list[StepLoop]:
    return [loop for loop in gc.get_objects() if isinstance(loop, StepLoop) and not loop.is_closed()]


# ---- comparing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "samples", "same"),
    [
        (1, [1, 1], True),
        (2, [1, 1], False),
        (3, [1, 2], True),
        ({"a": 1, "id": 9}, [{"a": 1, "id": 1}, {"a": 1, "id": 2}], True),
        ({"a": 2, "id": 9}, [{"a": 1, "id": 1}, {"a": 1, "id": 2}], False),
        ({"a": 1}, [{"a": 1, "id": 1}, {"a": 1, "id": 2}], False),
        ([1, 2, 2], [[1, 2], [1, 3]], False),
        ([1, 9], [[1, 2], [1, 3]], True),
        (["x"], [["x"], []], True),
        ("anything", [[1], {}], True),
        ({"b": 1}, [{"x": 1}, {"y": 1}], True),
        ({"b": 1, "c": 1}, [{"x": 1}, {"y": 1}], False),
        ({1, 2}, [{1}, {3}], False),
    ],
)
def test_what_differs_by_itself_is_not_compared(found, samples, same):
    assert agrees(found, samples) is same
