"""A simulated world: the same seed tells the same story, and its clock, processes and clients are what
they promise."""

import os

import pytest

from perdure import emit, progress, step_info
from perdure.errors import Fatal
from perdure.flows.author import flow, step
from perdure.flows.context import Context
from perdure.runtime.virtual_clock import Life
from perdure.stores.answers import now
from perdure.stores.sqlite import SqliteStore
from perdure.testing.auditor import Violation
from perdure.testing.disks import Disk
from perdure.testing.faults import Faults
from perdure.testing.simulation import Simulation
from perdure.testing.stores import ask, batch, entry
from tests.disks import held, sqlite_disk
from tests.simulation.sim import PROFILES, check, drawn, main, simulate
from tests.simulation.workloads import WORKLOADS


class Endless:
    def __await__(self):
        yield


@step
async def greet(name: str) -> str:
    return f"hello {name}"


@flow
async def nap(ctx: Context, name: str) -> str:
    await ctx.sleep("nap", 10)
    return await ctx.step("greet", greet, name)


def test_nothing_happens_before_the_clock_moves():
    world = Simulation([nap])
    handle = world.start(nap, "Ada")

    assert handle.status == ""

    world.advance(1)

    assert handle.status == "waiting"


def test_time_passes_only_when_it_is_told_to():
    world = Simulation([nap])
    handle = world.start(nap, "Ada")

    world.advance(9.9)
    assert handle.status == "waiting"

    world.advance(0.3)
    assert handle.result == "hello Ada"


def test_a_world_runs_until_everything_has_ended():
    world = Simulation([nap])
    handles = [world.start(nap, name, key=name) for name in ("Ada", "Bob")]

    world.run()

    assert [handle.result for handle in handles] == ["hello Ada", "hello Bob"]


def test_an_instance_without_a_result_says_what_it_has():
    world = Simulation([nap])
    handle = world.start(nap, "Ada")
    world.advance(1)

    with pytest.raises(AssertionError, match="nap/1 has no result: waiting"):
        _ = handle.result


def test_a_process_that_dies_is_followed_by_another():
    world = Simulation([nap])
    handle = world.start(nap, "Ada")
    world.advance(1)

    world.processes[0].crash("of a kill")
    assert world.processes == []
    world.run()

    assert handle.result == "hello Ada"
    assert [process.number for process in world.processes] == [2]


def test_a_zombie_cannot_write():
    world = Simulation([nap])
    handle = world.start(nap, "Ada")
    world.advance(1)

    world.spawn()
    world.processes[0].shard.offer(handle.address, world.requests[0].event)
    world.advance(20)

    assert world.counts["zombie writes refused"] == 1
    assert handle.result == "hello Ada"


def test_the_same_seed_tells_the_same_story():
    def story(seed):
        lines: list[str] = []
        simulate(seed, lines.append)
        return lines

    assert story(29) == story(29)
    assert story(29) != story(41)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_workload_ends_as_it_should_in_a_calm_world(workload):
    for seed in range(3):
        world = workload.simulation(seed=seed)
        expected = workload.begin(world)
        world.advance(1)
        world.run()

        check(world, expected)
        world.auditor.replay_all(whole=True)


def test_an_instance_that_waits_for_ever_is_noticed():
    @flow
    async def forgotten(ctx) -> None:
        await ctx.receive("never")

    world = Simulation([forgotten])
    world.start(forgotten)

    with pytest.raises(Violation, match="waiting for ever"):
        world.run()


def test_a_step_that_waits_for_real_input_is_told_so():
    async def read() -> None:
        await Endless()

    @flow
    async def impatient(ctx) -> str:
        try:
            await ctx.step.options(retries=0)("wait", read)
        except Exception as error:
            return str(error)
        return "?"

    world = Simulation([impatient])
    handle = world.start(impatient)
    world.run()

    assert "may not wait for real input" in handle.result


def test_a_fatal_step_is_executed_once():
    @flow
    async def doomed(ctx) -> None:
        async def doom() -> None:
            raise Fatal("no")

        await ctx.step("doom", doom)

    world = Simulation([doomed])
    handle = world.start(doomed)
    world.run()

    assert handle.status == "failed"
    assert [execution.location for execution in world.auditor.executions] == ["doom"]


def test_a_lost_execution_is_repeated_as_the_next_delivery():
    world = Simulation([nap], faults=Faults(lost=1.0))
    handle = world.start(nap, "Ada")
    world.advance(10.1)
    world.run()

    assert handle.result == "hello Ada"
    deliveries = [execution.delivery for execution in world.auditor.executions]
    assert deliveries == sorted(set(deliveries)) and len(deliveries) > 1
    assert len(world.auditor.executed_keys) == 1


def test_the_command_line_counts_and_ends_with_a_plain_line(capsys):
    assert main(["--seeds", "24", "--jobs", "1"]) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["schedules", "24"]
    assert out[-1] == "24 passed, 0 failed"


def test_a_seed_can_be_told_as_a_story(capsys):
    assert main(["--seed", "5", "--story"]) == 0

    out = capsys.readouterr().out
    assert "process 1 opens" in out
    assert out.endswith("1 passed, 0 failed\n")


def test_a_failing_seed_prints_the_line_that_reproduces_it(capsys):
    from tests.simulation.seeded_bugs import SEEDED_BUGS, with_bug

    with with_bug(SEEDED_BUGS[0]):
        code = main(["--seeds", "2", "--jobs", "1"])

    assert code == 1
    out = capsys.readouterr().out.splitlines()
    assert "python -m tests.simulation.sim --seed 0 --story" in out
    assert out[-1].endswith("failed") and not out[-1].endswith(" 0 failed")


def test_the_same_seed_records_the_same_whether_steps_send_frames_or_not():
    def story(frames: int) -> tuple[list[object], int]:
        @step
        async def talk(n: int) -> int:
            for number in range(frames):
                progress(number, frames)
                emit(number)
            if n == 1 and step_info().attempt == 1:
                raise ValueError("not yet")
            return n

        @flow(name="talks")
        async def talks(ctx: Context) -> int:
            return sum([await ctx.step("talk", talk, n) for n in range(4)])

        world = Simulation([talks], seed=7, faults=Faults(lost=0.2, crash_after=0.1, duplicate=0.3))
        world.start(talks, key="k")
        world.run()
        return list(world.database.journal), world.counts["frames"]

    silent, none = story(frames=0)
    chatty, some = story(frames=3)

    assert chatty == silent
    assert none == 0 and some >= 5 * 2 * 3


# ---- on a file -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_same_seed_leaves_the_same_rows_in_a_file_as_in_memory(workload):
    """Each workload under each profile of faults, zombies and posts of other processes included."""
    seeds = {drawn(seed)[1]: seed for seed in reversed(range(1000)) if drawn(seed)[0] is workload}
    assert seeds.keys() == set(PROFILES)
    for seed in seeds.values():
        in_memory = Disk()
        expected = simulate(seed, disk=in_memory)
        with sqlite_disk() as file:
            found = simulate(seed, disk=file)

            assert found == expected and not found.error
            assert held(file) == held(in_memory)
            assert ask(SqliteStore.open_client(file.path).check()) == []


def test_a_process_that_dies_leaves_a_file_that_the_next_one_recovers():
    with sqlite_disk() as disk:
        life = Life()
        first = disk.connect(life)
        now(first.acquire, "first")
        first.commit(batch(journal=[entry(1, 1)]), lambda error: None)
        life.alive = False

        second = disk.connect(Life())
        assert os.path.getsize(f"{disk.path}-wal") > 0
        assert now(second.acquire, "second").epoch == 2
        assert now(second.position).seq == 1


def test_a_zombie_on_a_file_can_write_nothing():
    with sqlite_disk() as disk:
        world = Simulation([nap], disk=disk)
        handle = world.start(nap, "Ada")
        world.advance(1)
        world.spawn()
        world.advance(20)

        assert world.counts["zombie writes refused"] == 1
        assert handle.result == "hello Ada"
