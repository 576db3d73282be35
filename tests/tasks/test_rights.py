"""Every cell of the table of rights in docs/tasks/reference.md holds. The cases are made from that table."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from perdure.kernel.asked import Actor
from perdure.tasks.life import CHANGES, ENDED, TaskStatus, changed
from perdure.tasks.rights import VERBS, Standing, TaskRequest, Verb, refusal

PAGE = Path(__file__).parent.parent.parent / "docs" / "tasks" / "reference.md"

CANDIDATE = Actor("cleo", ("clerk",))
BOB = Actor("bob", ("clerk",))
STRANGER = Actor("sam", ("guest",))
ROLES = {
    "candidate": CANDIDATE,
    "assignee": Actor("ann"),
    "manager": Actor("max", ("boss",)),
    "admin": Actor("root", admin=True),
}
OPEN = Standing(TaskStatus.OPEN, ("clerk",), ("ursula",), ("boss",), ("eve",))
HELD = msgspec.structs.replace(OPEN, status=TaskStatus.ASSIGNED, assignee="ann")


def cells() -> Iterator[tuple[str, str, str]]:
    """Verb, role and what the table says of both."""
    _, _, table = PAGE.read_text().partition("\n| verb |")
    header, _, *rows = [line.strip("| ").split(" | ") for line in f"| verb |{table}".partition("\n\n")[0].splitlines()]
    for row in rows:
        for verb in row[0].split(", "):
            for role, says in zip(header[1:5], row[1:5], strict=True):
                yield verb, role, says


def may(task: Standing, verb: str, by: Actor, *, to: Actor | None = None, override: bool = False) -> str:
    """The code of the refusal; empty: it is granted."""
    request = TaskRequest(verb, by, to or (BOB if verb == "assign" else None), override, "enough")  # type: ignore[arg-type]
    found = refusal(task, request)
    return "" if found is None else found.code


def test_the_table_has_every_verb():
    assert {verb for verb, _, _ in cells()} == {"see", *VERBS}


@pytest.mark.parametrize(("verb", "role", "says"), list(cells()), ids=lambda each: str(each).replace(" ", "-"))
def test_a_cell_of_the_table_holds(verb: Verb, role: str, says: str):
    actor = ROLES[role]
    match says:
        case "yes":
            assert not may(HELD, verb, actor)
        case "no":
            assert may(HELD, verb, actor)
        case "if open":
            assert not may(OPEN, verb, actor)
            assert may(HELD, verb, actor) in ("taken", "not-assignee")
        case "no-op":
            assert not may(HELD, verb, actor)
        case "if candidate":
            assert may(OPEN, verb, actor) == "not-candidate"
            assert not may(OPEN, verb, Actor(actor.id, (*actor.roles, "clerk")))
        case "to a candidate":
            assert may(HELD, verb, actor, to=STRANGER, override=True) == "not-candidate"
            assert not may(HELD, verb, actor, to=BOB, override=True)
        case "to anybody":
            assert not may(HELD, verb, actor, to=STRANGER, override=True)
        case "`override=True`":
            assert may(HELD, verb, actor)
            assert not may(HELD, verb, actor, override=True)
        case _:
            pytest.fail(f"the table says {says!r}, and no test knows what that means")


@pytest.mark.parametrize("verb", ["see", *VERBS])
@pytest.mark.parametrize("task", [OPEN, HELD, msgspec.structs.replace(OPEN, status=TaskStatus.COMPLETED)])
def test_an_actor_who_may_not_see_a_task_hears_that_there_is_none(verb: Verb, task: Standing):
    assert may(task, verb, STRANGER, override=True) == "unknown"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("status", sorted(ENDED))
def test_an_ended_task_takes_no_verb(verb: Verb, status: TaskStatus):
    ended = msgspec.structs.replace(HELD, status=status)

    assert {may(ended, verb, actor, override=True) for actor in ROLES.values()} == {"ended"}


def test_a_task_that_is_held_is_not_claimed_but_by_its_holder():
    assert may(HELD, "claim", CANDIDATE) == "taken"
    assert may(HELD, "claim", ROLES["admin"]) == "taken"
    assert not may(HELD, "claim", ROLES["assignee"])


def test_an_assign_from_another_holder_needs_override():
    assert may(HELD, "assign", ROLES["manager"]) == "taken"
    assert not may(HELD, "assign", ROLES["manager"], override=True)
    assert not may(HELD, "assign", ROLES["assignee"])


def test_an_excluded_person_neither_claims_nor_completes_nor_is_assigned():
    eve = Actor("eve", ("clerk",), admin=True)

    assert may(OPEN, "claim", eve) == "excluded"
    assert may(OPEN, "complete", eve, override=True) == "excluded"
    assert may(OPEN, "assign", ROLES["admin"], to=eve) == "excluded"


def test_completing_for_another_is_refused():
    assert may(HELD, "complete", CANDIDATE) == "not-assignee"
    assert may(OPEN, "complete", ROLES["manager"]) == "not-candidate"


def test_a_task_of_several_people_has_no_holder():
    shared = msgspec.structs.replace(OPEN, shared=True)

    assert may(shared, "claim", CANDIDATE) == "shared"
    assert may(shared, "assign", ROLES["admin"]) == "shared"
    assert not may(shared, "complete", CANDIDATE)


def test_a_cancel_needs_a_reason():
    found = refusal(OPEN, TaskRequest("cancel", ROLES["manager"], reason=" "))

    assert found is not None and found.code == "no-reason"


def test_an_open_task_is_released_without_effect():
    assert not may(OPEN, "release", CANDIDATE)


def test_only_the_changes_of_the_table_exist():
    for before in TaskStatus:
        for after in TaskStatus:
            if before is after or after in CHANGES.get(before, ()):
                assert changed(before, after) is after
            else:
                with pytest.raises(ValueError, match="cannot become"):
                    changed(before, after)
