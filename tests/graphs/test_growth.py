"""Growth and trust: runs submit nodes, the gate takes a batch whole or not at all, quarantine spreads."""

from __future__ import annotations

import pytest

from perdure.codec import decode
from perdure.errors import PerdureError
from perdure.graphs import BadGraph, Denied, Graph, Limits, Permit, tool
from perdure.testing import World

from .rig import Rig, echo, run


@tool(writes=True)
async def write_file(text: str) -> str:
    return text


@tool
async def look() -> str:
    return "seen"


def growing(runner, **options) -> Graph:
    graph = Graph("g", runner=runner, tools=[write_file, look], **options)
    graph.node("plan", goal="plan")
    return graph


def by_name(**parts):
    """A runner with a function for each node; the others return their goal."""

    async def runner(node):
        part = parts.get(node.name.rpartition("/")[2])
        return node.goal if part is None else await part(node)

    return runner


def test_submitted_nodes_start_beside_their_submitter():
    async def plan(node):
        names = await node.submit([{"name": "a", "goal": "x"}, {"name": "b", "after": ["a"]}])
        await node.use("look")
        return names

    rig = run(growing(by_name(plan=plan)))

    assert rig.result == ["plan/a", "plan/b"]
    assert rig.ran.index("plan/a") < rig.ran.index("plan/use/look#1")
    assert [each["node"] for each in rig.facts("added")] == ["plan/a", "plan/b"]


def test_a_forward_reference_works_and_any_node_can_be_named_in_full():
    async def plan(node):
        late = {"name": "late", "after": ["early", "other"]}
        return await node.submit([late, {"name": "early"}, {"name": "last", "after": ["plan/late"]}])

    graph = growing(by_name(plan=plan))
    graph.node("other")
    rig = run(graph)

    assert rig.opened() == ["plan", "other", "plan/early", "plan/late", "plan/last"]


def test_one_bad_node_refuses_the_batch_untouched():
    async def plan(node):
        with pytest.raises(Denied) as denied:
            await node.submit([{"name": "good"}, {"name": "bad", "after": ["nobody"]}])
        assert denied.value.stage == "shape"
        assert denied.value.subject == "bad"
        return list(node.notes)

    rig = run(growing(by_name(plan=plan)))

    assert list(rig.state.nodes) == ["plan"]
    assert "nobody" in rig.result[0]


def test_the_node_limit_denies_and_work_goes_on():
    async def plan(node):
        with pytest.raises(Denied) as denied:
            await node.submit([{"name": f"n{number}"} for number in range(5)])
        assert denied.value.stage == "nodes"
        return await node.submit([{"name": "a"}])

    rig = run(growing(by_name(plan=plan), limits=Limits(nodes=3)))

    assert rig.result == ["plan/a"]
    assert [each["stage"] for each in rig.facts("denied")] == ["nodes"]


def test_an_empty_batch_leaves_no_fact():
    async def plan(node):
        return await node.submit([])

    rig = run(growing(by_name(plan=plan)))

    assert rig.result == []
    assert rig.facts("added") == []


def test_an_authored_graph_flattens_and_never_stacks():
    inner = Graph("inner", limits=Limits(tokens=5, running=1), veto=["look"])
    inner.node("one", goal="1")
    inner.node("two", goal="2", after=["one"])

    async def plan(node):
        return await node.submit(inner)

    rig = run(growing(by_name(plan=plan)))

    assert rig.result == ["plan/one", "plan/two"]
    added = rig.state.nodes["plan/one"].the
    assert added.limits.tokens == 5
    assert added.veto == ("look",)


def test_two_iterations_may_submit_one_name():
    async def again(node):
        return await node.submit([{"name": "same"}])

    graph = Graph("g", runner=by_name(again=again))
    graph.loop("again", max_iters=2)

    assert run(graph).result == ["again/~1/same"]


def test_depth_counts_generations():
    async def deeper(node):
        try:
            return await node.submit([{"name": "deeper"}])
        except Denied as denied:
            return denied.stage

    graph = Graph("g", runner=by_name(deeper=deeper), limits=Limits(depth=2))
    graph.node("deeper")
    rig = run(graph)

    assert list(rig.state.nodes) == ["deeper", "deeper/deeper", "deeper/deeper/deeper"]
    assert [node.depth for node in rig.state.nodes.values()] == [0, 1, 2]


def test_depth_0_forbids_growth():
    async def plan(node):
        with pytest.raises(Denied) as denied:
            await node.submit([{"name": "a"}])
        return denied.value.stage

    assert run(growing(by_name(plan=plan), limits=Limits(depth=0))).result == "depth"


def test_a_start_brings_nodes_and_what_is_done():
    graph = growing(by_name())
    graph.node("end", after=["plan"], goal="end")
    extra = [{"name": "more", "after": ["end"], "goal": "${inputs.plan.x}${inputs.end}", "needs": {}}]
    extra[0]["after"] = ["end", "plan"]
    rig = run(graph, nodes=extra, done={"plan": {"x": 7}})

    assert rig.ran == ["end", "more"]
    assert rig.result == "7end"


def test_a_start_resumes_from_submissions_and_what_was_completed():
    nodes = [
        {"name": "a", "submitter": "plan", "goal": "a"},
        {"name": "b", "submitter": "plan", "after": ["a"], "goal": "b"},
    ]
    rig = run(growing(by_name()), nodes=nodes, done={"plan": "p", "plan/a": "x"})
    assert rig.ran == ["plan/b"]
    assert rig.state.nodes["plan/b"].depth == 1

    again = run(growing(by_name()), nodes=nodes)
    assert again.ran == ["plan"], "a submitter that runs again submits again"


def test_a_classifier_that_had_chosen_leaves_the_other_branches_out():
    graph = Graph("g", runner=by_name())
    graph.classify("which", branches={"yes": ["a"], "no": ["b"]})
    graph.node("a", after=["which"])
    graph.node("b", after=["which"])
    graph.node("end", after=["a", "b"])
    rig = run(graph, done={"which": "no"})
    assert rig.ran == ["b", "end"]
    assert rig.outcomes()["a"] == "skipped(not_chosen)"
    rig.replayed()
    with pytest.raises(BadGraph, match="one of yes, no"):
        run(graph, done={"which": "maybe"})


def test_a_bad_start_is_refused_before_anything_is_recorded():
    with pytest.raises(BadGraph):
        Rig(growing(by_name()), nodes=[{"name": "plan"}])
    with pytest.raises(BadGraph, match="did you mean 'plan'"):
        Rig(growing(by_name()), done={"plann": 1})
    with pytest.raises(BadGraph):
        Rig(growing(by_name(), limits=Limits(nodes=1)), nodes=[{"name": "more"}])
    for nodes in (5, "more", [5]):
        with pytest.raises(PerdureError):
            Rig(growing(by_name()), nodes=nodes)


def test_a_person_can_add_nodes_at_the_top():
    async def plan(node):
        await node.submit([])
        return await node.use("look")

    rig = Rig(growing(by_name(plan=plan)))
    decision = rig.deliver_message("submit", [{"name": "late", "goal": "l"}])

    assert rig.responses == {decision: {"names": ["late"]}}
    rig.run()
    assert rig.outcomes() == {"plan": "completed", "late": "completed"}


# ---- trust -----------------------------------------------------------------------------------------------------------


def quarantined(runner) -> Graph:
    graph = Graph("g", runner=runner, tools=[write_file, look])
    graph.node("reader", role="explore", trust="quarantined")
    graph.node("after", after=["reader"], goal="after")
    return graph


def test_quarantine_spreads_to_what_is_submitted_and_a_quarantined_writer_never_opens():
    async def reader(node):
        await node.submit([{"name": "writer", "role": "implement"}, {"name": "fine", "role": "explore"}])
        return "read"

    rig = run(quarantined(by_name(reader=reader)))

    assert rig.outcomes()["reader/writer"] == "failed(denied)"
    assert rig.outcomes()["reader/fine"] == "completed"
    assert not rig.state.nodes["reader/fine"].trusted
    assert "reader/writer" not in rig.ran
    assert rig.facts("tainted")[0]["nodes"] == ["reader/writer", "reader/fine"]
    assert [each["stage"] for each in rig.facts("denied")] == ["quarantine"]
    assert "quarantine" in rig.state.nodes["reader"].notes[0], "its submitter hears of it too"


def test_untrusted_output_is_marked_wherever_it_is_read():
    seen = {}

    async def after(node):
        seen.update(node.inputs)

    run(quarantined(by_name(after=after)))

    assert seen["reader"].trusted is False


def test_read_only_nodes_cannot_write():
    async def reader(node):
        with pytest.raises(Denied) as denied:
            await node.use("write_file", text="x")
        return denied.value.stage

    rig = run(quarantined(by_name(reader=reader)))

    assert rig.facts("denied")[0]["stage"] == "isolation"
    assert rig.outcomes()["reader"] == "completed"


def test_judges_and_entrants_inherit_quarantine():
    async def runner(node):
        return "left" if node.match else node.trust

    graph = Graph("g", runner=runner)
    graph.tournament("best", entrants={"a": "", "b": ""}, trust="quarantined", isolation="read_only")
    rig = run(graph)

    assert rig.result == "quarantined"
    assert [node.trusted for node in rig.state.nodes.values()] == [False] * 4


def test_a_quarantined_node_starts_no_child():
    async def reader(node):
        await node.submit([{"name": "kid", "kind": "child", "workflow": "other", "isolation": "read_only"}])

    rig = run(quarantined(by_name(reader=reader)))

    assert rig.outcomes()["reader/kid"] == "failed(denied)"
    assert rig.facts("denied")[0]["stage"] == "trust"


def test_a_reduce_of_untrusted_output_is_untrusted():
    """Given a reduce of a quarantined node, when another node reads it, then its value is untrusted as before."""
    seen = {}

    async def last(node):
        seen.update(node.inputs)

    graph = quarantined(by_name(last=last))
    graph.reduce("joined", "collect", after=["reader"])
    graph.node("last", after=["joined"])
    rig = run(graph)

    assert seen["joined"].trusted is False
    assert rig.state.nodes["last"].trusted, "a run may judge what it has read"


def strict(**parts) -> Graph:
    """A node that reads a quarantined one and writes, and another that writes beside it."""

    async def write(node):
        return await node.use("write_file", text=node.name)

    runner = by_name(**{"writer": write, "beside": write, **parts})
    permits = [Permit("write_file", "allow")]
    graph = Graph("g", runner=runner, tools=[write_file, look], permits=permits, roles=["boss"], taint="strict")
    graph.node("reader", role="explore", trust="quarantined", goal="page")
    graph.node("writer", after=["reader"])
    graph.node("beside")
    graph.node("last", after=["writer"], goal="last")
    return graph


def test_strict_taint_asks_before_a_run_writes_that_has_read_untrusted_output():
    rig = run(strict())

    assert rig.outcomes()["beside"] == "completed", "what reads nothing untrusted is allowed as before"
    [(intent, asked)] = rig.tasks()
    assert asked["data"]["untrusted"] is True
    rig.say(intent, "approve")
    assert rig.result == {"beside": "beside", "last": "last"}
    assert [name for name, node in rig.state.nodes.items() if not node.trusted] == ["reader", "writer", "last"]
    assert {"node": "writer", "inputs": ["reader"]} in rig.facts("tainted")
    assert rig.replayed().snapshot() == rig.machine.snapshot()


def test_strict_taint_is_in_the_report_and_in_the_picture():
    with World() as world:
        handle = world.start(strict())
        [row] = [row for row in handle.state()["nodes"] if row["node"] == "writer"]

        assert row["trust"] == "untrusted"
        assert "untrusted" in handle.draw("mermaid")


def test_strict_taint_spreads_by_results_and_to_what_a_tainted_run_submits():
    async def beside(node):
        assert await node.use("write_file", text="before") == "before"
        await node.results(["reader"])
        [name] = await node.submit([{"name": "writer"}])
        found = await node.results([name])
        return found[name].outcome

    rig = run(strict(beside=beside))
    asked = {data["data"]["node"]: intent for intent, data in rig.tasks()}
    assert list(asked) == ["writer", "beside/writer"]
    rig.say(asked["beside/writer"], "deny")
    rig.say(asked["writer"], "deny")

    assert rig.outcomes()["beside"] == "completed"
    assert rig.outcomes()["beside/writer"] == "failed(denied)"
    assert not rig.state.nodes["beside"].trusted


def test_the_winner_of_tainted_entrants_is_untrusted():
    async def runner(node):
        return "left" if node.match else "page"

    graph = Graph("g", runner=runner, taint="strict")
    graph.node("reader", role="explore", trust="quarantined")
    graph.tournament("best", entrants={"a": "", "b": ""}, after=["reader"])

    assert not run(graph).state.nodes["best"].trusted


def test_strict_taint_needs_people_who_answer():
    def problems(**options):
        graph = Graph("g", runner=echo, tools=[write_file, look], taint="strict", **options)
        graph.node("a")
        return [each.where for each in graph.problems]

    assert problems() == ["taint"]
    assert problems(permits=[Permit("write_file", "allow", where={"text": {"equals": "x"}}, roles=("boss",))]) == [
        "taint"
    ]
    assert not problems(roles=["boss"])
    assert not problems(veto=["write_file"])
    assert not problems(permits=[Permit("write_file", "allow", roles=("boss",))])


def test_submitted_nodes_only_narrow_what_their_submitter_may_do():
    async def plan(node):
        await node.submit([{"name": "a"}, {"name": "b", "tools": ["write_file"], "limits": {"calls": 9}}])

    graph = Graph("g", runner=by_name(plan=plan), tools=[write_file, look])
    graph.node("plan", tools=["look"], limits=Limits(calls=4), veto=["x"])
    rig = run(graph)

    assert rig.state.nodes["plan/a"].the.tools == ("look",)
    assert rig.state.nodes["plan/b"].the.tools == ()
    assert rig.state.nodes["plan/b"].the.limits.calls == 4
    assert rig.state.nodes["plan/b"].the.veto == ("x",)


def test_limits_of_a_submitted_graph_tighten_and_bound_its_own_growth():
    inner = Graph("inner", limits=Limits(depth=0, nodes=2))
    inner.node("one")
    large = Graph("large", limits=Limits(nodes=1))
    large.node("one")
    large.node("two")
    said = []

    async def plan(node):
        with pytest.raises(Denied) as denied:
            await node.submit(large)
        said.append(denied.value.stage)
        return await node.submit(inner)

    async def one(node):
        try:
            await node.submit([{"name": "more"}])
        except Denied as denied:
            said.append(denied.stage)

    rig = run(growing(by_name(plan=plan, one=one)))

    assert rig.outcome.status == "completed"
    assert said == ["nodes", "depth"]


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_submitted_graph_runs_no_more_nodes_at_once_than_it_allows_itself(rebuild):
    inner = Graph("inner", limits=Limits(running=1))
    for name in ("a", "b", "c"):
        inner.node(name)
    closed = Graph("closed", limits=Limits(running=0))
    closed.node("never")
    inside, most = set(), []

    async def plan(node):
        names = await node.submit(inner)
        await node.submit([{"name": "beside"}])
        denied = await node.submit(closed)
        return [each.outcome for each in (await node.results([*names, *denied])).values()]

    async def one(node):
        for _ in range(2):
            inside.add(node.name)
            most.append(sorted(inside))
            await node.use("look")
            inside.discard(node.name)
            if not node.name.endswith("more"):
                await node.results(await node.submit([{"name": "more"}]))
                break

    rig = run(growing(by_name(plan=plan, a=one, b=one, more=one)), rebuild=rebuild)

    assert rig.outcome.status == "completed"
    assert decode(rig.state.nodes["plan"].value) == ["completed"] * 3 + ["failed"]
    assert rig.state.nodes["plan/never"].detail == "running: the submitted graph runs no node at all: running=0"
    assert sorted(most) == [[f"plan/{name}"] for name in ("a", "a/more", "a/more", "b", "b/more", "b/more")]
    assert rig.ran.index("plan/beside") < rig.ran.index("plan/c"), "what stands behind the group does not wait for it"
    assert [group.running for group in rig.state.groups] == [0, 0]


@pytest.mark.parametrize("body", [5, "x", {"name": "x"}, {"nodes": 5}, {"nodes": [{"name": "x"}], "limits": {"x": 1}}])
def test_a_batch_of_a_wrong_shape_is_denied_and_the_graph_goes_on(body):
    rig = Rig(growing(echo))
    id = rig.deliver_message("submit", body)
    assert rig.responses[id]["denied"]["stage"] == "shape"
    assert rig.run().outcome.status == "completed"


def test_nodes_of_a_start_may_do_no_more_than_their_submitter():
    graph = Graph("g", runner=echo, tools=[look])
    graph.node("plan", tools=[], veto=["look"], limits=Limits(calls=3))
    graph.node("end", after=["plan"])

    rig = run(graph, nodes=[{"name": "x", "submitter": "plan"}], done={"plan": 1})

    spec = rig.state.nodes["plan/x"].the
    assert (spec.tools, spec.veto, spec.limits.calls) == ((), ("look",), 3)


def test_what_a_node_had_completed_is_not_asked_for_when_its_submitter_runs_again():
    async def plan(node):
        return await node.submit([{"name": "facts", "goal": "new"}])

    graph = growing(by_name(plan=plan))
    rig = run(graph, nodes=[{"name": "facts", "submitter": "plan"}], done={"plan/facts": "old"})

    assert rig.opened() == ["plan", "plan/facts"]


def test_an_authored_graph_tightens_the_nodes_of_a_start():
    plan = Graph("plan", veto=["look"], limits=Limits(calls=5))
    plan.node("read", veto=["other"], limits=Limits(calls=9, tokens=3))
    rig = Rig(growing(by_name()), nodes=plan)
    spec = rig.state.nodes["read"].the
    assert (spec.veto, spec.limits) == (("other", "look"), Limits(calls=5, tokens=3))
