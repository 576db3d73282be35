"""Random definitions, as documents: for the decompiler, the loaders and the fuzz."""

import random
from typing import Any

from hypothesis import strategies as st

NAMES = ["a", "b", "order", "check_2", "x-y", "with.dot"]
KEYS = ["amount", "order.id", "late"]
ROOTS = ["start", "state", "payload", "reference", "meta"]
MEMBERS = ["x", "class", "a b", "_hidden", "lines"]
TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.floats(allow_nan=False, allow_infinity=False, width=16)
    | st.text(max_size=5)
    | st.sampled_from(
        [
            {"value": ["decimal", "1.50"]},
            {"value": ["duration", "PT90S"]},
            {"value": ["datetime", "2030-01-01T00:00:00Z"]},
            {"value": ["date", "2030-01-01"]},
            {"value": ["uuid", "00000000-0000-0000-0000-000000000007"]},
            {"value": ["bytes", "AAE="]},
        ]
    )
    | st.builds(
        lambda root, rest: {"get": [root, *rest]},
        st.just("state"),
        st.lists(st.sampled_from(MEMBERS) | st.integers(0, 3), max_size=2),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: {"list": items}),
        st.dictionaries(st.text(max_size=4), inner, max_size=3).map(lambda pairs: {"object": pairs}),
        st.builds(
            lambda name, a, b: {"call": [name, a, b]}, st.sampled_from(["eq", "ne", "merge_"]), inner, inner
        ).filter(lambda tree: tree["call"][0] != "merge_"),
        st.builds(lambda a, b: {"call": ["coalesce", a, b]}, inner, inner),
        st.builds(lambda a: {"call": ["text", a]}, inner),
        st.builds(
            lambda name, body: {
                "call": ["map", {"get": ["state", "list"]}, {"each": [name, {"list": [{"get": [name, "x"]}, body]}]}]
            },
            st.sampled_from(["x", "fn", "state", "Decimal", "timedelta"]),
            inner,
        ),
    ),
    max_leaves=6,
)
CONDITIONS = st.recursive(
    st.sampled_from(
        [
            True,
            {"get": ["state", "ok"]},
            {"call": ["lt", {"get": ["state", "n"]}, 3]},
            {"call": ["lt", 3, {"get": ["state", "n"]}]},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda a: {"call": ["not", a]}, inner),
        st.builds(lambda word, a, b: {"call": [word, a, b]}, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(
            lambda word, a, b, c: {"call": [word, a, b, c]}, st.sampled_from(["and", "or", "if"]), inner, inner, inner
        ),
    ),
    max_leaves=5,
)
SPANS = st.sampled_from(["PT1S", "PT0.5S", "PT90S", "PT3600S", "P2D", "P2DT1S", "PT7200S"])
ADDRESSES = st.one_of(
    st.just({"python": "shop:reserve"}),
    st.just({"queue": ["gpu", "shop:reserve"]}),
    st.builds(lambda command: {"service": ["erp", command]}, st.text(max_size=6)),
    st.builds(
        lambda url, headers: {"http": {"method": "POST", "url": url, "headers": headers}},
        st.sampled_from(["https://x.example/", {"call": ["concat", "https://", {"get": ["state", "host"]}]}]),
        st.dictionaries(
            st.sampled_from(["x-id", "accept"]),
            st.sampled_from(["a", {"get": ["state", "h"]}, {"secret": "key", "prefix": "Bearer "}, {"secret": "key"}]),
            max_size=2,
        ),
    ),
)


def _with(fields: dict[str, Any], optional: dict[str, Any]) -> Any:
    return st.fixed_dictionaries(fields, optional=optional)


def _steps(inner: Any) -> Any:
    steps = st.lists(inner, max_size=2)
    name = st.sampled_from(NAMES)
    kinds = [
        _with(
            {"kind": st.just("call"), "name": name, "address": ADDRESSES},
            {
                "payload": st.dictionaries(st.text(max_size=3), TREES, max_size=2).map(lambda pairs: {"object": pairs}),
                "result": st.sampled_from(["r", "s"]),
                "returns": st.just({"type": "object", "properties": {"x": {"type": "integer", "default": 3}}}),
                "retries": st.integers(0, 9),
                "backoff": st.just({"base": 2.5, "jitter": 0.5}),
                "retry_if": CONDITIONS,
                "timeout": SPANS,
                "attempt_timeout": SPANS,
                "once": st.booleans(),
                "on_failure": steps,
                "on_unknown": steps,
            },
        ),
        _with({"kind": st.just("decide"), "name": name, "condition": CONDITIONS, "then": steps}, {"otherwise": steps}),
        st.builds(
            lambda name, one, two, rest: {
                "kind": "choose",
                "name": name,
                "cases": [
                    {"label": "l1", "condition": one, "steps": rest},
                    {"label": "l2", "condition": two, "steps": []},
                ],
            },
            name,
            CONDITIONS,
            CONDITIONS,
            steps,
        ),
        st.builds(
            lambda name, source, rest, more: {"kind": "repeat", "name": name, "steps": rest, **source, **more},
            name,
            st.sampled_from(
                [
                    {"over": {"get": ["state", "list"]}},
                    {"times": 3},
                    {"while": {"get": ["state", "ok"]}},
                    {"until": True},
                ]
            ),
            steps,
            st.fixed_dictionaries({}, optional={"limit": st.integers(1, 9), "as": st.just("row"), "collect": TREES}),
        ),
        _with(
            {
                "kind": st.just("parallel"),
                "name": name,
                "branches": st.dictionaries(st.sampled_from(["p", "q"]), steps, min_size=1),
            },
            {
                "join": st.sampled_from(["all", "any", 1]),
                "on_error": st.sampled_from(["cancel", "wait"]),
                "on_failure": steps,
            },
        ),
        _with(
            {"kind": st.just("subprocess"), "name": name, "workflow": st.just("other")},
            {"input": TREES, "timeout": SPANS, "undo": st.just([])},
        ),
    ]
    return st.one_of(*kinds)


LEAVES = st.one_of(
    _with({"kind": st.just("set"), "key": st.sampled_from(KEYS), "value": TREES}, {"if_value": st.booleans()}),
    _with(
        {"kind": st.just("set_reference"), "key": TREES},
        {"parts": st.dictionaries(st.sampled_from(["company", "if"]), TREES, max_size=2)},
    ),
    _with(
        {"kind": st.just("activate"), "task": st.just("approve")}, {"on_timeout": st.just([]), "on_cancel": st.just([])}
    ),
    _with(
        {"kind": st.just("timer"), "name": st.sampled_from(NAMES), "after": st.just({"value": ["duration", "PT5S"]})},
        {},
    ),
    _with(
        {"kind": st.just("receive"), "name": st.sampled_from(NAMES), "message": st.just("paid")},
        {"result": st.just("r"), "schema": st.just({"type": "integer"}), "match": CONDITIONS, "timeout": SPANS},
    ),
    _with(
        {"kind": st.just("continue_with"), "name": st.sampled_from(NAMES), "workflow": st.just("next")},
        {"key": TREES, "version": st.just("1.0.0")},
    ),
)
STEPS = st.lists(st.recursive(LEAVES, _steps, max_leaves=8), max_size=3)
TASKS = st.fixed_dictionaries(
    {"roles": st.just({"list": ["manager"]})},
    optional={
        "title": st.just({"call": ["concat", "Approve ", {"get": ["start", "id"]}]}),
        "data": TREES,
        "answer": st.just({"type": "object", "properties": {"outcome": {"enum": ["yes", "no"]}}}),
        "due": st.just({"value": ["duration", "P2D"]}),
        "escalate": st.just([{"after": "P1D", "roles": ["boss"], "release": True}]),
        "quorum": st.just({"need": 2, "of": 3, "veto": {"no": 1}}),
    },
).filter(lambda task: "quorum" not in task or "answer" in task)
DOCUMENTS = st.fixed_dictionaries(
    {
        "format": st.just("perdure.process/1"),
        "name": st.just("random"),
        "version": st.just("1.2.3"),
        "tasks": st.fixed_dictionaries({"approve": TASKS}),
        "steps": STEPS,
    },
    optional={
        "title": st.text(max_size=8),
        "labels": st.just({"team": "shop"}),
        "input": st.just({"type": "object", "properties": {"id": {"type": "string"}}}),
        "state": st.just({"amount": {"get": ["start", "amount"]}}),
        "reference": st.just({"key": {"get": ["start", "id"]}, "parts": {"company": "acme"}}),
        "roles": st.just(["all"]),
        "unhandled": st.sampled_from(["stuck", "fail"]),
        "limits": st.just({"depth": 3}),
        "retention": st.just({"completed": "P30D"}),
    },
)


def mutated(document: Any, dice: random.Random) -> Any:
    """The document with something changed somewhere: a value, a name, a part that is gone or stands elsewhere."""
    places: list[tuple[Any, Any]] = []
    ahead = [document]
    while ahead:
        part = ahead.pop()
        items = (
            list(part.items()) if isinstance(part, dict) else list(enumerate(part)) if isinstance(part, list) else []
        )
        for key, value in items:
            places.append((part, key))
            ahead.append(value)
    if not places:
        return JUNK[dice.randrange(len(JUNK))]
    for _ in range(dice.randrange(1, 4)):
        part, key = dice.choice(places)
        if (isinstance(part, dict) and key not in part) or (isinstance(part, list) and key >= len(part)):
            continue
        match dice.randrange(5):
            case 0:
                part[key] = dice.choice(JUNK)
            case 1:
                del part[key]
            case 2 if isinstance(part, dict):
                part[dice.choice(["kind", "name", "get", "call", "steps", "x" * 300, ""])] = part.pop(key)
            case 3:
                other, place = dice.choice(places)
                part[key] = (
                    other.get(place) if isinstance(other, dict) else other[place] if place < len(other) else None
                )
            case _:
                part[key] = [part[key]] if dice.random() < 0.5 else {"call": ["eq", part[key], part[key]]}
    return document


JUNK: list[Any] = [
    None, True, 0, -1, 10**400, 1e308, "", "x", "\ud800", [], {}, [[]], {"get": []}, {"call": []}, {"each": ["x", 1]},
    {"get": ["nothing"]}, {"call": ["uper", 1]}, {"expr": "state."}, {"expr": "__import__('os')"}, {1: 2}, "a" * 5000,
    {"value": ["decimal", "x"]}, {"kind": "call"}, {"kind": "?"}, "PT-1S", float("nan"), b"bytes", {"type": "nope"},
    {"$ref": "#/$defs/x"},
]  # fmt: skip
