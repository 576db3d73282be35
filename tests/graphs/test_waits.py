"""Waits: nodes that wait for a time, a message or an approval, and runs that sleep and receive."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.errors import CallerError, InstanceFailed, StepFailed
from perdure.graphs import Denied, Graph, Limits, tool
from perdure.testing import World
from perdure.testing.disks import at_once
from perdure.verbs.read import WhyParams, why

from .rig import Rig, echo, run

ANN = perdure.Actor("ann", roles=["boss"])


def waiting(**options: Any) -> Graph:
    """One wait of each sort, and a node that reads them."""

    async def runner(node: Any) -> Any:
        return {alias: each.value for alias, each in node.inputs.items()}

    graph = Graph("g", runner=runner, roles=["boss"], **options)
    graph.wait("pause", seconds=60)
    graph.wait("paid", message="payment", timeout=3600, output=dict)
    graph.wait("agreed", question="Publish ${input}?", timeout=3600)
    graph.node("after", after=["pause", "paid", "agreed"])
    return graph


@pytest.mark.parametrize("rebuild", [False, True])
def test_nodes_wait_for_a_time_a_message_and_an_approval(rebuild):
    rig = Rig(waiting(limits=Limits(running=1)), "page 7", rebuild=rebuild).run()
    assert rig.state.running == 0, "a wait holds no place"
    [(intent, asked)] = rig.tasks()
    assert (asked["title"], asked["data"]["node"]) == ("Publish page 7?", "agreed")

    rig.fire(60)
    rig.send("payment", {"cents": 5})
    rig.say(intent, "approve", reason="fine")

    told = {"pause": None, "paid": {"cents": 5}, "agreed": {"by": "ann", "reason": "fine"}}
    assert rig.result == told
    assert rig.replayed().snapshot() == rig.machine.snapshot()


def test_a_wait_whose_deadline_passes_fails():
    with World(waiting()) as world:
        handle = world.start("g", "x")
        world.advance(3601)

        with pytest.raises(InstanceFailed):
            handle.result()
        rows = {row["node"]: (row["outcome"], row["reason"]) for row in handle.read("report")["nodes"]}
    assert rows == {
        "pause": ("completed", ""),
        "paid": ("failed", "timeout"),
        "agreed": ("failed", "timeout"),
        "after": ("skipped", "upstream"),
    }


def test_a_no_fails_the_wait_and_says_who_said_it():
    rig = run(waiting(), "x")

    rig.say(rig.tasks()[0][0], "deny", reason="not yet")

    assert rig.outcomes()["agreed"] == "failed(denied)"
    assert rig.state.nodes["agreed"].notes == ["agreed was denied (person): ann said no: not yet"]


def test_a_message_that_comes_before_its_wait_is_kept_and_others_are_refused():
    graph = Graph("g", runner=echo)
    graph.wait("first", message="go")
    graph.wait("second", message="go", after=["first"])
    graph.wait("third", message="word", after=["second"], output=int)
    with World(graph) as world:
        handle = world.start("g")
        assert handle.ask("word", "seven") == {"node": ""}
        with pytest.raises(CallerError, match=r"submit, cancel and note, and this one: go, word; found 'wrd'"):
            handle.send("wrd", 1)
        assert handle.ask("go", 1) == {"node": "first"}
        world.crash()
        assert handle.ask("go", 2) == {"node": "second"}

        with pytest.raises(InstanceFailed, match=r"third failed \(output\)"):
            handle.result()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "a wait has one of seconds=, message= and question="),
        ({"seconds": 5, "message": "go"}, "a wait has one of"),
        ({"seconds": 0}, "seconds is seconds, more than 0"),
        ({"message": "cancel"}, "is for the graph itself"),
        ({"question": "Well?"}, "no role may answer"),
        ({"message": "go", "question": "${inputs.x}"}, "names no dependency"),
        ({"mesage": "go"}, "did you mean 'message'?"),
    ],
)
def test_a_wrong_wait_is_told(fields, text):
    graph = Graph("g")
    graph.wait("w", **fields)

    assert any(text in problem.text for problem in graph.problems), graph.problems


def test_a_cancelled_wait_takes_no_message():
    graph = waiting()
    rig = run(graph, "x")
    rig.send("cancel", {"node": "paid"})
    rig.send("cancel", {"node": "agreed"})

    rig.deliver_message("payment", {})

    reply = rig.journal[-1][2].reply
    assert reply is not None and "submit, cancel and note;" in reply.refused, "nothing waits for it any more"
    assert not rig.tasks()


def test_waits_are_drawn_and_why_tells_of_them():
    with World(waiting()) as world:
        handle = world.start("g", "x", key="k")
        told = " ".join(each.text for each in at_once(why(world._client, WhyParams("g/k"))).reasons)

        assert "The node agreed asks a person since" in told
        assert "payment" in told
        assert "payment" in handle.draw("mermaid")
        assert "60 s" in waiting().draw("mermaid")


# ---- runs ------------------------------------------------------------------------------------------------------------


async def listens(node: Any) -> Any:
    await node.sleep(3)
    return [await node.receive("word"), await node.receive("word")]


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_run_sleeps_and_receives_without_a_place_and_hears_it_again_after_a_rest(rebuild):
    graph = Graph("g", runner=listens, limits=Limits(running=1))
    graph.node("a")
    rig = Rig(graph, rebuild=rebuild).run()
    assert rig.state.running == 0
    rig.fire(3)
    rig.run()

    rig.send("word", "one")
    rig.fire(5)
    assert rig.facts("rested")
    rig.crash()
    rig.send("word", "two")

    assert rig.result == ["one", "two"]
    assert rig.ran == ["a", "a"]


def test_a_retry_hears_the_message_that_came_and_one_that_came_between():
    failed: list[int] = []

    async def runner(node):
        first = await node.receive("word")
        if not failed:
            failed.append(1)
            raise ValueError("again")
        return [first, await node.receive("word")]

    graph = Graph("g", runner=runner)
    graph.node("a", retries=1, backoff={"base": 5})
    rig = run(graph)
    rig.send("word", "one")
    rig.send("word", "two")
    rig.fire(5)
    rig.run()

    assert rig.result == ["one", "two"]


@pytest.mark.parametrize("name", ["", "cancel", 3])
def test_a_run_that_receives_what_no_message_can_be_is_denied(name):
    async def runner(node):
        with pytest.raises(Denied, match=r"a message to wait for|receive takes name"):
            await node.receive(name)
        with pytest.raises(Denied, match="sleep takes seconds"):
            await node.sleep(-1)
        return "denied"

    graph = Graph("g", runner=runner)
    graph.node("a")

    assert run(graph).result == "denied"


def test_a_tool_that_fails_beside_a_sleep_leaves_it():
    @tool(retries=0)
    async def fails():
        raise ValueError("no")

    async def runner(node):
        with pytest.raises(StepFailed):
            await node.use("fails")
        await node.sleep(60)
        return node.name

    graph = Graph("g", runner=runner, tools=[fails])
    graph.node("a")
    with World(graph) as world:
        handle = world.start("g")
        world.advance(61)

        assert handle.result() == "a"
