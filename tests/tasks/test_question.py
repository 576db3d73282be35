"""The question of a task: what may be asked, and what each wrong argument is told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.codec import decode, from_plain
from perdure.errors import BadCall
from perdure.tasks.model import Escalation, Question, Quorum, key_of, question
from tests.tasks.desk import Verdict

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def ask(name: Any = "approve", **more: Any) -> Question:
    more.setdefault("roles", ["clerk"])
    return question(name, workflow="order", key="o-17", location="approve", now=NOW, **more)


def test_a_question_is_fixed_when_it_is_asked():
    asked = ask(due=HOUR, expire=NOW + 2 * HOUR, escalate=[Escalation(HOUR, roles=["lead"])], answer=Verdict)

    assert (asked.due, asked.expire, asked.escalate[0].at) == (NOW + HOUR, NOW + 2 * HOUR, NOW + HOUR)
    assert asked.outcomes == ("approve", "reject")
    assert from_plain(decode(asked.encode()), Question) == asked


def test_people_who_are_not_known_are_left_out_of_exclude():
    assert ask(exclude=["ann", None, "ann"]).exclude == ("ann",)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": ""}, "a task has a name"),
        ({"name": 7}, "a task has a name"),
        ({"roles": []}, "PD042"),
        ({"roles": "clerk"}, "list of texts"),
        ({"roles": [7]}, "list of texts"),
        ({"users": [""]}, "of 1 to 512 characters"),
        ({"users": ["a\x00b"]}, "of 1 to 512 characters"),
        ({"assignee": "x" * 600}, "at most 512"),
        ({"exclude": [7]}, "exclude"),
        ({"assignee": "ann", "exclude": ["ann"]}, "ann is its assignee and excluded"),
        ({"assignee": "ann", "quorum": Quorum(2)}, "no assignee"),
        ({"priority": 101}, "from 0 to 100"),
        ({"priority": True}, "from 0 to 100"),
        ({"labels": {"a": 1}}, "labels are texts"),
        ({"due": -HOUR}, "not negative"),
        ({"due": timedelta.max}, "too far in the future"),
        ({"expire": datetime(2026, 1, 1)}, "time zone"),
        ({"expire": "tomorrow"}, "datetime or a timedelta"),
        ({"escalate": [HOUR]}, "perdure.Escalation"),
        ({"data": "x" * (1024 * 1024)}, "at most"),
        ({"title": 7}, "title is a text"),
        ({"answer": {"type": "nothing"}}, "not a JSON Schema"),
        ({"answer": object()}, "no JSON Schema"),
        ({"answer": Verdict, "quorum": Quorum(2, veto={"maybe": 1})}, "which the answer does not have"),
    ],
)
def test_a_wrong_argument_is_told_what_is_expected(arguments: dict[str, Any], told: str):
    with pytest.raises(BadCall, match=told):
        ask(**arguments)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Escalation(HOUR),
        lambda: Escalation(-HOUR, roles=["lead"]),
        lambda: Escalation(5, roles=["lead"]),  # type: ignore[arg-type]
        lambda: Escalation(HOUR, roles=[7]),  # type: ignore[list-item]
        lambda: Escalation(HOUR, priority=400),
    ],
)
def test_an_escalation_that_cannot_be_is_refused(bad):
    with pytest.raises(BadCall):
        bad()


def test_the_key_of_a_task_begins_with_the_key_of_its_owner():
    assert key_of("o-17", 1, "order", "approve") == "o-17/@order/approve"
    assert key_of("o-17", 2, "order", "approve") == "o-17~2/@order/approve"


def test_a_long_location_is_a_hash_in_the_key():
    long = key_of("o-17", 1, "order", "loop/" + "x" * 400)

    assert long.startswith("o-17/@order/~") and len(long) == len("o-17/@order/~") + 16
    assert long != key_of("o-17", 1, "order", "loop/" + "y" * 400)
