"""Bad input: each case is one typed error with its exit code, says where and what to do, and nothing is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Actor, PerdureError
from perdure.cli.exits import exit_of
from perdure.processes import Activate, Complete, Process, Receive, Reference, Set, Task, fn, start
from tests.processes.shop import Verdict

ANN = Actor("ann", ["manager"])
LARGE = "x" * 17_000_000


def made(version: str = "1.0.0", *steps: Any, title: str = "Orders", name: str = "order") -> Process:
    return Process(
        name,
        version=version,
        title=title,
        input={
            "type": "object",
            "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
            "required": ["id"],
            "additionalProperties": False,
        },
        reference=Reference(start.id),
        tasks=[Task("approve", answer=Verdict, roles=["manager"])] if not steps else [],
        steps=list(steps) or [Activate("approve"), Receive("paid", "paid", schema=int), Complete("end")],
    )


good, broken = made(), made("1.0.0", Activate("nobody"), Set("x", fn.uper("a")), name="broken")
unstored = made("2.0.0", Complete(1))
ended = made("1.0.0", Receive("paid", "paid"), Complete("end"), name="ended")


async def open_broken(engine: Any, task: str) -> None:
    async with perdure.open(":memory:", workflows=[good, broken]):
        pass


CASES: dict[str, tuple[str, int, tuple[str, ...], Any]] = {
    "a definition with problems, opened": (
        "BadProcess", 2, ("broken 1.0.0 has 2 problems", "PD010", "PD014", "test_bad_input.py", "upper"), open_broken,
    ),
    "a definition with problems, put": (
        "BadProcess", 2, ("broken", "PD010", "PD014"), lambda engine, task: engine.processes.put(broken),
    ),
    "an input that does not fit": (
        "NotConvertible", 2, ("order: $.n", "integer", "many"),
        lambda engine, task: engine.start(good, id="z", n="many"),
    ),
    "an input without a field": ("NotConvertible", 2, ("id", "order"), lambda engine, task: engine.start(good, n=1)),
    "a message that nothing receives": (
        "NotConvertible", 2, ("expected a message that a receive takes, found 'payd': did you mean paid?",),
        lambda engine, task: engine.handle(good, "a").send("payd", 1),
    ),
    "a message that does not fit": (
        "NotConvertible", 2, ("expected a body of paid that a receive takes, found one that does not fit", "integer"),
        lambda engine, task: engine.handle(good, "a").send("paid", "much"),
    ),
    "an answer that does not fit": (
        "BadAnswer", 2, ("outcome", "approve"),
        lambda engine, task: engine.tasks.complete(task, {"outcome": "perhaps"}, by=ANN),
    ),
    "an input that is too large": (
        "TooLarge", 2, ("the input of order", "limit", "record a reference"),
        lambda engine, task: engine.start(good, id=LARGE, key="z"),
    ),
    "a message that is too large": (
        "TooLarge", 2, ("message 'paid'", "limit", "record a reference"),
        lambda engine, task: engine.handle(good, "a").send("paid", LARGE),
    ),
    "an unknown workflow": (
        "UnknownWorkflow", 3, ("'ordr'", "did you mean 'order'?"), lambda engine, task: engine.start("ordr", id="z"),
    ),
    "an unknown definition": (
        "UnknownWorkflow", 3, ("ordr", "order"), lambda engine, task: engine.processes.get("ordr"),
    ),
    "an unknown version, started": (
        "UnknownVersion", 3, ("order", "2.0.0", "1.0.0"), lambda engine, task: engine.start(unstored, id="z", key="z"),
    ),
    "an unknown version, read": (
        "UnknownVersion", 3, ("order", "9.0.0", "1.0.0"), lambda engine, task: engine.processes.get("order", "9.0.0"),
    ),
    "an unknown version, activated": (
        "UnknownVersion", 3, ("order", "9.0.0", "1.0.0"),
        lambda engine, task: engine.processes.activate("order", "9.0.0", by="ann"),
    ),
    "an unknown instance": (
        "UnknownInstance", 3, ("order/nobody", "perdure ls"),
        lambda engine, task: engine.handle(good, "nobody").send("paid", 1),
    ),
    "a reference of none": (
        "UnknownInstance", 3, ("'o-9'", "perdure ls"), lambda engine, task: engine.send_to("paid", 1, reference="o-9"),
    ),
    "a reference of several": (
        "AmbiguousReference", 4, ("'o-1'", "order/a", "order/b", "parts="),
        lambda engine, task: engine.send_to("paid", 1, reference="o-1"),
    ),
    "a key in use": (
        "KeyInUse", 4, ("order/a", "input"), lambda engine, task: engine.start(good, id="other", key="a"),
    ),
    "other bytes under one version": (
        "DefinitionConflict", 4, ("order 1.0.0", "title", "1.0.1"),
        lambda engine, task: engine.processes.put(made(title="Other")),
    ),
    "a wrong entry number": (
        "VersionConflict", 4, ("the last entry of order/a is 1, not 9", "if_entry="),
        lambda engine, task: engine.handle(good, "a").send("paid", 1, if_entry=9),
    ),
    "a message to one that has ended": (
        "InstanceEnded", 4, ("ended/e", "completed"), lambda engine, task: engine.handle(ended, "e").send("paid", 1),
    ),
    "a retry of one that is not stuck": (
        "NotStuck", 4, ("order/a", "not stuck"), lambda engine, task: engine.handle(good, "a").retry(),
    ),
    "an answer for one that is not stuck": (
        "NotStuck", 4, ("order/a", "not stuck"), lambda engine, task: engine.handle(good, "a").settle("approve", 1),
    ),
    "a start of one with problems": (
        "WorkflowUnavailable", 4, ("broken", "nobody", "correct"), lambda engine, task: engine.start(broken, id="z"),
    ),
}  # fmt: skip


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
    else:
        yield ":memory:" if request.param == "memory" else str(tmp_path / "p.db")


async def test_a_bad_input_is_one_typed_error_and_nothing_is_recorded(url: str):
    async with perdure.open(url, workflows=[good, ended, broken], check="warn") as engine:
        for key in ("a", "b"):
            await engine.start(good, id="o-1", key=key)
        over = await engine.start(ended, id="o-2", key="e")
        await over.send("paid", 1)
        await over.result(timeout=60)
        task = (await engine.tasks.list())[0].id
        height, instances = await engine.queries.height(), len(await engine.instances())
        wrong: dict[str, str] = {}
        for name, (kind, code, says, call) in CASES.items():
            try:
                await call(engine, task)
                wrong[name] = "no error"
            except PerdureError as error:
                missing = [part for part in says if part not in str(error)]
                if (type(error).__name__, exit_of(error)) != (kind, code) or missing:
                    wrong[name] = f"{type(error).__name__} {exit_of(error)}, without {missing}: {error!s:.300}"
            except BaseException as error:
                wrong[name] = f"{type(error).__name__}: {error!s:.300}"
        assert not wrong, json.dumps(wrong, indent=1)
        assert (await engine.queries.height(), len(await engine.instances())) == (height, instances)
        assert len(await engine.processes.versions("order")) == 1


def test_every_error_of_the_rule_has_a_case():
    assert {kind for kind, *_ in CASES.values()} == {
        "BadProcess", "NotConvertible", "BadAnswer", "TooLarge", "UnknownWorkflow", "UnknownVersion", "UnknownInstance",
        "KeyInUse", "DefinitionConflict", "VersionConflict", "AmbiguousReference", "InstanceEnded", "NotStuck",
        "WorkflowUnavailable",
    }  # fmt: skip
