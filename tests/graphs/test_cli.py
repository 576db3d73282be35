"""What the command line says of graphs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli import cli
from perdure.errors import InstanceFailed, InstanceStuck
from perdure.graphs import Graph, Permit, tool
from tests.cli.conftest import inside
from tests.stages import LONG

MODULE = """
from perdure.graphs import Graph, Node, Permit, tool

@tool(writes=True)
async def publish(text: str) -> str:
    return text

async def runner(node: Node) -> object:
    if node.name == "ship":
        return await node.use("publish", text="x")
    return [node.name, node.input]

plain = Graph("plain", runner=runner)
plain.node("a")
plain.node("b", after=["a"], goal="do ${inputs.a}")

asking = Graph("asking", runner=runner, tools=[publish], permits=[Permit("publish", "ask", roles=["editor"])])
asking.node("first")
asking.node("ship", after=["first"])
"""

WRONG = """
from perdure.graphs import Graph

wrong = Graph("wrong", runner=print)
wrong.node("a", aftr=["b"])
"""


FAMILY = """
import perdure
from perdure.graphs import Graph

@perdure.flow
async def double(ctx: perdure.Context, n: int = 0) -> int:
    return 2 * n

def hidden():
    @perdure.flow(name="other")
    async def other(ctx: perdure.Context) -> None: ...
    return other

parent = Graph("parent")
parent.child("kid", "plan")
parent.child("twin", "double")
parent.child("own", hidden())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text(WRONG)
    return tmp_path


def perdure_says(folder: Path, *words: str) -> tuple[int, str]:
    with pytest.MonkeyPatch.context() as place, inside(folder, place):
        result = CliRunner().invoke(cli, words, prog_name="perdure")
    return result.exit_code, result.stdout + result.stderr


def test_check_tells_every_problem_and_warning_with_its_place(folder):
    code, said = perdure_says(folder, "check", "desk", "broken")
    assert code == 1
    assert "wrong: a: unknown field 'aftr'; did you mean 'after'?" in said
    assert "warning" in said
    code, said = perdure_says(folder, "check", "desk:asking", "--json")
    assert code == 0
    assert json.loads(said)["workflows"] == ["asking"]


def test_check_knows_the_workflows_of_the_modules_that_it_is_given(folder):
    (folder / "family.py").write_text(FAMILY)
    code, said = perdure_says(folder, "check", "family")
    assert code == 1
    assert "parent: kid: unknown workflow 'plan'; there are: double, other, parent; did" in said
    assert "twin" not in said
    assert "own:" not in said
    code, said = perdure_says(folder, "check", "family:parent", "desk")
    assert code == 1
    assert "unknown workflow 'plan'; there are: asking, double, other, parent, plain; did you mean 'plain'?" in said
    (folder / "family.py").write_text(FAMILY.replace('"plan"', '"plain"'))
    assert perdure_says(folder, "check", "family:parent", "desk")[0] == 0


def test_run_runs_a_graph_and_prints_its_result(folder):
    code, said = perdure_says(folder, "run", "desk:plain", "--input", '{"input": 7}')
    assert code == 0, said
    assert '["b",7]' in "".join(said.split())


def test_start_starts_a_graph_by_its_name_and_diff_compares_two_by_their_nodes(folder):
    async def run(*keys: str) -> None:
        async with perdure.open(folder / "a.db", workflows=[compared()]) as engine:
            for number in (1, 2, 3, 4):
                await engine.start("compared", number, key=str(number))
            for key in keys:
                with suppress(InstanceFailed):
                    await engine.handle("compared", key).result()

    asyncio.run(run("1", "2", "3", "4"))
    given = ("--input", '{"input": 1}', "--db", "a.db")
    code, said = perdure_says(folder, "start", "compared", "--key", "same", *given)
    assert code == 0
    assert said.startswith("same\n")
    code, said = perdure_says(folder, "start", "comparde", *given)
    assert code != 0
    assert "compared" in said
    asyncio.run(run("same"))

    code, said = perdure_says(folder, "diff", "compared/1", "compared/same", "--db", "a.db")
    assert code == 0, said
    code, said = perdure_says(folder, "diff", "compared/1", "compared/2", "--db", "a.db", "--json")
    assert code == 1, said
    assert [(each["what"], each["location"]) for each in json.loads(said)["differences"]] == [
        ("input", ""),
        ("step", "b"),
    ]
    code, said = perdure_says(folder, "diff", "compared/3", "compared/4", "--db", "a.db", "--json")
    assert [each["what"] for each in json.loads(said)["differences"]] == ["input"]


def compared() -> Graph:
    async def runner(node):
        if node.name == "b" and node.input > 2:
            raise ValueError("too much")
        return node.input if node.name == "b" else "equal"

    graph = Graph("compared", runner=runner)
    for name in ("a", "b"):
        graph.node(name)
    graph.node("c", after=["a", "b"])
    return graph


async def asked(folder: Path) -> None:
    """An engine runs the graph until it waits for a person, and stops."""
    sys.path.insert(0, str(folder))
    try:
        import desk  # type: ignore[import-not-found]

        async with perdure.open(folder / "a.db", workflows=[desk.asking], drain=0) as engine:
            await engine.start(desk.asking, key="k")
            while not await engine.tasks.list():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("desk", None)


def test_show_has_a_row_for_each_node_and_why_says_what_it_waits_for(folder):
    asyncio.run(asked(folder))
    code, said = perdure_says(folder, "show", "asking/k", "--db", "a.db")
    assert code == 0, said
    head, *nodes = said.splitlines()[-3:]
    assert [line.split()[:2] for line in nodes] == [["first", "completed"], ["ship", "open"]]
    assert head.split()[-1] == "since"
    code, said = perdure_says(folder, "why", "asking/k", "--db", "a.db")
    assert code == 0, said
    assert "The node ship asks a person whether it may use publish" in said
    code, said = perdure_says(folder, "history", "asking/k", "--db", "a.db")
    assert "request ship/use" in said


# ---- changed code ----------------------------------------------------------------------------------------------------


@tool
async def wait() -> str:
    return "waited"


def ordered(*names: str) -> Graph:
    async def runner(node):
        return await node.use("wait")

    graph = Graph(
        "ordered", runner=runner, tools=[wait], permits=[Permit("wait", "ask", roles=("r",))], rest_after=None
    )
    for name in names:
        graph.node(name)
    return graph


async def test_a_changed_order_is_a_divergence_that_names_the_node(tmp_path):
    graph = ordered("a", "b")
    async with perdure.open(tmp_path / "a.db", workflows=[graph], drain=0) as engine:
        await engine.start(graph, key="k")
        while len(await engine.tasks.list()) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    changed = ordered("b", "a")
    async with perdure.open(tmp_path / "a.db", workflows=[changed], drain=0) as engine:
        handle = engine.handle(changed, "k")
        with pytest.raises(InstanceStuck, match="opened a then and opens b now"):
            await handle.result(timeout=60)
    async with perdure.open(tmp_path / "a.db", workflows=[graph], drain=0) as engine:
        handle = engine.handle(graph, "k")
        await handle.retry()
        assert await handle.status() in ("running", "waiting")


async def test_replay_calls_no_runner(tmp_path):
    ran = []

    async def runner(node):
        ran.append(node.name)
        return node.name

    graph = Graph("counted", runner=runner)
    graph.node("a")
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        handle = await engine.start(graph, key="k")
        await handle.result()
        assert "a" in await handle.draw("mermaid"), "the machine is rebuilt from the journal"
    assert ran == ["a"]


MANY = 10_000 if LONG else 1000  # runs at rest


async def test_a_run_at_rest_is_rows_only_when_an_engine_opens(tmp_path):
    def resting() -> Graph:
        async def runner(node):
            return await node.use("wait")

        graph = Graph(
            "resting", runner=runner, tools=[wait], permits=[Permit("wait", "ask", roles=("r",))], rest_after=0.01
        )
        graph.node("a")
        return graph

    graph = resting()
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        handles = await asyncio.gather(*[engine.start(graph, key=str(number)) for number in range(MANY)])
        for handle in handles:
            await handle.until("waiting")
    made = []
    again = resting()
    machine = again.machine
    again.machine = lambda *args: made.append(1) or machine(*args)  # type: ignore[method-assign,func-returns-value,redundant-expr]
    async with perdure.open(tmp_path / "a.db", workflows=[again]) as engine:
        assert await engine.tasks.count() == MANY
        assert made == []


WITHOUT_JINJA = """
import sys
sys.modules["jinja2"] = None  # as where the extra of playbooks is not installed
from perdure.cli import main
main()
"""


def test_why_and_show_need_no_extra_of_another_dialect(folder):
    asyncio.run(asked(folder))
    for verb in ("why", "show"):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_JINJA, verb, "asking/k", "--db", "a.db"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "ship" in done.stdout
