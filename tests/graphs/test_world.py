"""Graphs in the test kit: a world, scripts, and crashes at every point."""

from __future__ import annotations

import asyncio

import pytest

import perdure
from perdure.errors import CallerError
from perdure.graphs import Graph, Limits, Node, Permit, tool
from perdure.testing import World, crash_test, replay
from perdure.testing.disks import at_once

SENT: list[str] = []


@tool(writes=True)
async def publish(text: str) -> str:
    """Put the page online."""
    key = perdure.step_info().idempotency_key
    if key not in SENT:
        SENT.append(key)
    return f"published {len(text)} characters"


@tool
async def look(what: str) -> str:
    return f"saw {what}"


async def runner(node: Node) -> object:
    match node.name:
        case "plan":
            names = await node.submit(
                [{"name": each, "goal": f"{each} on {node.input}"} for each in ("facts", "doubts")]
            )
            found = await node.results(names)
            return " | ".join(each.value for each in found.values())
        case "write":
            seen = await asyncio.gather(node.use("look", what="a"), node.use("look", what="b"))
            draft = f"draft {node.iteration}: {node.inputs['plan'].value}; {seen}"
            return perdure.Break(draft) if node.iteration == 1 else draft
        case "ship":
            return await node.use("publish", text=node.inputs["write"].value)
        case _:
            return node.goal


def report(**options) -> Graph:
    graph = Graph("report", runner=runner, tools=[publish, look], limits=Limits(running=2, nodes=50), **options)
    graph.node("plan", role="plan", goal="What is known of ${input}?")
    graph.loop("write", goal="Write the page", after=["plan"], max_iters=3)
    graph.node("ship", goal="Publish it", after=["write"])
    return graph


def approve(world, handle):
    ann = perdure.Actor("ann", roles=["editor"])
    for _ in range(100):
        world.advance(10)
        asked = at_once(world._client.tasks.list(by=ann, candidate=True))
        if asked:
            task = world._client.handle("perdure.task", f"{handle.key}/@report/ship/ask/publish#1")
            at_once(task.send("complete", {"answer": {"outcome": "approve"}}, by=ann, id="once"))
            return


def test_a_graph_runs_in_a_world():
    with World() as world:
        handle = world.start(report(), "heat pumps")
        world.run()
        assert handle.result().startswith("published")


def test_scripts_stand_in_for_runners_iterations_and_tools():
    with World() as world:
        world.script("plan", returns="the plan")
        world.script("publish", returns="nothing was published")
        graph = report()
        assert world.start(graph, "heat pumps").result() == "nothing was published"

        world.script("write", ["first", perdure.Break("mine")])
        world.start(graph, "x").result()
        assert [run.args[1].goal for run in world.runs("write/~1")] == ["Write the page"] * 2


def test_a_resting_run_lets_its_instance_wait_and_goes_on_with_the_answer():
    with World(cache=0) as world:
        handle = world.start(report(permits=[Permit("publish", "ask", roles=("editor",))]), "heat pumps")
        world.advance(60)
        assert handle.status == "waiting"
        approve(world, handle)
        world.run()
        assert handle.result().startswith("published")


def test_a_graph_survives_a_crash_at_every_point():
    crash_test(report(), "heat pumps", reset=SENT.clear, observe=lambda: len(SENT), pairs=30, random=15)


def test_a_graph_with_a_question_survives_a_crash_at_every_point():
    graph = report(permits=[Permit("publish", "ask", roles=("editor",))])
    crash_test(
        graph, "heat pumps", reset=SENT.clear, observe=lambda: len(SENT), story=approve, pairs=20, random=10, cache=0
    )


def test_what_a_child_of_a_graph_waits_for_is_among_the_open_effects():
    @perdure.flow
    async def paid(ctx: perdure.Context) -> object:
        cents = (await ctx.receive("paid")).body
        await ctx.receive("sent", "lost")
        return cents

    graph = Graph("shop", runner=runner)
    graph.child("pay", paid)
    with World(graph, paid, cache=0) as world:
        handle = world.start(graph, key="o-1")
        (wait,) = world.pull_effects()
        assert (wait.effect, wait.cell, wait.key) == ("paid", paid.name, "o-1/pay")
        for wrong in ({"error": "x"}, {"status": "timeout"}, {"payload": b""}):
            with pytest.raises(CallerError, match="takes ok="):
                world.receipt(wait, **wrong)
        with pytest.raises(CallerError, match="no frames"):
            world.frame(wait, 1)

        world.crash()
        world.receipt("paid", ok=4200)
        (wait,) = world.pull_effects()
        with pytest.raises(CallerError, match=r"handle\.send"):
            world.receipt(wait, ok=1)
        world.handle(paid, "o-1/pay").send("lost", "at sea")

        assert handle.result() == 4200
        assert world.pull_effects() == []


def test_a_refused_message_is_raised_and_names_what_there_is():
    async def slow(node: Node) -> None:
        await asyncio.sleep(60)

    graph = Graph("g", runner=slow)
    graph.node("plan")
    with World() as world:
        handle = world.start(graph)
        with pytest.raises(CallerError, match="did you mean 'plan'"):
            handle.send("note", {"node": "plann", "text": "hurry"})
        with pytest.raises(CallerError, match="a graph takes submit, cancel and note"):
            handle.ask("cancle", {"node": "plan"})


def test_a_world_knows_the_children_of_graphs_by_name():
    @perdure.flow
    async def double(ctx: perdure.Context, number: int) -> int:
        return 2 * number

    graph, wrong = Graph("g"), Graph("wrong")
    graph.child("kid", "double", input="${input}")
    wrong.child("kid", "doubl")
    with World(graph, double) as world:
        assert world.start(graph, 4).result() == 8
        with pytest.raises(perdure.BadGraph, match="unknown workflow 'doubl'"):
            world.start(wrong)


def test_an_authored_graph_is_a_start_too_and_the_report_is_there_while_it_runs():
    plan = Graph("plan", veto=["look"], limits=Limits(calls=5))
    plan.node("read", goal="Read.")
    plan.node("sum", after=["read"], veto=["publish"], limits=Limits(calls=2))
    desk = report()
    with World() as world:
        handle = world.start(desk, "tea", nodes=plan)
        assert handle.result()["sum"] == ""
        assert at_once(perdure.graphs.report(handle))["nodes"][-3]["node"] in {"read", "sum"}
        with pytest.raises(perdure.BadGraph, match="depth is a limit of the graph that is started"):
            world.start(desk, "tea", nodes=Graph("deep", limits=Limits(depth=1)))

    async def slow(node: Node) -> None:
        await asyncio.sleep(60)

    waiting = Graph("waiting", runner=slow)
    waiting.node("a")
    with World() as world:
        handle = world.start(waiting)
        assert [row["status"] for row in handle.state()["nodes"]] == ["open"]
        [fact] = handle.history()[0].facts
        assert (fact.name, fact.value["nodes"][0]["node"]) == ("graph/opened@1", "a")


@pytest.mark.parametrize("last", [True, False])
def test_a_changed_reducer_and_a_changed_policy_are_divergences_that_name_the_node(tmp_path, last):
    async def fails(node: Node) -> str:
        if node.name == "b":
            raise ValueError("no")
        return node.goal

    def made(reducer: str, needs: str) -> Graph:
        graph = Graph("g", runner=fails)
        graph.node("a", goal="x")
        graph.node("b")
        graph.reduce("sum", reducer, after=["a", "b"], needs="all_terminal")
        graph.reduce("odd", "count", after=["a", "b"], needs=needs)
        if not last:
            graph.node("after", after=["sum", "odd"], needs="all_terminal")
        return graph

    path = tmp_path / "h.json"
    with World() as world:
        world.start(made("concat", "all_success")).export(path)
    replay(path, made("concat", "all_success"))
    with pytest.raises(perdure.Divergence, match="the node sum completed with"):
        replay(path, made("collect", "all_success"))
    with pytest.raises(perdure.Divergence, match="the node odd skipped then, and completed"):
        replay(path, made("concat", "all_terminal"))
