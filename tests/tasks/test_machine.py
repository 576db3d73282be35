"""The machine of a task: verbs, votes, time, its end. In the pure kernel, with a restart wherever one may come."""

from datetime import timedelta
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.kernel.asked import Actor
from perdure.kernel.decision import Decision
from perdure.kernel.moment import Moment
from perdure.kernel.status import Status
from perdure.tasks.machine import TASKS
from perdure.tasks.model import Escalation, Quorum
from perdure.tasks.votes import NO_QUORUM
from tests.tasks.desk import ANN, BEGIN, BOB, EVE, MAX, ROOT, SAM, Desk, Verdict

HOUR = timedelta(hours=1)


def test_a_task_is_asked_claimed_and_completed_and_its_owner_hears_it():
    desk = Desk(title="Approve it", data={"cents": 4200})
    assert (desk.info.status, desk.info.title, desk.info.owner) == ("open", "Approve it", "told/o-17")

    assert desk.code("claim", ANN) == ""
    assert (desk.info.status, desk.info.assignee, desk.info.held_since) == ("assigned", "ann", BEGIN)
    assert desk.complete(ANN) == ""

    assert (desk.info.status, desk.info.outcome, desk.info.ended_by) == ("completed", "approve", ("ann",))
    assert desk.answered == {
        "outcome": "approve",
        "answer": {"outcome": "approve", "comment": ""},
        "by": "ann",
        "at": BEGIN,
        "votes": [],
    }
    assert desk.receipt.value == desk.outcome.value


def test_asking_costs_one_entry_and_each_verb_one():
    desk = Desk()
    desk.verb("claim", ANN)
    desk.complete(ANN)

    assert len(desk.verbs()) == 3
    assert desk.heard("o-17") == ["Started", "ReceiptArrived ok"]


def test_the_end_of_a_task_and_the_receipt_of_its_owner_are_in_one_commit():
    desk = Desk()
    desk.complete(ANN)

    assert desk.entries("o-17")[-1].seq == desk.verbs()[-1].seq + 1
    assert not desk.inbox


def test_the_index_has_candidates_while_the_task_is_open_and_none_after():
    desk = Desk(users=["ursula"], labels={"team": "red"})
    always = {"*", "n:approve", "w:told", 'l:"team":"red"'}
    people = {"r:clerk", "u:ursula", "m:boss"}
    assert desk.who == always | people
    desk.verb("claim", ANN)
    assert desk.who == {*always, *people, "a:ann"}
    desk.complete(ANN)

    assert desk.who == always


def test_two_claims_give_one_holder():
    desk = Desk()

    assert desk.code("claim", ANN) == ""
    refused = desk.verb("claim", BOB)

    assert (refused["refused"], refused["holder"]) == ("taken", "ann")
    assert desk.info.assignee == "ann"


def test_a_release_gives_it_back():
    desk = Desk()
    desk.verb("claim", ANN)

    assert desk.code("release", BOB) == "not-assignee"
    assert desk.code("release", ANN) == ""
    assert (desk.info.status, desk.info.assignee, desk.info.held_since) == ("open", "", None)


def test_an_assign_needs_override_to_take_a_task_away():
    desk = Desk()
    desk.verb("claim", ANN)

    assert desk.code("assign", MAX, to=["bob", ["clerk"]]) == "taken"
    assert desk.code("assign", MAX, to=["sam", []], override=True) == "not-candidate"
    assert desk.code("assign", MAX, to=["bob", ["clerk"]], override=True) == ""
    assert desk.info.assignee == "bob"


def test_a_task_may_be_held_from_the_start():
    desk = Desk(assignee="ann", roles=[])

    assert (desk.info.status, desk.info.assignee) == ("assigned", "ann")
    assert desk.complete(ANN) == ""


def test_a_wrong_answer_names_every_field_and_changes_nothing():
    desk = Desk()
    before = desk.row

    refused = desk.verb("complete", ANN, answer={"outcome": "maybe", "comment": 7, "extra": 1})

    assert refused["refused"] == "bad-answer"
    assert sorted(where for where, _ in refused["problems"]) == ["", "/comment", "/outcome"]
    assert desk.row == before


def test_an_answer_without_a_form_is_null():
    desk = Desk(answer=None)

    assert desk.verb("complete", ANN, answer=1)["refused"] == "bad-answer"
    assert desk.code("complete", ANN, answer=None) == ""
    assert (desk.answered["outcome"], desk.answered["answer"]) == ("done", None)


def test_an_excluded_admin_cannot_complete():
    desk = Desk(exclude=["eve"])

    assert desk.complete(Actor("eve", ("clerk",), admin=True), override=True) == "excluded"


def test_who_may_not_see_a_task_hears_that_it_does_not_exist():
    assert Desk().code("claim", SAM) == "unknown"


def test_a_message_that_is_no_verb_is_refused_and_changes_nothing():
    desk = Desk()
    before = desk.row

    assert desk.code("destroy", ROOT) == "bad-request"
    assert desk.code("change", MAX, priority=101) == "bad-request"
    assert desk.code("comment", ANN, text="x" * 5000) == "bad-request"
    assert desk.code("assign", ROOT, to="bob") == "bad-request"
    assert desk.row == before


def test_a_comment_is_in_the_journal_and_nowhere_else():
    desk = Desk()
    before = desk.row
    assert desk.code("comment", ANN, text="I ask the supplier") == ""

    assert desk.row == before
    assert not desk.verbs()[-1].decision.publish


def test_a_manager_changes_priority_and_times():
    desk = Desk()

    assert desk.code("change", ANN, priority=80) == "not-manager"
    assert desk.code("change", MAX, priority=80, due=HOUR, expire=BEGIN + 2 * HOUR) == ""
    assert (desk.info.priority, desk.info.due, desk.info.expires) == (80, BEGIN + HOUR, BEGIN + 2 * HOUR)
    assert desk.code("change", MAX, due=None) == ""
    assert (desk.info.priority, desk.info.due) == (80, None)


def test_a_cancel_needs_a_reason_and_reaches_the_owner():
    desk = Desk()

    assert desk.code("cancel", MAX) == "no-reason"
    assert desk.code("cancel", MAX, reason="bought elsewhere") == ""

    assert (desk.info.status, desk.info.ended_by, desk.info.completed_by) == ("cancelled", ("max",), ())
    assert (desk.receipt.status, desk.receipt.error and desk.receipt.error.message) == ("cancelled", "bought elsewhere")
    assert desk.receipt.error is not None and desk.receipt.error.type == "TaskCancelled"
    assert desk.receipt.error.data == {"by": "max"}


def test_ending_the_owner_cancels_its_task_in_the_same_commit():
    desk = Desk()
    desk.cancel("o-17")
    desk.commit(desk.build())

    assert desk.heads[desk.task].status == Status.CANCELLED
    assert desk.info.status == "cancelled"


def test_a_task_outlives_a_stuck_owner_which_hears_it_when_it_goes_on():
    desk = Desk()
    desk.tell("o-17", ("stuck", "somewhere"))
    desk.run()

    assert desk.complete(ANN) == ""
    assert desk.info.status == "completed"
    assert "ReceiptArrived ok" not in desk.heard("o-17")
    desk.restart()
    desk.retry("o-17")
    assert desk.run().heard("o-17")[-1] == "ReceiptArrived ok"


# ---- several people --------------------------------------------------------------------------------------------------


def test_a_quorum_decides_with_the_answer_of_the_deciding_vote():
    desk = Desk(quorum=Quorum(2))

    assert desk.code("claim", ANN) == "shared"
    assert desk.complete(ANN) == ""
    assert (desk.info.status, desk.info.votes) == ("open", 1)
    assert desk.code("complete", BOB, answer={"outcome": "approve", "comment": "me too"}) == ""

    assert desk.answered["answer"] == {"outcome": "approve", "comment": "me too"}
    assert [vote[:2] for vote in desk.answered["votes"]] == [["ann", "approve"], ["bob", "approve"]]
    assert desk.info.ended_by == ("ann", "bob")


def test_a_vote_can_be_changed_until_it_is_decided():
    desk = Desk(quorum=Quorum(2))
    desk.complete(ANN, "reject")
    desk.complete(ANN, "approve")
    assert desk.info.votes == 1
    desk.complete(BOB, "approve")

    assert desk.answered["outcome"] == "approve"


def test_a_veto_decides_alone():
    desk = Desk(quorum=Quorum(3, veto={"reject": 1}))
    desk.complete(ANN)
    desk.complete(BOB, "reject")

    assert (desk.answered["outcome"], desk.info.completed_by) == ("reject", ("bob",))


def test_no_quorum_completes_without_an_answer():
    desk = Desk(quorum=Quorum("majority", of=2))
    desk.complete(ANN)
    desk.complete(BOB, "reject")

    assert (desk.answered["outcome"], desk.answered["answer"]) == (NO_QUORUM, None)
    assert desk.info.ended_by == ("ann", "bob")


def test_an_excluded_person_does_not_vote():
    desk = Desk(quorum=Quorum(1), exclude=["eve"])

    assert desk.complete(EVE) == "excluded"


# ---- time ------------------------------------------------------------------------------------------------------------


def test_a_task_without_times_has_no_timer():
    assert not Desk(due=HOUR).work


def test_an_expired_task_answers_its_owner_with_an_error():
    desk = Desk(expire=HOUR)
    assert [row.kind for row in desk.work.values()] == ["timer"]
    desk.later(hours=1)

    assert desk.info.status == "expired"
    assert desk.receipt.error is not None and desk.receipt.error.type == "TaskExpired"
    assert not desk.work


def test_escalations_happen_once_each_and_take_the_holder_away():
    desk = Desk(
        expire=4 * HOUR,
        escalate=[Escalation(2 * HOUR, users=["ursula"], release=True), Escalation(HOUR, roles=["lead"], priority=90)],
    )
    desk.verb("claim", ANN)

    desk.later(hours=1)
    assert (desk.info.roles, desk.info.priority, desk.info.assignee) == (("clerk", "lead"), 90, "ann")
    desk.later(hours=1)
    assert (desk.info.users, desk.info.status, desk.info.assignee) == (("ursula",), "open", "")
    assert len(desk.work) == 1
    desk.later(hours=2)
    assert desk.info.status == "expired"


def test_what_is_past_due_happens_in_order_in_one_entry():
    desk = Desk(expire=4 * HOUR, escalate=[Escalation(HOUR, roles=["lead"]), Escalation(2 * HOUR, users=["ursula"])])
    desk.later(hours=3)

    assert (desk.info.roles, desk.info.users) == (("clerk", "lead"), ("ursula",))
    assert len(desk.verbs()) == 2
    desk.later(hours=5)
    assert desk.info.status == "expired" and len(desk.verbs()) == 3


def test_an_expiry_before_an_escalation_wins():
    desk = Desk(expire=HOUR, escalate=[Escalation(2 * HOUR, roles=["lead"])])
    desk.later(hours=3)

    assert (desk.info.status, desk.info.roles) == ("expired", ("clerk",))


def test_a_changed_expiry_moves_the_one_timer():
    desk = Desk(expire=HOUR)
    desk.verb("change", MAX, expire=3 * HOUR)
    assert len(desk.work) == 1
    desk.later(hours=2)
    assert desk.info.status == "open"
    desk.verb("change", MAX, expire=None)
    assert not desk.work
    desk.later(hours=20)

    assert desk.info.status == "open"


def test_an_escalation_by_hand_adds_candidates():
    desk = Desk()

    assert desk.code("escalate", ANN, roles=["lead"]) == "not-manager"
    assert desk.code("escalate", MAX, roles=["lead"], users=["ursula"], priority=99) == ""
    assert (desk.info.roles, desk.info.users, desk.info.priority) == (("clerk", "lead"), ("ursula",), 99)


# ---- a replay --------------------------------------------------------------------------------------------------------


class Strict(msgspec.Struct):
    outcome: Literal["reject"]


@pytest.mark.parametrize("quorum", [None, Quorum(1)], ids=["one", "votes"])
@pytest.mark.parametrize(
    ("then", "now"),
    [pytest.param(Verdict, Strict, id="it was taken"), pytest.param(Strict, Verdict, id="it was refused")],
)
def test_in_a_replay_the_recorded_verdict_counts(then: Any, now: Any, quorum: Quorum | None):
    """A form that judges otherwise stands for another release of the validator."""
    desk, other = Desk(answer=then, quorum=quorum), Desk(answer=now, quorum=quorum)
    desk.verb("complete", ANN, answer={"outcome": "approve"})
    (started, *_), entry = other.verbs(), desk.verbs()[-1]

    def decided(recorded: Decision | None) -> Decision:
        machine = TASKS.machine(f"perdure.task/{desk.key}", None)
        machine.deliver(started.event, Moment(started.clock, b"", 1))
        return machine.deliver(entry.event, Moment(entry.clock, b"", 2, recorded=recorded))

    assert decided(entry.decision).outcome == entry.decision.outcome
    assert (decided(None).outcome is None) != (entry.decision.outcome is None)


# ---- the same id, and everything at random ---------------------------------------------------------------------------


def test_the_same_id_gets_the_same_answer_after_a_crash():
    desk = Desk()
    first = desk.verb("claim", ANN, id="click-1")
    desk.restart()
    desk.verb("release", ANN)

    assert desk.verb("claim", ANN, id="click-1") == first
    assert desk.info.status == "open"


PEOPLE = st.sampled_from([ANN, BOB, EVE, MAX, ROOT, SAM])
VERB = st.one_of(
    st.tuples(st.just("claim"), st.just({})),
    st.tuples(st.just("release"), st.just({})),
    st.tuples(
        st.just("assign"),
        st.fixed_dictionaries(
            {"to": st.sampled_from([["bob", ["clerk"]], ["eve", []], ["ann", []]]), "override": st.booleans()}
        ),
    ),
    st.tuples(
        st.just("complete"),
        st.fixed_dictionaries(
            {
                "answer": st.sampled_from([{"outcome": "approve"}, {"outcome": "reject", "comment": "no"}, {}, None]),
                "override": st.booleans(),
            }
        ),
    ),
    st.tuples(
        st.just("change"),
        st.sampled_from([{"priority": 7}, {"due": HOUR}, {"expire": 3 * HOUR}, {"expire": None}, {"priority": -1}]),
    ),
    st.tuples(st.just("comment"), st.just({"text": "hm"})),
    st.tuples(st.just("escalate"), st.sampled_from([{"users": ["eve"]}, {"roles": ["lead"], "release": True}])),
    st.tuples(st.just("later"), st.sampled_from([0.5, 1, 2])),
    st.tuples(st.just("restart"), st.none()),
)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([None, Quorum(2), Quorum("majority", of=3, veto={"reject": 1})]),
    st.sampled_from([None, 5 * HOUR]),
    st.lists(st.tuples(PEOPLE, VERB), max_size=25),
)
def test_a_task_rebuilt_from_its_journal_is_the_task(quorum, expire, story):
    desk = Desk(quorum=quorum, expire=expire, exclude=["eve"], escalate=[Escalation(2 * HOUR, roles=["lead"])])
    for by, (verb, arguments) in story:
        match verb:
            case "later":
                desk.later(hours=arguments)
            case "restart":
                desk.restart()
                desk.run()
            case _:
                desk.verb(verb, by, **arguments)
        the_rows_say_what_the_journal_says(desk)


def the_rows_say_what_the_journal_says(desk: Desk) -> None:
    from perdure.kernel.replay import rebuild

    folded = desk.folded(desk.task)
    assert desk.row.status in ("open", "assigned") or folded.ended
    assert ("r:clerk" in desk.who) != folded.ended
    assert len(desk.work) <= 1
    live = desk.kernel.cache.get(desk.task)
    if live is not None and live.machine is not None and not live.ended:
        assert rebuild(folded, TASKS).snapshot() == live.machine.snapshot()


@pytest.mark.parametrize("place", range(6))
def test_a_snapshot_goes_on_as_the_machine_would(place: int):
    desk = Desk(quorum=Quorum(2), expire=9 * HOUR, escalate=[Escalation(2 * HOUR, roles=["lead"])])
    story: list[tuple[str, dict[str, Any]]] = [
        ("comment", {"text": "hm"}),
        ("complete", {"answer": {"outcome": "reject"}}),
        ("later", {}),
    ]
    for verb, arguments in (story * 2)[:place]:
        desk.later(hours=1) if verb == "later" else desk.verb(verb, ANN, **arguments)
    live = desk.kernel.cache.get(desk.task)
    assert live is not None and live.machine is not None
    taken = live.machine.snapshot()

    assert TASKS.machine(f"perdure.task/{desk.key}", taken).snapshot() == taken
