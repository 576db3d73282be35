"""Every group of the acceptance list, with a crash before and after everything that is done durably.

Each graph ends with a census: a node that returns the outcome, the reason and the value of all others. So its result
is the report, and it is the same after every schedule of crashes. `DONE` has what happened outside, once for each
idempotency key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.agents import Agent, calls, scripted
from perdure.errors import StepFailed
from perdure.graphs import Denied, Graph, Limits, Node, Partial, Permit, Used, tool
from perdure.testing import World, crash_test
from perdure.testing.disks import at_once

DONE: dict[str, str] = {}
ANN = perdure.Actor("ann", roles=["boss"])


def happened(what: str) -> None:
    """Something that may happen once: the receiver knows the key of the call."""
    DONE[perdure.step_info().idempotency_key] = what


@tool(writes=True)
async def write(text: str) -> str:
    happened(f"wrote {text}")
    return text.upper()


@tool
async def look(what: str) -> Used:
    return Used(f"saw {what}", {"tokens": 3})


@tool(retries=1)
async def shaky(what: str) -> str:
    raise ValueError(f"no {what}")


TOOLS = [write, look, shaky]


async def runner(node: Node) -> object:  # one case for each node
    if node.match is not None:
        return "right" if node.match.right.value > node.match.left.value else "left"
    match node.name.rpartition("/")[2]:
        case "census":
            return {alias: [each.outcome, each.reason, each.value] for alias, each in sorted(node.inputs.items())}
        case "plan":
            first = await node.submit([{"name": "x", "goal": "1"}, {"name": "y", "goal": "2", "after": ["x"]}])
            try:
                await node.submit([{"name": "z", "after": ["nobody"]}])
            except Denied as denied:
                first.append(denied.stage)
            found = await node.results(first[:2])
            return [*first, *[each.value for each in found.values()]]
        case "tools" | "tools2":
            written = await node.use("write", text=node.goal)
            seen = await node.use("look", what="a")
            try:
                await node.use("shaky", what="luck")
            except StepFailed as error:
                return [written, seen, error.attempts]
        case "listen":
            await node.sleep(1)
            return [await node.receive("word"), await node.receive("word")]
        case "think":
            thought = [await node.step("model", str.upper, each, usage={"tokens": 2}) for each in ("a", "b", "a")]
            try:
                await node.step("model", str.upper, "c", reserve={"tokens": 90})
            except Denied as denied:
                return [*thought, denied.stage]
        case "denied":
            try:
                return await node.use("write", text="no")
            except Denied as denied:
                return [denied.stage, *node.notes]
        case "again":
            return perdure.Break("enough") if node.iteration == 2 else [node.iteration, node.previous]
        case "label":
            return "left" if node.notes else "nothing"
        case "number":
            return 7 if node.notes else "seven"
        case "broken":
            raise ValueError("it does not work")
        case "partial":
            return Partial("half", "no more time")
        case _:
            return node.goal
    return None


def with_census(graph: Graph, *names: str) -> Graph:
    graph.node("census", after=list(names), needs="all_terminal")
    return graph


def queue() -> Graph:
    graph = Graph("queue", runner=runner, limits=Limits(running=2), order="critical")
    for name in ("a", "b", "c"):
        graph.node(name, goal=name)
    graph.node("d", goal="d", after=["a"], priority=5)
    graph.loop("again", max_iters=5)
    return with_census(graph, "a", "b", "c", "d", "again")


def growth() -> Graph:
    graph = Graph("growth", runner=runner, limits=Limits(running=1, nodes=20, depth=1))
    graph.node("plan")
    graph.node("side", goal="side")
    return with_census(graph, "plan", "side")


def requests() -> Graph:
    graph = Graph("requests", runner=runner, tools=TOOLS)
    graph.node("tools", goal="one")
    graph.node("think", limits=Limits(tokens=50))
    return with_census(graph, "tools", "think")


def gate() -> Graph:
    permits = [Permit("write", "deny", where={"text": {"equals": "no"}})]
    graph = Graph("gate", runner=runner, tools=TOOLS, permits=permits, veto=["shaky"])
    graph.node("denied")
    graph.node("after", goal="after", after=["denied"])
    graph.node("starved", limits=Limits(tokens=0))
    return with_census(graph, "denied", "after", "starved")


def trust() -> Graph:
    graph = Graph("trust", runner=runner, tools=TOOLS)
    graph.node("plan", role="explore", trust="quarantined")
    graph.node("denied", role="verify", after=["plan"])
    return with_census(graph, "plan", "denied")


def taint() -> Graph:
    graph = Graph("taint", runner=runner, tools=TOOLS, roles=["boss"], taint="strict")
    graph.node("plan", role="explore", trust="quarantined")
    graph.node("tools", goal="five", after=["plan"], approve="before")
    return with_census(graph, "plan", "tools")


def rates() -> Graph:
    graph = Graph("rates", runner=runner, tools=TOOLS, limits=Limits(running=1), rate={"*": (2, 9), "look": (1, 5)})
    graph.node("tools", goal="six")
    graph.node("tools2", goal="seven")
    return with_census(graph, "tools", "tools2")


def waits() -> Graph:
    graph = Graph("waits", runner=runner, roles=["boss"], limits=Limits(running=1))
    graph.wait("pause", seconds=6)
    graph.wait("go", message="go", after=["pause"])
    graph.node("listen")
    return with_census(graph, "pause", "go", "listen")


def say_words(world: Any, handle: Any) -> None:
    """The first word comes while the run listens, the others when it may be at rest, and before the wait has begun."""
    for number, name in enumerate(("go", "word", "word")):
        world.advance(3)
        handle.send(name, number, id=f"m{number}")


def kinds() -> Graph:
    graph = Graph("kinds", runner=runner)
    graph.tournament("best", entrants={"e1": "1", "e2": "2", "e3": "3"})
    graph.classify("label", branches={"left": ["l"], "right": ["r"]}, default="right")
    graph.node("l", goal="l", after=["label"])
    graph.node("r", goal="r", after=["label"])
    graph.reduce("join", "collect", after=["best", "l", "r"])
    return with_census(graph, "best", "label", "l", "r", "join")


def outcomes() -> Graph:
    graph = Graph("outcomes", runner=runner)
    graph.node("broken", retries=1)
    graph.node("partial")
    graph.node("number", output=int)
    graph.node("never", after=["broken"])
    graph.node("any", goal="any", after=["broken", "partial", "number"], needs="any_success")
    return with_census(graph, "broken", "partial", "number", "never", "any")


def budgets() -> Graph:
    graph = Graph("budgets", runner=runner, tools=TOOLS, limits=Limits(tokens=40, calls=6, wall=1000))
    graph.node("think")
    graph.node("tools", goal="two", after=["think"])
    return with_census(graph, "think", "tools")


def people() -> Graph:
    permits = [Permit("write", "ask")]
    graph = Graph("people", runner=runner, tools=TOOLS, permits=permits, roles=["boss"])
    graph.node("tools", goal="three", approve="before")
    return with_census(graph, "tools")


def answer_all(world: Any, handle: Any) -> None:
    """Ann lets the node begin, and edits the arguments of its tool."""
    answers: list[tuple[str, dict[str, object]]] = [("tools/ask/begin", {"outcome": "approve"})]
    answers.append(("tools/ask/write#1", {"outcome": "approve", "arguments": {"text": "edited"}}))
    for location, answer in answers:
        for _ in range(100):
            world.advance(3)
            if at_once(world._client.tasks.list(by=ANN, candidate=True)):
                break
        task = world._client.handle("perdure.task", f"{handle.key}/@{handle.workflow}/{location}")
        at_once(task.send("complete", {"answer": answer}, by=ANN, id=location))


def cancelled() -> Graph:
    graph = Graph("cancelled", runner=runner, tools=TOOLS, permits=[Permit("write", "ask", roles=("boss",))])
    graph.node("tools", goal="four")
    graph.node("side", goal="side")
    return with_census(graph, "tools", "side")


def cancel_one(world: Any, handle: Any) -> None:
    world.advance(20)  # it rests by then
    at_once(world._client.handle("cancelled", handle.key).ask("cancel", {"node": "tools"}, id="once"))


def agents() -> Graph:
    model = scripted(
        [
            calls(("look", {"what": "tea"}), ("write", {"text": "page"}), tokens=10),
            calls(("submit_nodes", {"nodes": [{"name": "helper", "goal": "help"}], "wait": True}), ("nothing", {})),
            "done",
        ]
    )
    graph = Graph("agents", runner=runner, runners={"agent": Agent(model)}, tools=TOOLS, limits=Limits(nodes=9))
    graph.node("talk", goal="Talk.", runner="agent")
    graph.reduce("all", "collect", after=["talk"])
    return graph


STORIES: list[tuple[Callable[[], Graph], dict[str, Any]]] = [
    (queue, {}),
    (growth, {}),
    (requests, {}),
    (gate, {}),
    (trust, {}),
    (kinds, {}),
    (outcomes, {}),
    (budgets, {}),
    (people, {"story": answer_all, "cache": 0}),
    (rates, {}),
    (waits, {"story": say_words}),
    (taint, {"story": answer_all}),
    (cancelled, {"story": cancel_one}),
]

REPORTS: dict[str, dict[str, Any]] = {
    "gate": {
        "after": ["completed", "", "after"],
        "starved": ["failed", "denied", None],
    },
    "kinds": {
        "best": ["completed", "", "3"],
        "r": ["skipped", "not_chosen", None],
        "join": ["completed", "", {"best": "3", "l": "l"}],
    },
    "outcomes": {
        "broken": ["failed", "error", None],
        "never": ["skipped", "upstream", None],
        "number": ["completed", "", 7],
        "any": ["completed", "", "any"],
    },
    "people": {"tools": ["completed", "", ["EDITED", "saw a", 2]]},
    "rates": {"tools": ["completed", "", ["SIX", "saw a", 2]]},
    "waits": {"go": ["completed", "", 0], "listen": ["completed", "", [1, 2]]},
    "taint": {"tools": ["completed", "", ["EDITED", "saw a", 2]]},
    "cancelled": {"tools": ["cancelled", "asked", None], "side": ["completed", "", "side"]},
}


@pytest.mark.parametrize(("made", "options"), STORIES, ids=[made.__name__ for made, _ in STORIES])
def test_a_group_ends_with_the_same_report_whatever_crashes(made, options):
    found = crash_test(made(), reset=DONE.clear, observe=lambda: sorted(DONE.values()), pairs=15, random=8, **options)
    assert found.singles > 3


@pytest.mark.parametrize(("made", "options"), STORIES, ids=[made.__name__ for made, _ in STORIES])
def test_the_report_of_a_group_is_as_it_should_be(made, options):
    graph = made()
    with World() as world:
        handle: Any = world.start(graph)
        if "story" in options:
            options["story"](world, handle)
        world.advance(60)
        report = handle.result()
    for name, row in REPORTS.get(graph.name, {}).items():
        assert report[name] == row, name
    assert all(row[0] for row in report.values())


def test_an_agent_that_plans_ends_the_same_whatever_crashes():
    crash_test(agents(), reset=DONE.clear, observe=lambda: sorted(DONE.values()), pairs=15, random=8)
