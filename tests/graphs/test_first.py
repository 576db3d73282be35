"""The example of the page, and the smallest graphs."""

from __future__ import annotations

from perdure.graphs import Graph, Limits, Node, Permit, tool
from perdure.kernel.loops import Break

from .rig import echo, run


@tool(writes=True)
async def publish(text: str) -> str:
    """Put the page online."""
    return f"published {len(text)} characters"


async def runner(node: Node) -> object:
    match node.name:
        case "plan":
            names = await node.submit(
                [{"name": each, "goal": f"{each} on {node.input}"} for each in ("facts", "doubts")]
            )
            found = await node.results(names)
            return " | ".join(each.value for each in found.values())
        case "write":
            draft = f"draft {node.iteration}: {node.inputs['plan'].value}"
            return Break(draft) if node.iteration == 1 else draft
        case "check":
            return "draft 1" in node.inputs["write"].value
        case "ship":
            return await node.use("publish", text=node.inputs["write"].value)
        case _:
            return node.goal


def report() -> Graph:
    graph = Graph(
        "report",
        runner=runner,
        tools=[publish],
        limits=Limits(running=2, nodes=50),
        permits=[Permit("publish", "ask", roles=("editor",))],
    )
    graph.node("plan", role="plan", goal="What is known of ${input}?")
    graph.loop("write", goal="Write the page", after=["plan"], max_iters=3)
    graph.node("check", role="verify", goal="Is every claim supported?", after=["write"], output=bool)
    graph.node("ship", goal="Publish it", after=["check", "write"])
    return graph


def test_the_example_of_the_page_runs():
    rig = run(report(), "heat pumps", rebuild=True)
    [(task, question)] = rig.tasks()
    assert question["roles"] == ["editor"]
    assert question["data"]["tool"] == "publish"

    rig.say(task, "approve")

    assert rig.result == "published 51 characters"
    rig.replayed()


def test_one_node_is_its_value():
    graph = Graph("one", runner=echo)
    graph.node("a", goal="hello ${input.who}")

    assert run(graph, {"who": "you"}).result == "hello you"


def test_nodes_open_when_their_dependencies_have_ended():
    graph = Graph("chain", runner=echo)
    graph.node("a", goal="a")
    graph.node("b", goal="b of ${inputs.a}", after=["a"])
    graph.node("c", goal="c of ${inputs.b}", after=["b"])

    rig = run(graph)

    assert rig.result == "c of b of a"
    assert len(rig.journal) == 4, "n nodes are n + 1 entries"
