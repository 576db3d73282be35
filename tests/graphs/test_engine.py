"""Graphs in a real engine, on a real file: results, questions, retries, and a process that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import BadGraph, InstanceEnded, InstanceFailed
from perdure.graphs import Graph, Limits, Node, Permit, report, tool

AGENT = """
import asyncio, sys
import perdure
from perdure.graphs import Graph, Node, tool

@tool(writes=True)
async def record(text: str) -> str:
    with open("told.txt", "a") as file:
        file.write(text + " " + perdure.step_info().idempotency_key + "\\n")
    return text

@tool
async def slow() -> str:
    with open("reached.txt", "w") as file:
        file.write("here")
    await asyncio.sleep(0 if sys.argv[1] == "again" else 60)
    return "slow"

async def think(turn: int) -> str:
    with open("model.txt", "a") as file:
        file.write(f"{turn}\\n")
    return f"thought {turn}"

async def runner(node: Node) -> object:
    first = await node.step("model", think, 1)
    await node.use("record", text="one")
    second = await node.step("model", think, 2)
    await node.use("slow")
    await node.use("record", text="two")
    return [first, second]

graph = Graph("agent", runner=runner, tools=[record, slow])
graph.node("talk")

async def main() -> None:
    async with perdure.open("agent.db", workflows=[graph]) as engine:
        handle = await engine.start(graph, key="k")
        print(await handle.result())

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file, which is one shard, or a server with many: what graphs ask for goes another way there."""
    return str(request.getfixturevalue("postgres") if request.param == "postgres" else tmp_path / "a.db")


def run_agent(folder: Path, word: str) -> subprocess.Popen[str]:
    command = [sys.executable, "agent.py", word]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ})


async def test_a_killed_agent_goes_on_in_the_middle_of_its_conversation(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    process = run_agent(tmp_path, "first")
    while not (tmp_path / "reached.txt").exists():
        await asyncio.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()

    again = run_agent(tmp_path, "again")
    said, _ = await asyncio.to_thread(again.communicate)

    assert said.strip() == "['thought 1', 'thought 2']"
    assert (tmp_path / "model.txt").read_text().split() == ["1", "2"], "no model call was bought twice"
    told = [line.split()[0] for line in (tmp_path / "told.txt").read_text().splitlines()]
    assert told == ["one", "two"]


@tool(writes=True)
async def publish(text: str) -> str:
    return f"published {text}"


def asking(**options) -> Graph:
    async def runner(node: Node) -> object:
        return await node.use("publish", text=str(node.input))

    permits = [Permit("publish", "ask", roles=("editor",))]
    graph = Graph("asking", runner=runner, tools=[publish], permits=permits, **options)
    graph.node("ship")
    return graph


async def question(engine, ann):
    while not (asked := await engine.tasks.list(by=ann, candidate=True)):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return asked[0]


async def test_edited_arguments_are_the_ones_used_and_a_wrong_answer_decides_nothing(url):
    ann = perdure.Actor("ann", roles=["editor"])
    graph = asking()
    async with perdure.open(url, workflows=[graph]) as engine:
        handle = await engine.start(graph, "x", key="k")
        task = await question(engine, ann)
        for wrong in ({"outcome": "maybe"}, {"outcome": "approve", "arguments": {"txt": "y"}}):
            with pytest.raises(perdure.errors.BadAnswer):
                await engine.tasks.complete(task.id, wrong, by=ann)
        edited = {"outcome": "approve", "arguments": {"text": "better"}}
        await engine.tasks.complete(task.id, edited, by=ann)
        assert await handle.result() == "published better"
        with pytest.raises(perdure.errors.TaskRefused):
            await engine.tasks.complete(task.id, {"outcome": "deny"}, by=ann)


async def test_an_agent_cannot_approve_itself(tmp_path):
    graph = asking()
    async with perdure.open(tmp_path / "a.db", workflows=[graph], drain=0) as engine:
        await engine.start(graph, "x", key="k")
        ann = perdure.Actor("ann", roles=["editor"])
        task = await question(engine, ann)
        agent = perdure.Actor("agent:asking/k", roles=["editor"])
        with pytest.raises(perdure.errors.TaskRefused, match="excluded"):
            await engine.tasks.complete(task.id, {"outcome": "approve"}, by=agent)


async def test_a_denial_is_an_error_in_the_runner_and_the_failure_has_the_report(tmp_path):
    graph = asking()
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        handle = await engine.start(graph, "x", key="k")
        ann = perdure.Actor("ann", roles=["editor"])
        task = await question(engine, ann)
        await engine.tasks.complete(task.id, {"outcome": "deny", "reason": "not today"}, by=ann)
        with pytest.raises(InstanceFailed) as failed:
            await handle.result()
        error: Any = failed.value.error
        assert error.type == "GraphFailed"
        [row] = error.data["nodes"]
        assert (row["outcome"], row["reason"]) == ("failed", "denied")
        assert "not today" in error.data["denials"][0]["reason"]
        assert (await report(handle))["nodes"] == error.data["nodes"]


async def test_a_bad_graph_is_refused_at_open_and_at_start(tmp_path):
    bad = Graph("bad", runner=lambda node: 1)
    bad.node("a", after=["b"])
    with pytest.raises(BadGraph):
        async with perdure.open(tmp_path / "a.db", workflows=[bad]):
            pass
    good = asking()
    async with perdure.open(tmp_path / "a.db", workflows=[good]) as engine:
        with pytest.raises(BadGraph):
            await engine.start(good, nodes=[{"name": "ship"}], key="k")
        assert await engine.instances() == []


async def test_a_bad_start_by_name_from_elsewhere_fails_at_once(tmp_path):
    good = asking()
    async with perdure.open(tmp_path / "a.db", workflows=[good]), perdure.connect(tmp_path / "a.db") as client:
        handle = await client.start("asking", input="x", nodes=[{"name": "b", "after": ["nobody"]}], key="k")
        with pytest.raises(InstanceFailed, match="nobody"):
            await handle.result()


async def test_people_add_cancel_and_tell(url):
    async def runner(node: Node) -> object:
        return [node.name, *node.notes]

    graph = Graph("live", runner=runner, roles=["editor"], rest_after=None)
    graph.node("gate", approve="before")
    graph.node("end", after={"g": "gate"}, needs="all_terminal")
    async with perdure.open(url, workflows=[graph]) as engine:
        handle = await engine.start(graph, key="k")
        assert await handle.ask("submit", [{"name": "late"}]) == {"names": ["late"]}
        assert "denied" in await handle.ask("submit", [{"name": "late"}])
        await handle.send("note", {"node": "end", "text": "be brief"})
        with pytest.raises(perdure.errors.CallerError, match="did you mean 'gate'"):
            await handle.send("note", {"node": "gatte", "text": "x"})
        with pytest.raises(perdure.errors.CallerError, match="submit, cancel and note"):
            await handle.send("hello")
        await handle.ask("cancel", {"node": "gate"})
        assert await handle.result() == ["end", "be brief"]
        with pytest.raises(InstanceEnded):
            await handle.ask("submit", [{"name": "more"}])


async def test_a_known_key_with_another_input_is_refused(tmp_path):
    graph = asking()
    async with perdure.open(tmp_path / "a.db", workflows=[graph], drain=0) as engine:
        await engine.start(graph, "x", key="k")
        again = await engine.start(graph, "x", key="k")
        assert again.key == "k"
        with pytest.raises(perdure.errors.KeyInUse):
            await engine.start(graph, "y", key="k")


async def test_a_graph_is_a_child_of_a_flow_and_a_flow_a_child_of_a_graph(url):
    @perdure.flow
    async def double(ctx: perdure.Context, number: int) -> int:
        return 2 * number

    async def runner(node: Node) -> object:
        return node.inputs["d"].value + 1

    inner = Graph("inner", runner=runner)
    inner.child("twice", "double", input="${input}")
    inner.node("plus", after={"d": "twice"}, output=int)

    @perdure.flow
    async def outer(ctx: perdure.Context) -> int:
        found: int = await ctx.child(inner, 20)
        return found

    async with perdure.open(url, workflows=[inner, outer, double]) as engine:
        assert await (await engine.start(outer, key="k")).result() == 41


async def test_a_childs_failure_is_the_nodes(tmp_path):
    @perdure.flow
    async def broken(ctx: perdure.Context) -> None:
        raise ValueError("no")

    graph = Graph("g", runner=lambda node: 1)
    graph.child("kid", broken)
    async with perdure.open(tmp_path / "a.db", workflows=[graph, broken]) as engine:
        handle = await engine.start(graph, key="k")
        with pytest.raises(InstanceFailed, match="kid failed"):
            await handle.result()


async def test_handles_of_a_running_graph_give_its_report(tmp_path):
    graph = asking()
    async with perdure.open(tmp_path / "a.db", workflows=[graph], drain=0) as engine:
        handle = await engine.start(graph, "x", key="k")
        await question(engine, perdure.Actor("ann", roles=["editor"]))
        [row] = (await report(handle))["nodes"]
        assert (row["node"], row["status"]) == ("ship", "open")


async def test_a_retry_runs_what_failed_and_nothing_else(url):
    broken = {"b", "judge"}
    ran: list[str] = []

    @tool(writes=True)
    async def pay(what: str) -> str:
        ran.append(f"paid {what}")
        return what

    async def runner(node: Node) -> object:
        ran.append(node.name)
        if node.match is not None:
            return "nobody" if "judge" in broken else "right"
        if node.name == "b":
            await node.submit([{"name": "sub"}])
            await node.use("pay", what="rent")
        if node.name in broken:
            raise ValueError(f"{node.name} does not work")
        return node.name

    graph = Graph("again", runner=runner, tools=[pay])
    graph.node("a")
    graph.node("b", after=["a"])
    graph.node("c", after=["b"])
    graph.tournament("best", entrants={"x": "", "y": ""}, repairs=0)
    async with perdure.open(url, workflows=[graph]) as engine:
        handle = await engine.start(graph, key="k")
        for _ in range(2):
            with pytest.raises(InstanceFailed):
                await handle.result()
            ran.clear()
            await handle.retry()
        with pytest.raises(InstanceFailed):
            await handle.result()
        assert ran == ["b", "best/judge/~0/~0"]
        broken.clear()
        ran.clear()
        await handle.retry()
        assert await handle.result() == {"c": "c", "best": "best/entrant/y"}
        assert ran == ["b", "best/judge/~0/~0", "c"]
    async with perdure.open(url, workflows=[graph]) as engine:
        lines = await engine.handle(graph, "k").history()
        assert len(lines) > 10


async def queued_runner(node: Node) -> object:
    if node.name == "far":
        with pytest.raises(perdure.NotInRun):
            await node.submit([])
        return [node.goal, node.input, node.inputs["near"].value, node.iteration]
    return await node.use("stamp", text="x") if node.name == "near" else node.goal


@tool(executor="heavy")
async def stamp(text: str) -> str:
    return f"{text} stamped"


async def test_a_node_and_a_tool_may_run_on_a_queue(url):
    graph = Graph("queued", runner=queued_runner, tools=[stamp])
    graph.node("near")
    graph.node("far", goal="go ${inputs.near}", after=["near"], queue="heavy", isolation="remote")
    async with perdure.open(url, workflows=[graph], queues={"heavy": 2}) as engine:
        handle = await engine.start(graph, {"n": 1}, key="k")
        assert await handle.result() == ["go x stamped", {"n": 1}, "x stamped", 0]


# ---- bad input, versions, progress -----------------------------------------------------------------------------------


async def test_a_child_of_a_workflow_that_no_engine_knows_is_refused_at_open(tmp_path):
    graph = Graph("g", runner=lambda node: 1)
    graph.child("kid", "doubble")

    @perdure.flow
    async def double(ctx: perdure.Context) -> None: ...

    with pytest.raises(BadGraph, match="did you mean 'double'"):
        async with perdure.open(tmp_path / "a.db", workflows=[graph, double]):
            pass
    good = Graph("good", runner=lambda node: 1)
    good.node("a")
    async with perdure.open(tmp_path / "a.db", workflows=[graph, double, good], check="warn") as engine:
        with pytest.raises(perdure.errors.CallerError):
            await engine.start("g", key="k")
        with pytest.raises(BadGraph, match="unknown workflow 'doubl'"):
            await engine.start(good, nodes=[{"name": "kid", "kind": "child", "workflow": "doubl"}], key="k")


async def test_a_request_that_is_too_large_is_an_error_in_the_run(tmp_path):
    async def runner(node: Node) -> object:
        try:
            return await node.use("publish", text="x" * 17_000_000)
        except perdure.errors.TooLarge as error:
            return str(error)

    graph = Graph("g", runner=runner, tools=[publish])
    graph.node("a")
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        assert "the request 'use' has" in await (await engine.start(graph, key="k")).result()


async def test_progress_of_runners_and_tools_is_streamed(url):
    go = asyncio.Event()

    @tool
    async def count() -> int:
        await go.wait()
        perdure.emit("counted")
        return 1

    async def runner(node: Node) -> object:
        await go.wait()
        perdure.progress(1, 2, "half")
        return await node.use("count")

    graph = Graph("g", runner=runner, tools=[count])
    graph.node("a")
    async with perdure.open(url, workflows=[graph]) as engine:
        handle = await engine.start(graph, key="k")
        stream = handle.stream()
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        go.set()
        frames = [await first]
        frames += [frame async for frame in stream]
    assert [(frame.location, frame.note or frame.chunk) for frame in frames] == [
        ("a", "half"),
        ("a/use/count#1", "counted"),
    ]


async def test_an_instance_runs_on_its_version_and_what_was_added_is_recorded(tmp_path):
    def version(number: str) -> Graph:
        async def runner(node: Node) -> object:
            return f"{node.goal} by {number}"

        graph = Graph("versions", runner=runner, roles=["editor"], version=number, outputs=["a"])
        graph.node("a", goal=f"declared in {number}", approve="before")
        return graph

    ann = perdure.Actor("ann", roles=["editor"])
    old, new = version("1"), version("2")
    async with perdure.open(tmp_path / "a.db", workflows=[old]) as engine:
        handle = await engine.start(old, key="k")
        await handle.ask("submit", [{"name": "added", "goal": "late", "after": ["a"]}])
    async with perdure.open(tmp_path / "a.db", workflows=[new, old]) as engine:
        handle = engine.handle(new, "k")
        await engine.tasks.complete((await question(engine, ann)).id, {"outcome": "approve"}, by=ann)
        assert await handle.result() == "declared in 1 by 1"
        rows = {row["node"]: row["outcome"] for row in (await report(handle))["nodes"]}
        assert rows == {"a": "completed", "added": "completed"}
        fresh = await engine.start("versions", key="other")
        await engine.tasks.complete((await question(engine, ann)).id, {"outcome": "approve"}, by=ann)
        assert await fresh.result() == "declared in 2 by 2"


async def test_an_instance_never_runs_on_a_version_older_than_its_own(tmp_path):
    def version(number: str) -> Graph:
        async def runner(node: Node) -> object:
            return f"by {number}"

        graph = Graph("versions", runner=runner, roles=["editor"], version=number)
        graph.node("a", approve="before")
        return graph

    async def approve(engine: perdure.Engine) -> None:
        await engine.tasks.complete((await question(engine, ann)).id, {"outcome": "approve"}, by=ann)

    ann = perdure.Actor("ann", roles=["editor"])
    async with perdure.open(tmp_path / "a.db", workflows=[version("2")]) as engine:
        await engine.start("versions", key="k")
        await question(engine, ann)
    async with perdure.open(tmp_path / "a.db", workflows=[version("1")]) as engine:
        await approve(engine)
        with pytest.raises(perdure.PerdureError, match="register that version, or a newer one"):
            await engine.handle("versions", "k").send("note", {"node": "a", "text": "x"})
        fresh = await engine.start("versions", key="other")
        await approve(engine)
        assert await fresh.result() == "by 1"
    async with perdure.open(tmp_path / "a.db", workflows=[version("3")]) as engine:
        assert await engine.handle("versions", "k").result() == "by 3"


class Counted:
    """Awaits something, and counts how often it is resumed."""

    def __init__(self, what: Coroutine[Any, Any, Any], counts: list[int]) -> None:
        self._what, self._counts = what, counts

    def __await__(self) -> Generator[Any, Any, Any]:
        resumed, inner = 0, self._what.__await__()
        try:
            given = inner.send(None)
            while True:
                value = yield given
                resumed += 1
                given = inner.send(value)
        except StopIteration as end:
            self._counts.append(resumed)
            return end.value


async def test_an_answer_wakes_the_run_that_asked_and_no_other(url):
    counts: list[int] = []

    async def runner(node: Node) -> object:
        if node.name.startswith("waiter"):
            return (await Counted(node.results(["busy"]), counts))["busy"].value
        return [await node.use("publish", text=str(number)) for number in range(20)][-1]

    graph = Graph("many", runner=runner, tools=[publish], rest_after=None)
    for number in range(100):
        graph.node(f"waiter{number}")
    graph.node("busy")
    async with perdure.open(url, workflows=[graph]) as engine:
        result = await (await engine.start(graph, key="k")).result()
    assert set(result.values()) == {"published 19"}
    assert counts == [1] * 100


async def test_a_flow_bootstraps_a_graph_of_nodes_that_it_was_given(url):
    async def runner(node: Node) -> object:
        return node.goal

    desk = Graph("desk", runner=runner, limits={"nodes": 3})
    desk.node("first", goal="declared")

    @perdure.flow
    async def author(ctx: perdure.Context, nodes: list[dict[str, Any]]) -> object:
        return await ctx.child(desk, nodes=nodes)

    async with perdure.open(url, workflows=[desk, author]) as engine:
        plan = [{"name": "planned", "goal": "by a flow", "after": ["first"]}]
        assert await (await engine.start(author, plan, key="k")).result() == "by a flow"
        assert await (await engine.start(author, plan, key="k")).result() == "by a flow"
        with pytest.raises(BadGraph, match="nodes=3, and the start has 4"):
            await engine.start(desk, nodes=[{"name": f"n{each}"} for each in range(3)], key="x")
        assert len(await engine.instances()) == 2


@tool
async def noted(text: str) -> str:
    return text.upper()


async def planner(node: Node) -> object:
    if node.name != "plan":
        return await node.use("noted", text=node.name)
    submitted = await node.submit([{"name": "x"}, {"name": "y", "after": ["x"]}])
    return [found.value for found in (await node.results(submitted)).values()]


async def test_nodes_ask_their_graph_in_a_fleet_too(postgres: str) -> None:
    """The shards of an engine share its executors: each hears the requests of its own calls."""
    graph = Graph("fleet", runner=planner, tools=[noted], limits=Limits(depth=1))
    graph.node("plan")
    async with perdure.open(postgres, workflows=[graph]) as engine:
        handles = [await engine.start(graph, key=str(number)) for number in range(8)]

        for handle in handles:
            assert await handle.result(60) == ["PLAN/X", "PLAN/Y"]
