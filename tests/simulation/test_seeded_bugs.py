"""Every seeded bug is caught, and the code without them survives the same worlds."""

import pytest

from tests.simulation.seeded_bugs import SCHEDULES_MAX, SEEDED_BUGS, SeededBug, hunt
from tests.simulation.sim import survey

SURVIVED = 300


def test_there_are_many_seeded_bugs():
    names = [bug.name for bug in SEEDED_BUGS]

    assert len(names) >= 12
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize("bug", SEEDED_BUGS, ids=lambda bug: bug.name)
def test_the_simulation_catches(bug: SeededBug, record_property):
    catch = hunt(bug)

    assert catch.schedules, f"{SCHEDULES_MAX} schedules did not notice that {bug.name}"
    record_property("schedules", catch.schedules)
    print(f"{bug.name}: caught after {catch.schedules} schedules: {catch.error}")


@pytest.fixture(scope="module")
def survived():
    return survey(range(SURVIVED))


@pytest.mark.slow
def test_the_code_without_bugs_survives(survived):
    failed, totals = survived

    assert [(verdict.seed, verdict.summary) for verdict in failed] == []
    assert totals["schedules"] == SURVIVED


@pytest.mark.slow
def test_a_few_hundred_worlds_see_every_kind_of_fault(survived):
    _, totals = survived

    for kind in (
        "crashes before a commit",
        "crashes after a commit",
        "crashes inside a commit",
        "crashes after a side effect",
        "commits written but reported failed",
        "commits refused by the disk",
        "late commits",
        "late loads",
        "zombie writes refused",
        "receipts duplicated",
        "receipts delayed",
        "messages duplicated",
        "messages delayed",
        "restarts in good order",
        "clock jumps",
        "reads failed",
    ):
        assert totals[kind], f"no {kind}"
