"""Playbooks in a real engine: real tools, real files, crashes."""

import asyncio
import textwrap

import pytest

import perdure
from perdure.app.ours import load_playbook
from perdure.graphs import Graph, Node
from perdure.playbooks.model import from_bytes, to_bytes
from perdure.processes import Complete, Process, SubProcess, fn, result
from tests.playbooks.harness import HEAD


def book(body):
    return load_playbook(HEAD + textwrap.dedent(body))


async def start(playbook, url=":memory:", key="k", input=None, **options):
    async with perdure.open(url, workflows=[playbook], **options) as engine:
        handle = await engine.start(playbook, input or {}, key=key)
        return await asyncio.wait_for(handle.result(), 60)


async def test_a_playbook_moves_rows_between_databases(tmp_path):
    playbook = book(
        f"""
        workflow:
          - step: load
            tool:
              - {{name: make, kind: sqlite, dsn: {tmp_path}/a.db, script: "create table t (n int); insert into t values (1), (2), (3)"}}
              - {{name: read, kind: sqlite, dsn: {tmp_path}/a.db, query: "select n from t where n > :least", params: {{least: 1}}}}
              - {{name: sum, kind: duckdb, query: "select sum(n)::int as total from (select unnest(:ns) as n)",
                  params: {{ns: "{{{{ read.rows | map(attribute='n') | list }}}}"}}}}
              - {{name: ask, kind: python, args: {{x: "{{{{ sum.rows[0].total }}}}"}}, code: "return x * 2"}}
              - {{name: say, kind: shell, command: "echo total {{{{ ask }}}}"}}
        """
    )

    assert await start(playbook) == "total 10"


SLOW = """
    executor: {spec: {ctx: {go: {init: false}}}}
    workflow:
      - {step: a, tool: {kind: noop, result: 1}, next: b}
      - step: b
        spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
        tool: {kind: noop, result: "{{ a + 1 }}"}
"""


async def test_a_denied_token_survives_a_restart_without_the_file(tmp_path):
    url = tmp_path / "p.db"
    async with perdure.open(url, workflows=[book(SLOW)]) as engine:
        handle = await engine.start("p", key="k")
        assert (await handle.status()) == "waiting"
    async with perdure.open(url) as engine:
        handle = engine.handle("p", "k")
        assert await handle.ask("ctx", {"set": {"go": True}}, by="ann", reason="it is fine") == {"ctx_version": 1}
        assert await handle.result() == 2
        assert (await handle.read("summary"))["verdict"] == "success"


async def test_an_instance_stays_on_its_version_and_the_file_registered_last_is_the_newest(tmp_path):
    url = tmp_path / "p.db"
    later = [book(SLOW.replace("a + 1", f"a + {more}")) for more in (10, 20, 30)]
    async with perdure.open(url, workflows=[book(SLOW)]) as engine:
        await engine.start("p", key="old")
        for each in later:
            await engine.playbooks.put(each, by="ann")
        await engine.start("p", key="new")
        await engine.handle("p", "old").ask("ctx", {"set": {"go": True}})
        await engine.handle("p", "new").ask("ctx", {"set": {"go": True}})
        assert await engine.handle("p", "old").result() == 2
        assert await engine.handle("p", "new").result() == 31
        assert [each.version for each in await engine.playbooks.versions("p")][1:] == [each.version for each in later]


async def test_what_is_no_playbook_is_refused(tmp_path):
    wf = book("workflow: [{step: a, tool: {kind: noop}}]")
    async with perdure.open(":memory:", workflows=[wf]) as engine:
        with pytest.raises(perdure.BadCall, match=r"put takes a playbook, found 'p.yaml'; load it first"):
            await engine.playbooks.put("p.yaml", by="ann")  # type: ignore[arg-type]
        with pytest.raises(
            perdure.NotConvertible, match="the input of p: \\$: expected a map over the workload, found list"
        ):
            await engine.start(wf, [1], key="k")


async def test_two_spellings_are_one_version(tmp_path):
    rule = "spec: {policy: {rules: [{else: {then: {set_ctx: {y: 1}}}}]}}"
    one = book(
        f"workflow: [{{step: a, tool: {{kind: noop}}, next: [{{step: b, when: ctx.x is defined}}]}}, {{step: b, join: all, tool: {{kind: noop, {rule}}}}}]"
    )
    spelled = "spec: {once: false, policy: {rules: [{else: {then: {do: continue, max_delay: 300, delay: 1, backoff: none, set: {ctx.y: 1}}}}]}}"
    two = book(
        f"""
        # the same
        executor: {{spec: {{status: fail_on_unhandled, limits: {{max_tokens: 10000}}}}}}
        workflow:
          - step: a
            next: {{spec: {{mode: exclusive}}, arcs: [{{when: "{{{{ ctx.x is defined }}}}", step: b}}]}}
            tool: [{{name: a_task, kind: noop}}]
          - {{tool: {{kind: noop, {spelled}}}, step: b, join: {{mode: all, on_short: fail}}}}
        """
    )

    assert one.version == two.version
    assert from_bytes(to_bytes(one.definition.playbook)).version == one.version
    async with perdure.open(tmp_path / "p.db", workflows=[one]):
        pass
    async with perdure.open(tmp_path / "p.db", workflows=[two]) as engine:
        assert len(await engine.playbooks.versions("p")) == 1


async def test_a_retry_does_what_failed_again_and_the_final_step(tmp_path):
    log = tmp_path / "log"
    text = f"""
        executor: {{spec: {{final_step: last}}}}
        workflow:
          - {{step: s, next: {{spec: {{mode: inclusive}}, arcs: [{{step: good}}, {{step: bad}}]}}}}
          - {{step: good, tool: {{kind: shell, command: "sh -c 'echo good >> {log}'"}}}}
          - {{step: bad, tool: {{kind: shell, command: "sh -c 'echo bad >> {log}; test -e {tmp_path}/there'"}}, next: after}}
          - {{step: after, tool: {{kind: shell, command: "sh -c 'echo after >> {log}; echo done'"}}}}
          - {{step: last, tool: {{kind: shell, command: "sh -c 'echo last >> {log}; echo {{{{ args.summary.verdict }}}}'"}}}}
    """
    url = tmp_path / "p.db"
    async with perdure.open(url, workflows=[book(text)]) as engine:
        handle = await engine.start("p", key="k")
        try:
            await handle.result()
            raise AssertionError("it fails at first")
        except perdure.InstanceFailed as failed:
            assert "exit_code" in str(failed)
    (tmp_path / "there").touch()
    async with perdure.open(url) as engine:
        handle = engine.handle("p", "k")
        await handle.retry()
        assert await asyncio.wait_for(handle.result(), 60) == "success"
    async with perdure.open(url) as engine:
        assert await engine.handle("p", "k").result() == "success"

    assert sorted(log.read_text().split()) == ["after", "bad", "bad", "good", "last", "last"]


async def test_a_queue_that_the_engine_serves_performs_tools():
    playbook = book("executor: {spec: {queue: far}}\nworkflow: [{step: a, tool: {kind: shell, argv: [echo, hi]}}]")

    assert await start(playbook, queues={"far": 2}) == "hi"


async def test_a_large_result_is_stored_read_into_passed_whole_and_looped_over():
    playbook = book(
        """
        workflow:
          - step: a
            tool: {name: big, kind: python, code: "result = [{'n': i, 'pad': 'x' * 100} for i in range(2000)]", spec: {result: {select: {last: "-1.n"}}}}
            next: b
          - step: b
            tool:
              - {name: one, kind: noop, result: "{{ a[7].n }}"}
              - {name: sum, kind: python, args: {all: "{{ a }}"}, code: "result = sum(each['n'] for each in all)"}
              - {name: told, kind: noop, result: {one: "{{ one }}", sum: "{{ sum }}", length: "{{ a | length }}"}}
            next: c
          - {step: c, loop: {in: "{{ a }}", iterator: x, spec: {collect: last}}, tool: {kind: noop, result: "{{ x.n }}"}, next: d}
          - {step: d, tool: {kind: noop, result: ["{{ b }}", "{{ c }}", "{{ a[5000] | default(3) }}", "{{ a[7].gone is defined }}"]}}
        """
    )

    assert await start(playbook) == [{"one": 7, "sum": 1999000, "length": 2000}, 1999, 3, False]


async def test_a_large_result_comes_whole_to_parents_of_each_dialect():
    """Given a playbook whose leaf gives more than 64 KiB, when a flow, a graph, a process and a playbook have it as a
    child, then each gets the value."""
    leaf = book("workflow: [{step: a, tool: {kind: python, code: \"result = 'x' * 70000\"}}]")
    parent = HEAD.replace("name: p", "name: parent") + textwrap.dedent(
        """
        workflow:
          - {step: a, tool: {kind: workflow, workflow: p}, next: b}
          - {step: b, tool: {kind: noop, result: "{{ a | length }}"}}
        """
    )

    @perdure.flow
    async def caller(ctx: perdure.Context) -> int:
        return len(await ctx.child("p"))

    async def runner(node: Node) -> int:
        return len(node.inputs["leaf"].value)

    graph = Graph("graph", runner=runner)
    graph.child("leaf", "p")
    graph.node("after", after=["leaf"])
    steps = [SubProcess("leaf", "p", {}, result="leaf"), Complete(fn.length(result.leaf))]
    process = Process("process", version="1.0.0", steps=steps)
    workflows = [leaf, load_playbook(parent), caller, graph, process]
    async with perdure.open(":memory:", workflows=workflows) as engine:
        handles = [await engine.start(name, key=name) for name in ("caller", "graph", "parent", "process")]

        assert [await asyncio.wait_for(handle.result(), 60) for handle in handles] == [70_000] * 4
