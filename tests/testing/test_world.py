"""The world of a test: time moves when the test says so, steps are real or scripted, and nothing ever hangs."""

import asyncio
import socket
import threading
from datetime import UTC, datetime, timedelta

import pytest

import perdure
from perdure import Backoff, CallerError, Context, InstanceFailed, InstanceStuck, NotYet, step_info
from perdure.testing import World
from tests.simulation.workloads import Tally

WEEK = timedelta(days=7)


@pytest.fixture
def world():
    """As the plugin has it; here it must not matter whether the plugin is installed."""
    with World() as world:
        yield world


async def charge(order_id: str, cents: int) -> str:
    return f"c-{order_id}"


def ship(order_id: str) -> str:
    return f"shipped {order_id}"


@perdure.flow
async def order(ctx: Context, order_id: str, cents: int) -> str:
    await ctx.step("charge", charge, order_id, cents)
    message = await ctx.receive("decision", timeout=timedelta(days=2))
    if not message.body["approved"]:
        return "refused"
    await ctx.sleep("cool off", WEEK)
    return await ctx.step("ship", ship, order_id)


@perdure.flow
async def leaf(ctx: Context, value: int) -> int:
    await ctx.receive("go")
    return value * 2


@perdure.flow
async def parent(ctx: Context) -> int:
    return int(await ctx.child(leaf, 4)) + 1


# ---- time ----------------------------------------------------------------------------------------------


def test_an_order_goes_its_way_without_a_second_of_real_time(world):
    handle = world.start(order, "o-17", 4200, key="o-17")
    assert handle.status == "waiting"

    handle.send("decision", {"approved": True})
    world.advance(WEEK)

    assert handle.result() == "shipped o-17"
    assert [line.event for line in handle.history()] == ["started", "receipt", "message", "receipt", "receipt"]
    assert [run.name for run in world.runs()] == ["charge", "ship"]


def test_a_week_is_a_few_steps_of_the_clock_and_not_one_for_each_look_at_the_inbox(world):
    handle = world.start(order, "o-17", 4200)
    handle.send("decision", {"approved": True})
    before = world._simulation.steps

    world.advance(WEEK)

    assert handle.result() == "shipped o-17"
    assert world._simulation.steps - before < 100


def test_nothing_is_early_and_nothing_is_late(world):
    @perdure.flow
    async def naps(ctx: Context) -> list[datetime]:
        times = []
        for n in range(3):
            await ctx.sleep(f"nap {n}", 10)
            times.append(ctx.now())
        return times

    began = world.now
    handle = world.start(naps)
    world.advance(29.999)
    assert handle.status == "waiting"
    world.advance(100)

    assert handle.result() == [began + timedelta(seconds=10 * n) for n in (1, 2, 3)]
    assert world.now == began + timedelta(seconds=129.999)


def test_run_lets_as_much_time_pass_as_it_takes(world):
    approved = world.start(order, "a", 1)
    approved.send("decision", {"approved": True})
    forgotten = world.start(order, "b", 1)

    world.run()

    assert approved.result() == "shipped a"
    with pytest.raises(InstanceFailed, match="decision"):
        forgotten.result()


def test_the_clock_can_begin_anywhere():
    @perdure.flow
    async def today(ctx: Context) -> str:
        return ctx.now().strftime("%A")

    with World(now=datetime(2024, 2, 29, tzinfo=UTC)) as world:
        assert world.start(today).result() == "Thursday"
    with pytest.raises(CallerError, match="time zone"):
        World(now=datetime(2024, 2, 29))


def test_a_start_can_be_delayed(world):
    @perdure.flow
    async def later(ctx: Context) -> datetime:
        return ctx.now()

    handle = world.start(later, delay=60)
    with pytest.raises(NotYet, match="sleeps"):
        handle.result()
    world.advance(60)

    assert handle.result() == world.now
    with pytest.raises(CallerError, match="by no time or more"):  # as of an engine
        world.start(later, delay=-1)


def test_time_does_not_go_back(world):
    with pytest.raises(CallerError, match="does not go back"):
        world.advance(-1)
    with pytest.raises(CallerError, match="number of seconds"):
        world.advance("a week")


# ---- what it waits for ---------------------------------------------------------------------------------


def test_a_result_that_is_not_there_says_what_the_flow_waits_for(world):
    handle = world.start(order, "o-17", 4200, key="o-17")

    with pytest.raises(NotYet) as message:
        handle.result()
    handle.send("decision", {"approved": True})
    with pytest.raises(NotYet) as sleep:
        handle.result()

    assert str(message.value) == (
        "order/o-17 has not ended; it waits for a message 'decision' since 2023-11-14 22:13:20, until 2023-11-16 "
        "22:13:20 at most: handle.send('decision', ...), or world.advance(timedelta(days=2))"
    )
    assert "it sleeps at cool off until 2023-11-21 22:13:20: world.advance(timedelta(days=7))" in str(sleep.value)


def test_what_it_says_to_do_is_enough(world):
    handle = world.start(order, "o-17", 4200, key="o-17")
    world.advance(0.5)
    handle.send("decision", {"approved": True})
    world.advance(0.25)

    with pytest.raises(NotYet) as not_yet:
        handle.result()
    advice = not_yet.value.waits.rpartition(": ")[2]
    exec(advice, {"world": world, "timedelta": timedelta})

    assert handle.result() == "shipped o-17"


def test_a_parent_says_which_child_it_waits_for(world):
    handle = world.start(parent, key="p")

    with pytest.raises(NotYet, match=r"its child leaf/p/leaf .*world.handle\('leaf', 'p/leaf'\)"):
        handle.result()
    world.handle("leaf", "p/leaf").send("go")

    assert handle.result() == 9


def test_a_step_that_never_returns_is_told_and_not_waited_for(world):
    @perdure.flow
    async def hangs(ctx: Context) -> None:
        await ctx.step("wait", asyncio.Event().wait)

    handle = world.start(hangs)
    world.run()

    with pytest.raises(NotYet, match=r"it runs the step wait since .*world.script"):
        handle.result()


def test_a_flow_that_goes_on_for_ever_is_cut_and_told(world):
    @perdure.flow
    async def restless(ctx: Context) -> None:
        while True:
            await ctx.sleep("nap", 1)

    world.start(restless)
    world._simulation.steps_max = 1000

    with pytest.raises(CallerError, match="never comes to rest"):
        world.run()


# ---- steps ---------------------------------------------------------------------------------------------


def test_a_script_stands_in_for_a_step(world):
    world.script("charge", returns="scripted")
    world.script("ship", lambda order_id: f"by script: {order_id}")
    handle = world.start(order, "o-17", 4200)
    handle.send("decision", {"approved": True})
    world.run()

    assert handle.result() == "by script: o-17"
    assert [line.value for line in handle.history() if line.location == "charge"] == ["scripted"]
    (run,) = world.runs("charge")
    assert (run.args, run.kwargs, run.attempt, run.status) == (("o-17", 4200), {}, 1, "ok")


def test_a_script_can_have_an_answer_for_each_call(world):
    world.script("charge", [ConnectionError("down"), TimeoutError("slow"), "c-1"])
    handle = world.start(order, "o-17", 4200)
    assert [run.status for run in world.runs("charge")] == ["error"]

    world.advance(1)

    assert handle.status == "waiting"
    assert [(run.attempt, run.status) for run in world.runs("charge")] == [(1, "error"), (2, "error"), (3, "ok")]


def test_a_script_that_has_no_more_answers_says_so(world):
    world.script("charge", [ConnectionError("down")])
    handle = world.start(order, "o-17", 4200)
    world.run()

    with pytest.raises(InstanceFailed, match="has 1 answers, and this is call 2"):
        handle.result()


def test_a_script_can_always_fail(world):
    world.script("charge", raises=ConnectionError("down"))
    handle = world.start(order, "o-17", 4200)
    world.run()

    with pytest.raises(InstanceFailed, match="down"):
        handle.result()
    assert len(world.runs("charge")) == 4


def test_a_script_is_for_a_name_or_for_one_place(world):
    @perdure.flow
    async def twice(ctx: Context) -> list[str]:
        return [await ctx.step("charge", charge, "a", 1), await ctx.step("charge", charge, "b", 1)]

    world.script("charge", returns="any")
    world.script("charge#2", returns="second")

    assert world.start(twice).result() == ["any", "second"]
    assert [run.location for run in world.runs("charge")] == ["charge", "charge#2"]
    assert [run.location for run in world.runs("charge#2")] == ["charge#2"]


@pytest.mark.parametrize("given", [{}, {"returns": 1, "raises": ValueError()}, {"does": "c-1"}])
def test_a_script_is_one_thing(world, given):
    with pytest.raises(CallerError, match="script"):
        world.script("charge", **given)


def test_a_race_timeout_cuts_a_running_step(world):
    done = []

    async def slow() -> None:
        await asyncio.sleep(0.9)
        done.append("slow")

    @perdure.flow
    async def race(ctx: Context) -> str:
        winner, _ = await ctx.race(
            "race", {"slow": lambda: ctx.step("call", slow), "nap": lambda: ctx.sleep("nap", 0.3)}
        )
        return winner

    handle = world.start(race)
    world.advance(0.3)

    assert handle.result() == "nap"
    assert [(run.location, run.status) for run in world.runs()] == [("race/slow/call", "cut")]
    world.advance(10)
    assert done == []


def test_a_step_times_out_in_virtual_time(world):
    @perdure.flow
    async def hurried(ctx: Context) -> str:
        try:
            await ctx.step.options(timeout=timedelta(hours=1))("sleep", asyncio.sleep, 2 * 3600)
        except perdure.StepTimeout:
            return "timeout"
        return "done"

    handle = world.start(hurried)
    world.advance(3599)
    assert handle.status == "running"
    world.advance(1)

    assert handle.result() == "timeout"


def test_no_timer_of_a_step_fires_early(world):
    """A loop that waits for a time by the clock of its event loop needs one wait: it does not spin."""

    async def until(delay: float) -> int:
        loop, waits = asyncio.get_running_loop(), 0
        end = loop.time() + delay
        while loop.time() < end and waits < 10:
            waits += 1
            rung = loop.create_future()
            loop.call_at(end, rung.set_result, None)
            await rung
        return waits

    @perdure.flow
    async def waits(ctx: Context) -> list[int]:
        return [await ctx.step("until", until, n / 7) for n in range(1, 100)]

    handle = world.start(waits)
    world.run()

    assert handle.result() == [1] * 99


def test_a_sync_step_runs_on_the_thread_of_the_test(world):
    seen = []

    def look() -> str:
        seen.append((threading.get_ident(), step_info().name))
        return "looked"

    @perdure.flow
    async def looks(ctx: Context) -> str:
        return await ctx.step("look", look)

    assert world.start(looks).result() == "looked"
    assert seen == [(threading.get_ident(), "look")]


def test_a_sync_step_has_no_event_loop_around_it_as_in_a_thread(world):
    def old_style() -> str:
        return asyncio.run(asyncio.sleep(0, "ran"))

    @perdure.flow
    async def old(ctx: Context) -> list[str]:
        return [await ctx.step("old", old_style), await ctx.step("lambda", lambda: asyncio.sleep(5, "awaited"))]

    handle = world.start(old)
    world.run()

    assert handle.result() == ["ran", "awaited"]
    assert [(run.name, run.status) for run in world.runs()] == [("old", "ok"), ("lambda", "ok")]


def elsewhere(when: datetime, by: timedelta) -> datetime:
    return when + by


def test_a_step_for_another_process_runs_here_with_its_arguments_converted(world):
    @perdure.flow
    async def far(ctx: Context) -> datetime:
        return await ctx.step.options(executor="process")("far", elsewhere, ctx.now(), WEEK)

    assert world.start(far).result() == world.now + WEEK


def test_a_step_can_say_how_far_it_is(world):
    async def slow() -> None:
        perdure.progress(1, 2, "half")
        await asyncio.sleep(60)

    def quick() -> None:
        perdure.emit("said")

    @perdure.flow
    async def tells(ctx: Context) -> None:
        await ctx.step("quick", quick)
        await ctx.step("slow", slow)

    handle = world.start(tells)

    (open,) = handle.waiting()
    assert open.progress is not None and open.progress.note == "half"


def test_real_threads_and_sockets_are_waited_for(world):
    async def real() -> str:
        async with asyncio.timeout(30):  # of virtual time, which does not pass meanwhile
            word = await asyncio.to_thread(lambda: "thread")
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=ours)
            threading.Thread(target=theirs.sendall, args=[b"socket\n"]).start()
            line = await reader.readline()
            writer.close()
            theirs.close()
        return f"{word} {line.decode().strip()}"

    @perdure.flow
    async def reads(ctx: Context) -> str:
        return await ctx.step("read", real)

    began = world.now
    assert world.start(reads).result() == "thread socket"
    assert world.now == began


# ---- crashes -------------------------------------------------------------------------------------------


def test_what_has_a_receipt_does_not_run_again_after_a_crash(world):
    handle = world.start(order, "o-17", 4200)
    handle.send("decision", {"approved": True})
    world.crash()
    world.run()

    assert handle.result() == "shipped o-17"
    assert len(world.runs("charge")) == 1


def test_a_crash_in_the_middle_of_a_step_runs_it_again_and_runs_no_clean_up(world):
    said = []

    async def slow() -> str:
        said.append(f"begin {step_info().delivery}")
        try:
            await asyncio.sleep(60)
        finally:
            said.append(f"end {step_info().delivery}")
        return "done"

    @perdure.flow
    async def slowly(ctx: Context) -> str:
        return await ctx.step("slow", slow)

    handle = world.start(slowly)
    world.advance(30)
    world.crash()
    world.advance(59)
    assert (handle.status, said) == ("running", ["begin 1", "begin 2"])
    world.advance(1)

    assert handle.result() == "done"
    assert said == ["begin 1", "begin 2", "end 2"]
    assert [(run.delivery, run.status) for run in world.runs("slow")] == [(1, "running"), (2, "ok")]


def test_without_a_cache_every_entry_is_replayed():
    bodies = []

    @perdure.flow
    async def counted(ctx: Context) -> None:
        bodies.append(1)
        for n in range(3):
            await ctx.step(f"s{n}", charge, "a", n)

    for cache, runs in ((4096, 1), (0, 4)):
        bodies.clear()
        with World(cache=cache) as world:
            world.start(counted).result()
        assert len(bodies) == runs


# ---- workflows -----------------------------------------------------------------------------------------


def test_starting_another_workflow_disturbs_nobody(world):
    @perdure.flow
    async def slowly(ctx: Context) -> str:
        await ctx.step("slow", asyncio.sleep, 60)
        return "done"

    @perdure.flow
    async def quickly(ctx: Context) -> str:
        return "quick"

    slow = world.start(slowly)
    assert world.start(quickly).result() == "quick"
    world.run()

    assert slow.result() == "done"
    assert [run.delivery for run in world.runs("slow")] == [1]


def test_newer_code_takes_the_place_of_older_code(world):
    def version(step: str) -> perdure.Flow[..., None]:
        @perdure.flow(name="changing")
        async def changing(ctx: Context) -> None:
            await ctx.step(step, charge, "a", 1)
            await ctx.receive("go")

        return changing

    handle = world.start(version("charge"))
    with pytest.raises(CallerError, match="another workflow named 'changing'"):
        world.start(version("pay"))
    world.register(version("pay"))
    handle.send("go")

    with pytest.raises(InstanceStuck, match="Divergence"):
        handle.result()
    world.register(version("charge"))
    handle.retry()
    assert handle.result() is None


def test_the_source_of_a_flow_is_checked_here_too(world):
    @perdure.flow
    async def hasty(ctx: Context) -> str:
        return datetime.now(UTC).isoformat()

    with pytest.raises(perdure.FlowWarning, match=r"ctx\.now"):
        world.start(hasty)


def test_what_is_no_workflow_is_refused(world):
    with pytest.raises(CallerError, match=r"did you forget @perdure\.flow"):
        world.start(charge)
    with pytest.raises(perdure.UnknownWorkflow, match="ordre"):
        world.start("ordre")


def test_a_machine_of_any_dialect_runs_in_a_world(world):
    tally = Tally("tally")
    handle = world.start(tally, 2, key="t")
    for n in (1, 2):
        handle.send("added", {"n": n})

    assert handle.result() == 3


# ---- the handle ----------------------------------------------------------------------------------------


@perdure.flow
async def desk(ctx: Context) -> list[str]:
    names: list[str] = []
    while True:
        message = await ctx.receive("hello", "stop")
        if message.name == "stop":
            return names
        names.append(message.body)
        ctx.publish("count", len(names))
        if message.body == "slow":
            await ctx.sleep("think", 60)
        message.complete(f"hello {message.body}")


def test_an_answer_comes_at_once_or_not_yet(world):
    handle = world.start(desk)

    assert handle.ask("hello", "Ada") == "hello Ada"
    with pytest.raises(NotYet, match=r"has not answered 'hello'; it sleeps at think"):
        handle.ask("hello", "slow", id="s")
    handle.wake()

    assert handle.ask("hello", "slow", id="s") == "hello slow"
    assert handle.read("count") == 2
    handle.send("stop")
    assert handle.result() == ["Ada", "slow"]
    with pytest.raises(perdure.InstanceEnded):
        handle.send("hello", "Bob")


def test_an_instance_can_be_cancelled(world):
    handle = world.start(order, "o-17", 4200)
    handle.cancel("ordered twice")

    with pytest.raises(perdure.InstanceCancelled, match="ordered twice"):
        handle.result()
    assert handle.error().message == "ordered twice"


def test_a_step_that_may_run_once_is_settled_by_hand(world):
    @perdure.flow
    async def pays(ctx: Context) -> str:
        return await ctx.step.options(once=True)("pay", asyncio.sleep, 60, "paid")

    handle = world.start(pays)
    world.crash()
    with pytest.raises(InstanceStuck, match="not known"):
        handle.result()
    handle.settle("pay", "looked it up")

    assert handle.result() == "looked it up"


def test_a_world_lists_its_instances_with_parents_and_tags(world):
    parent = world.start(order, "o-1", 1, key="p")
    child = world.start(order, "o-2", 1, key="c", parent=parent)
    by_id = world.start(order, "o-3", 1, key="d", parent=parent.id)

    child.tag("team", "blue", by="ann")

    assert [each.key for each in world.instances(parent=parent.summary().id)] == ["d", "c"]
    assert [each.key for each in world.instances(tags={"team": "blue"}, workflow=order)] == ["c"]
    assert (by_id.id, child.progress()) == ("order/d", [])


def test_the_same_key_is_the_same_instance(world):
    first = world.start(order, "o-17", 4200, key="o-17")
    world.start(order, "o-17", 4200, key="o-17")

    assert len(world.runs("charge")) == 1
    assert (first.workflow, first.key, repr(first)) == ("order", "o-17", "<handle order/o-17>")
    with pytest.raises(perdure.KeyInUse):
        world.start(order, "o-17", 9900, key="o-17")


def test_two_worlds_of_one_seed_record_the_same_bytes(tmp_path):
    @perdure.flow
    async def rolls(ctx: Context) -> str:
        await ctx.receive("go")
        return str(ctx.uuid())

    files = []
    for n, seed in enumerate((1, 1, 2)):
        with World(seed=seed) as world:
            handle = world.start(rolls)
            handle.send("go")
            handle.export(tmp_path / f"{n}.json")
        files.append((tmp_path / f"{n}.json").read_text())

    assert files[0] == files[1] != files[2]


async def test_a_world_in_an_async_test_says_that_it_is_not_for_it():
    with pytest.raises(CallerError, match="plain `def` tests"):
        World()


def test_backoff_is_virtual_time_too(world):
    @perdure.flow
    async def stubborn(ctx: Context) -> str:
        step = ctx.step.options(retries=2, backoff=Backoff(base=3600, factor=1, max=3600))
        return await step("charge", charge, "a", 1)

    world.script("charge", [ValueError(), ValueError(), "at last"])
    began, handle = world.now, world.start(stubborn)
    with pytest.raises(NotYet, match="backoff"):
        handle.result()
    world.run()

    assert handle.result() == "at last"
    assert world.now - began == timedelta(hours=2)


@pytest.mark.parametrize("on_the_loop", [False, True])
def test_hooks_hear_of_failures_in_a_world_and_their_errors_do_no_harm(world, on_the_loop):
    heard = []

    def hear(problem: perdure.Problem) -> None:
        heard.append(f"{problem.kind} {problem.attempt}")
        raise RuntimeError("a bug in a hook")

    async def hear_on_the_loop(problem: perdure.Problem) -> None:
        await asyncio.sleep(1)
        hear(problem)

    @perdure.flow(on_error=hear_on_the_loop if on_the_loop else hear)
    async def delivery(ctx: Context) -> None:
        await ctx.step.options(retries=1)("charge", charge, "a", 1)

    world.script("charge", raises=ConnectionError("down"))
    handle = world.start(delivery)
    world.run()

    assert (handle.status, heard) == ("failed", ["step 1", "step 2", "flow 1"])


def test_a_failed_flow_is_retried_rewound_and_forked_in_a_world() -> None:
    @perdure.flow
    async def order(ctx: perdure.Context) -> list[int]:
        return [await ctx.step(name, int) for name in ("charge", "ship")]

    world = World()
    world.script("charge", returns=1)
    world.script("ship", [perdure.Fatal("no carrier"), 2, 3])
    handle = world.start(order)
    assert handle.status == "failed"

    handle.retry()
    assert handle.result() == [1, 2]

    assert handle.fork("ship", {"charge": 7}).result() == [7, 3]
    with pytest.raises(perdure.InstanceEnded, match="fork it"):
        handle.rewind("charge")
