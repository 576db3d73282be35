"""The definition: one hash whatever the spelling, text in and out, the decompiler, and documents of all sorts."""

import json
import os
import random
from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from perdure.app.ours import load_process
from perdure.codec import decode
from perdure.errors import BadCall, BadProcess, PerdureError
from perdure.processes import Call, Complete, Decide, Process, Reference, Set, Timer, fn, service, start, state
from perdure.processes.load import from_text
from tests.processes.documents import DOCUMENTS, mutated
from tests.processes.shop import purchase
from tests.stages import LONG

CORPUS = Path(__file__).parent / "corpus.json"
FUZZ = int(os.environ.get("PERDURE_FUZZ", "2000"))  # `make fuzz` makes it 100000


def run(source: str) -> Process:
    names: dict[str, Any] = {}
    exec(source, names)
    found: Process = names["process"]
    return found


def test_bytes_equal_the_kept_corpus():
    kept = json.loads(CORPUS.read_text())

    found = {name: Process.of(document).hash for name, document in kept["documents"].items()}

    assert found == kept["hashes"]
    assert purchase.hash == kept["hashes"]["purchase-approval"]


def test_the_hash_ignores_the_order_of_keys_and_line_ends():
    data = purchase.data

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(list(value))}
        return [turned(item) for item in value] if isinstance(value, list) else value

    assert Process.of(turned(data)).hash == purchase.hash
    assert from_text(purchase.export("yaml").replace("\n", "\r\n")).hash == purchase.hash


def test_yaml_json_and_python_give_one_hash():
    found = {run(purchase.export("python")).hash, *(from_text(purchase.export(form)).hash for form in ("json", "yaml"))}

    assert found == {purchase.hash}


def test_an_expression_may_be_text_and_a_literal_is_spelled_in_one_way():
    text = from_text(
        """
        format: perdure.process/1
        name: small
        version: 1.0.0
        steps:
          - kind: decide
            name: cheap
            condition: {expr: "state.amount < value('decimal', '500.00')"}
            then:
              - {kind: timer, name: pause, after: {value: [duration, PT60S]}}
        """
    )
    built = Process(
        "small",
        version="1.0.0",
        steps=[Decide("cheap", state.amount < Decimal("500.00"), [Timer("pause", after=timedelta(minutes=1))])],
    )

    assert text.hash == built.hash


def test_the_definition_is_what_it_decodes_to():
    assert decode(purchase.bytes) == purchase.data
    assert purchase.version == f"1.2.0+{purchase.hash[7:19]}"


def test_constructors_are_frozen_and_equal_by_what_they_mean():
    one, two = Set("a", state.b + 1), Set("a", state.b + 1)

    assert one == two and hash(one) == hash(two)
    assert one != Set("a", state.b + 2)
    assert len({Reference(state.b, c=1), Reference(state.b, c=1), Reference(state.b)}) == 2
    with pytest.raises(AttributeError, match="frozen"):
        one.x = 1


def test_a_definition_does_not_change_with_the_values_that_it_was_made_of():
    schema: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    process = Process("p", version="1.0.0", steps=[Set("a", 1)], input=schema)

    schema["properties"]["n"]["type"] = "string"
    process.data["steps"].clear()

    assert process.data["input"]["properties"]["n"] == {"type": "integer"}
    assert process == Process.of(process.data) and len(process.data["steps"]) == 1
    with pytest.raises(BadCall, match="json, yaml or python"):
        process.export("toml")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda: bool(state.a), "write & for and"),
        (lambda: state.a and state.b, "write & for and"),  # type: ignore[redundant-expr]
        (lambda: 1 < state.a < 3, r"\(a < b\) & \(b < c\)"),
        (lambda: 1 in state.a, "fn.contains"),
        (lambda: len(state.a), "fn.length"),
        (lambda: list(state.a), "Repeat"),
        (lambda: f"Approve {state.a}", r"fn.concat\(..., state.a\)"),
        (lambda: state.a(1), "a function is called by its name"),
        (lambda: fn.map(state.a, lambda x, y: x), "one parameter"),
        (lambda: setattr(state, "a", 1), "Set"),
        (lambda: state[1:2], "fn.slice"),
    ],
)
def test_what_python_would_compute_at_once_is_a_type_error_with_what_to_write(use: Any, advice: str):
    with pytest.raises(TypeError, match=advice):
        use()


@settings(
    max_examples=100 if LONG else 50,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # shrinking a definition takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(DOCUMENTS)
def test_source_compiles_back_and_every_text_gives_the_same_hash(document: dict[str, Any]):
    process = Process.of(document)
    assume(not any(each.severity == "error" for each in process.problems))

    assert run(process.source()).bytes == process.bytes
    assert from_text(process.export("json")).bytes == process.bytes
    assert from_text(process.export("yaml")).bytes == process.bytes
    process.draw("json")


def test_mutated_documents_have_problems_and_nothing_else():
    dice = random.Random(7)
    document = purchase.data
    problems = 0

    for _ in range(FUZZ):
        process = Process.of(mutated(deepcopy(document), dice))
        found = [each for each in process.problems if each.severity == "error"]
        problems += bool(found)
        if not found:
            with suppress(BadProcess):  # a name became that of a function of users, which no engine gave
                assert process.program.hash == process.hash
            assert Process.of(process.data).hash == process.hash

    assert problems > FUZZ / 2


def test_mutated_text_has_problems_and_nothing_else():
    dice = random.Random(11)
    texts = [purchase.export("json"), purchase.export("yaml")[:3000]]

    for _ in range(FUZZ // 20):
        text = list(dice.choice(texts))
        for _ in range(dice.randrange(1, 6)):
            text[dice.randrange(len(text))] = dice.choice("{}[]:,-\"' \n\tx0")
        try:
            assert from_text("".join(text)).problems is not None
        except BadProcess as error:
            assert error.problems


def test_a_problem_of_a_file_has_its_line_and_column():
    text = purchase.export("yaml").replace("kind: receive", "kind: recieve")

    (problem,) = [
        each for each in from_text(text, "shop.yaml").problems if each.severity == "error" and each.code == "PD003"
    ]

    line = text.split("\n").index("- kind: recieve") + 1
    assert problem.where == f"steps[4].kind (shop.yaml:{line}:3)"
    assert problem.hint == "did you mean receive?"


def test_a_problem_of_python_has_its_file_and_line():
    process = Process("p", version="1.0.0", steps=[Call("a", service("s", "c"), retries=-1), Complete(start.x)])

    (problem,) = process.problems

    assert problem.where.startswith("steps[0].retries (")
    assert f"{Path(__file__).name}:" in problem.where
    with pytest.raises(BadProcess, match="PD024"):
        process.bytes  # noqa: B018


@pytest.mark.parametrize(
    "text", ["", "a: &x 1\nb: *x", "a: 1\na: 2", "<<: {a: 1}", "%YAML 1.1\n---\na: 1", "[" * 5000, "{" * 5000, "\x00"]
)
def test_text_that_cannot_be_read_is_one_error(text: str):
    with pytest.raises(BadProcess):
        from_text(text).data  # noqa: B018


@pytest.mark.parametrize(
    ("name", "body", "told"), [("p.yaml", b"\xff", "PD003: it is not UTF-8"), ("p.py", b"", "import the process")]
)
def test_a_file_that_is_no_definition_says_what_to_do(tmp_path: Path, name: str, body: bytes, told: str):
    (tmp_path / name).write_bytes(body)

    with pytest.raises(PerdureError, match=told):
        load_process(tmp_path / name)
