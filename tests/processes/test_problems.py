"""Every problem code has a case and a place."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.processes import Complete, ContinueWith, Process, Receive, Set, SubProcess, Task, start
from perdure.processes.check import Known, check
from perdure.processes.load import from_text

CALL = {"kind": "call", "name": "a", "address": {"service": ["erp", "x"]}}
TASK = {"roles": {"list": ["r"]}}


def document(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"format": "perdure.process/1", "name": "p", "version": "1.0.0", "steps": list(steps), **fields}


def get(*path: Any) -> dict[str, Any]:
    return {"get": list(path)}


def deep(levels: int) -> Any:
    return {"call": ["not", deep(levels - 1)]} if levels else True


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("PD001", "steps[0].retry", document({**CALL, "retry": 3})),
    ("PD001", "x", document(x=1)),
    ("PD002", "steps[0].address", document({"kind": "call", "name": "a"})),
    ("PD003", "steps[0].once", document({**CALL, "once": 1})),
    ("PD003", "steps[0].kind", document({"kind": "cal"})),
    ("PD003", "roles", document(roles="manager")),
    ("PD003", "reference", document(reference="o-17")),
    ("PD003", "tasks.t.priority", document(tasks={"t": {**TASK, "priority": 101}})),
    ("PD003", "steps[0].join", document({"kind": "parallel", "name": "a", "branches": {"b": []}, "join": 2})),
    (
        "PD003",
        "steps[0].undo[0]",
        document({**CALL, "undo": [{"kind": "timer", "name": "t", "after": {"value": ["duration", "PT1S"]}}]}),
    ),
    ("PD004", "name", {**document(), "name": "Purchase"}),
    ("PD004", "name", {**document(), "name": "perdure.mine"}),
    ("PD004", "steps[0].key", document({"kind": "set", "key": "a..b", "value": 1})),
    ("PD005", "version", {**document(), "version": "1.0"}),
    ("PD006", "format", {**document(), "format": "perdure.process/2"}),
    ("PD007", "steps[0].name", document(CALL, CALL)),
    (
        "PD007",
        "steps[0].cases[0].label",
        document({"kind": "choose", "name": "c", "cases": [{"label": "otherwise", "condition": True, "steps": []}]}),
    ),
    ("PD010", "steps[0].task", document({"kind": "activate", "task": "aprove"}, tasks={"approve": TASK})),
    ("PD010", "steps[0].value", document({"kind": "set", "key": "x", "value": get("tasks", "nobody", "by")})),
    ("PD012", "steps[0].value./get", document({"kind": "set", "key": "x", "value": get("item")})),
    ("PD012", "state.a./get", document(state={"a": get("state", "b")})),
    ("PD013", "steps[0].value", document({"kind": "set", "key": "x", "value": get("start", "m")}, input=SCHEMA)),
    (
        "PD013",
        "steps[0].value",
        document({"kind": "set", "key": "x", "value": get("start", "n", "deeper")}, input=SCHEMA),
    ),
    ("PD013", "steps[0].value", document({"kind": "set", "key": "x", "value": get("result", "nothing")})),
    (
        "PD013",
        "steps[1].value",
        document(
            {**CALL, "result": "r", "returns": SCHEMA}, {"kind": "set", "key": "x", "value": get("result", "r", "m")}
        ),
    ),
    (
        "PD013",
        "steps[1].value",
        document(
            {"kind": "parallel", "name": "p", "branches": {"b": []}},
            {"kind": "set", "key": "x", "value": get("result", "p", "last")},
        ),
    ),
    ("PD013", "steps[0].value", document({"kind": "set", "key": "x", "value": get("meta", "user")})),
    ("PD013", "steps[0].key", document({"kind": "set", "key": "n.x", "value": 1}, state_schema=SCHEMA)),
    ("PD014", "steps[0].value./call", document({"kind": "set", "key": "x", "value": {"call": ["uper", "a"]}})),
    ("PD015", "steps[0].value./call", document({"kind": "set", "key": "x", "value": {"call": ["upper"]}})),
    ("PD016", "steps[0].value./call/1", document({"kind": "set", "key": "x", "value": {"call": ["upper", 1]}})),
    ("PD016", "steps[0].condition", document({"kind": "decide", "name": "d", "condition": "yes", "then": []})),
    ("PD017", "steps[0].value./call/1" + "/call/1" * 63, document({"kind": "set", "key": "x", "value": deep(80)})),
    ("PD020", "steps[0]", document({"kind": "parallel", "name": "a", "branches": {}})),
    ("PD020", "steps[0]", document({"kind": "choose", "name": "a", "cases": []})),
    ("PD022", "steps[0]", document({"kind": "repeat", "name": "a", "steps": []})),
    ("PD022", "steps[0]", document({"kind": "timer", "name": "a"})),
    ("PD023", "steps[0].timeout", document({**CALL, "timeout": "PT0S"})),
    ("PD023", "steps[0].after", document({"kind": "timer", "name": "a", "after": {"value": ["duration", "-PT1S"]}})),
    ("PD023", "tasks.t.due", document(tasks={"t": {**TASK, "due": {"value": ["duration", "-PT1S"]}}})),
    ("PD024", "steps[0].retries", document({**CALL, "retries": -1})),
    ("PD024", "steps[0].backoff", document({**CALL, "backoff": {"base": -1}})),
    ("PD032", "steps[0].address", document({**CALL, "address": {"python": "no place"}})),
    ("PD032", "steps[0].address.http.method", document({**CALL, "address": {"http": {"method": "FETCH", "url": "x"}}})),
    (
        "PD032",
        "steps[0].address.http.url",
        document({**CALL, "address": {"http": {"method": "GET", "url": "ftp://x"}}}),
    ),
    ("PD040", "tasks.t.quorum", document(tasks={"t": {**TASK, "quorum": {"need": 3, "of": 2}}})),
    ("PD040", "tasks.t.quorum", document(tasks={"t": {**TASK, "quorum": {"need": 1, "veto": {"no": 1}}}})),
    ("PD041", "input", document(input={"type": "nope"})),
    ("PD042", "tasks.t", document({"kind": "activate", "task": "t"}, tasks={"t": {"title": "x"}})),
    ("PD050", "steps[1]", document({"kind": "complete"}, {"kind": "set", "key": "x", "value": 1})),
    ("PD501", "steps[0]", document({"kind": "receive", "name": "a", "message": "m"})),
    ("PD501", "steps[0]", document({"kind": "subprocess", "name": "a", "workflow": "other"})),
    (
        "PD502",
        "steps[0].branches.b",
        document(
            {
                "kind": "parallel",
                "name": "p",
                "branches": {name: [{"kind": "set", "key": "x", "value": 1}] for name in "ab"},
            }
        ),
    ),
    ("PD504", "tasks.t", document(tasks={"t": TASK})),
    ("PD505", "steps[0]", document({**CALL, "once": True})),
    ("PD507", "steps[1]", document({**CALL, "undo": []}, {**CALL, "name": "b"})),
]


@pytest.mark.parametrize(("code", "where", "given"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_every_problem_code_has_a_case_and_a_place(code: str, where: str, given: dict[str, Any]):
    found = {(each.code, each.where) for each in Process.of(given).problems}

    assert (code, where) in found


def test_what_an_engine_does_not_have_is_a_problem():
    steps = [
        CALL,
        {"kind": "subprocess", "name": "s", "workflow": "other"},
        {"kind": "set", "key": "x", "value": {"call": ["shop.discount", 1]}},
        {"kind": "set", "key": "y", "value": {"call": ["shop.tax", 1]}},
        {**CALL, "name": "b", "address": {"python": "shop:nothing"}},
    ]
    known = Known({"shop.tax": "2.0.0"}, ["epr"], ["othr"], lambda place: False)

    problems = check(Process.of(document(*steps)).data, known)

    found = [(each.code, each.where, each.hint) for each in problems if each.severity == "error"]
    assert found == [
        ("PD031", "steps[1].workflow", "did you mean othr?"),
        ("PD060", "requires.functions.shop.discount", "perdure.open(..., functions=[...])"),
        ("PD060", "requires.functions.shop.tax", "open the engine with that version"),
        ("PD030", "steps[0].address", "did you mean epr?"),
        ("PD060", "steps[4].address", ""),
    ]


def test_all_problems_are_told_at_once():
    process = Process.of(document({**CALL, "retries": -1, "once": 7}, {"kind": "activate", "task": "x"}, version="1"))

    assert {each.code for each in process.problems if each.severity == "error"} == {"PD003", "PD005", "PD010", "PD024"}


def test_a_valid_process_has_no_problem_and_says_what_it_requires():
    process = Process.of(document({**CALL}, {"kind": "set", "key": "x", "value": {"call": ["shop.tax", 1]}}))

    assert process.problems == ()
    assert process.data["requires"] == {"functions": {"shop.tax": 1}, "modules": ["shop"], "transports": ["erp"]}


def test_a_document_that_is_none_is_a_problem():
    for text in ("[]", "1", "null", '"x"'):
        assert from_text(text, yaml=False).problems


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": [Set("x", object())]},
        {"roles": "manager"},
        {"reference": start.id},
        {"state": ["a"]},
        {"functions": 1},
        {"tasks": Task("t", roles=["a"])},
    ],
)
def test_a_value_of_another_kind_is_a_problem(fields: dict[str, Any]):
    process = Process("p", version="1.0.0", **{"steps": [], **fields})

    assert [each.code for each in process.problems] == ["PD003"]


def test_a_result_that_several_steps_write_has_the_members_of_all():
    other = {**SCHEMA, "properties": {"m": {"type": "text"}}}
    calls = [{**CALL, "name": name, "result": "r", "returns": each} for name, each in (("a", SCHEMA), ("b", other))]
    process = Process.of(document(*calls, {"kind": "set", "key": "x", "value": get("result", "r", "m")}))

    assert "PD013" not in {each.code for each in process.problems}


def small(*steps: Any, name: str = "small") -> Process:
    return Process(name, version="1.0.0", steps=list(steps))


HOUR = timedelta(hours=1)
QUICK = small(Receive("m", "go", timeout=HOUR), Complete(1), name="quick")
SLOW = small(Receive("m", "go"), name="slow")


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (SubProcess("s", "other"), True),
        (SubProcess("s", "other", timeout=HOUR), False),
        (SubProcess("s", QUICK), False),
        (SubProcess("s", SLOW), True),
        (SubProcess("s", small(SubProcess("s", QUICK), name="middle")), False),
        (SubProcess("s", small(SubProcess("s", SLOW), name="middle")), True),
        (SubProcess("s", "small"), False),
        (ContinueWith("c", SLOW), False),
        (ContinueWith("c", "other"), False),
    ],
)
def test_a_sub_process_without_a_timeout_is_told_unless_its_child_is_known_to_end(step: Any, told: bool):
    """A hand-over is no wait. Of a child that is given as a process it is known how its waits end."""
    assert [each.code for each in small(step).problems] == ["PD501"] * told
