"""The gate: vetoes, permits, conditions, budgets, questions to people. Every denial is a fact and a note."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from perdure.graphs import Denied, Graph, Limits, Permit, Used, gate, tool
from perdure.graphs.model import NodeSpec, fits
from perdure.kernel.backoff import Backoff
from perdure.testing import World
from perdure.testing.disks import at_once
from perdure.verbs.read import WhyParams, why

from .rig import Rig, run


@tool(writes=True)
async def pay(cents: int, to: str = "ann") -> str:
    return f"paid {cents} to {to}"


@tool
async def cheap() -> Used:
    return Used("ok", {"tokens": 4})


@tool
async def look(what: str) -> str:
    return f"saw {what}"


@tool(name="git.push")
async def push() -> str:
    return "pushed"


TOOLS = [pay, cheap, push]


def one(runner, **options) -> Graph:
    graph = Graph("g", runner=runner, tools=TOOLS, **options)
    graph.node("a")
    return graph


async def pays(node):
    found = []
    for cents in (100, 9000):
        try:
            found.append(await node.use("pay", cents=cents))
        except Denied as denied:
            found.append(denied.stage)
    return found


def test_a_condition_on_an_argument_decides():
    graph = one(pays, permits=[Permit("pay", "deny", where={"cents": {"min": 5000}}), Permit("pay", "allow")])
    assert run(graph).result == ["paid 100 to ann", "permit"]


@pytest.mark.parametrize(
    ("conditions", "allowed"),
    [
        ({"equals": 100}, [True, False]),
        ({"one_of": [9000, 1]}, [False, True]),
        ({"max": 100}, [True, False]),
        ({"min": 101, "max": 9000}, [False, True]),
        ({"matches": "1.*"}, [False, False]),
        ({"equals": 100.0}, [True, False]),
        ({"one_of": [True, 9000.0]}, [False, True]),
    ],
)
def test_each_condition(conditions, allowed):
    graph = one(pays, permits=[Permit("pay", "allow", where={"cents": conditions}), Permit("**", "deny")])
    assert [each != "permit" for each in run(graph).result] == allowed


def test_a_condition_holds_for_the_default_of_an_argument():
    graph = one(pays, permits=[Permit("pay", "deny", where={"to": {"equals": "ann"}})])
    assert run(graph).result == ["permit", "permit"]


def test_a_decimal_is_a_number_for_a_condition():
    @tool
    async def give(amount: Decimal) -> str:
        return str(amount)

    async def runner(node):
        try:
            return await node.use("give", amount=Decimal("5000.5"))
        except Denied as denied:
            return denied.stage

    graph = Graph("g", runner=runner, tools=[give], permits=[Permit("give", "deny", where={"amount": {"min": 5000}})])
    graph.node("a")
    assert run(graph).result == "permit"


@pytest.mark.parametrize(("verdict", "stage"), [("deny", "permit"), ("allow", "isolation")])
def test_a_text_that_is_too_long_for_a_pattern_fits_only_what_denies(verdict, stage):
    spec, where = NodeSpec("n", isolation="read_only"), {"to": {"matches": "a*"}}
    verdict = gate.use(
        spec,
        "pay",
        {"cents": 1, "to": "b" * 20_000},
        tools={"pay": pay},
        permits=[Permit("pay", verdict, where=where), Permit("pay", "allow")],
        veto=(),
        accounts=(),
        wanted={},
    )
    assert verdict.stage == stage


def test_a_veto_survives_every_permit():
    graph = one(pays, permits=[Permit("**", "allow")], veto=["p*"])
    assert run(graph).result == ["veto", "veto"]


def test_globs_know_the_parts_of_names():
    assert fits("git.*", "git.push")
    assert not fits("*", "git.push")
    assert fits("**", "git.push")
    assert fits("g*.push", "git.push")
    assert not fits("git.*", "git.remote.add")


def test_a_denied_call_leaves_its_siblings_and_every_denial_is_a_fact_and_a_note():
    async def runner(node):
        with pytest.raises(Denied) as denied:
            await node.use("git.push")
        assert denied.value.note == "git.push was denied (permit): this node may use: pay"
        return [await node.use("pay", cents=1), *node.notes]

    graph = Graph("g", runner=runner, tools=TOOLS)
    graph.node("a", tools=["pay"])
    rig = run(graph)
    assert rig.result == ["paid 1 to ann", "git.push was denied (permit): this node may use: pay"]
    [fact] = rig.facts("denied")
    assert (fact["node"], fact["subject"], fact["stage"]) == ("a", "git.push", "permit")


def test_a_denied_node_does_not_stop_the_queue():
    async def runner(node):
        return node.name

    graph = Graph("g", runner=runner, limits=Limits(depth=0))
    graph.node("a", limits=Limits(calls=0))
    graph.node("b", after=["a"], needs="all_terminal")
    graph.node("c", after=["a"])
    rig = run(graph)
    assert rig.outcomes() == {"a": "failed(denied)", "b": "completed", "c": "skipped(upstream)"}


# ---- budgets ---------------------------------------------------------------------------------------------------------


def test_usage_is_counted_once_on_success_and_failure():
    def broken():
        raise ValueError

    async def runner(node):
        await node.use("cheap")
        await node.step("model", lambda: 1, usage={"tokens": 6, "cost": 0.5})
        with pytest.raises(Exception, match="ValueError"):
            await node.step("model", broken, reserve={"tokens": 50})
        return Used("done", {"cost": 0.25})

    rig = run(one(runner))
    assert {axis: rig.state.used[axis] for axis in ("tokens", "cost", "calls")} == {
        "tokens": 10,
        "cost": 0.75,
        "calls": 3,
    }
    assert rig.state.reserved == {}


def test_what_is_reserved_counts_until_the_answer_is_there():
    async def runner(node):
        if node.name == "b":
            with pytest.raises(Denied) as denied:
                await node.step("model", lambda: 1, reserve={"tokens": 60})
            return denied.value.reason
        await node.step("model", lambda: 1, reserve={"tokens": 60}, usage={"tokens": 20})
        return await node.step("more", lambda: 2, reserve={"tokens": 60})

    graph = one(runner, limits=Limits(tokens=100))
    graph.node("b")
    rig = Rig(graph)
    rig.run(steps=2)  # both have asked for their first step, and none has performed it
    rig.run()
    assert rig.outcomes() == {"a": "completed", "b": "partial(budget)"}
    assert "40 tokens left" in str(rig.facts("denied"))


def test_a_return_after_a_denial_for_budget_is_partial():
    async def runner(node):
        await node.use("cheap")
        try:
            await node.use("cheap")
        except Denied:
            return "half"

    rig = run(one(runner, limits=Limits(calls=1)))
    assert rig.outcomes() == {"a": "partial(budget)"}
    assert rig.result == "half"


@pytest.mark.parametrize("usage", [{"tokens": -5}, "many", 5, [1], lambda result: result["usage"]])
def test_usage_that_makes_no_sense_counts_as_what_was_reserved_and_is_a_fact(usage):
    async def runner(node):
        return await node.step("model", lambda: 1, reserve={"tokens": 30}, usage=usage)

    rig = run(one(runner))
    assert rig.result == 1, "what was bought is not lost"
    assert rig.state.used["tokens"] == 30
    assert rig.facts("denied")[0]["stage"] == "usage"


@pytest.mark.parametrize("reserve", [{"tokens": -5}, "many", 5])
def test_a_reserve_that_makes_no_sense_is_denied(reserve):
    async def runner(node):
        with pytest.raises(Denied) as denied:
            await node.step("model", lambda: 1, reserve=reserve)
        return denied.value.stage

    assert run(one(runner)).result == "arguments"


def test_the_snapshot_counts_its_own_batch_and_without_limits_there_is_none():
    seen = []

    async def runner(node):
        seen.append(node.budget)

    graph = one(runner, limits=Limits(running=5, tokens=10))
    graph.node("b")
    run(graph)
    assert seen[0]["running"] == {"used": 2, "limit": 5, "left": 3}
    assert seen[0]["tokens"] == {"used": 0, "limit": 10.0, "left": 10.0}
    seen.clear()
    run(one(runner))
    assert seen == [None]


def test_wall_cuts_a_run_and_rest_does_not_use_it_up():
    async def runner(node):
        return await node.use("pay", cents=1)

    rig = run(one(runner, limits=Limits(wall=60), permits=[Permit("pay", "ask", roles=("r",))], rest_after=5))
    rig.fire(100_000)
    assert rig.state.nodes["a"].status == "open", "it rests"
    assert rig.state.used["wall"] == pytest.approx(5)

    awake = run(one(runner, limits=Limits(wall=60), permits=[Permit("pay", "ask", roles=("r",))], rest_after=None))
    awake.fire(100)
    assert awake.outcomes() == {"a": "failed(wall)"}
    assert awake.open == {}


def test_wall_of_one_node_leaves_the_others():
    async def runner(node):
        return await node.use("pay", cents=1)

    graph = Graph("g", runner=runner, tools=TOOLS, permits=[Permit("pay", "ask", roles=("r",))], rest_after=None)
    graph.node("a", limits=Limits(wall=3))
    graph.node("b")
    rig = run(graph)
    rig.fire(10)
    assert rig.outcomes() == {"a": "failed(wall)", "b": "open"}


# ---- people ----------------------------------------------------------------------------------------------------------


def asking(**options) -> Rig:
    async def runner(node):
        try:
            return await node.use("pay", cents=5)
        except Denied as denied:
            return [denied.stage, denied.reason]

    return run(one(runner, permits=[Permit("pay", "ask", roles=("boss",), users=("ann",), within=60)], **options))


def test_a_question_has_its_data_and_those_who_may_answer():
    rig = asking()
    [(_, question)] = rig.tasks()
    assert question["data"] == {"node": "a", "goal": "", "tool": "pay", "arguments": {"cents": 5}}
    assert (question["roles"], question["users"]) == (["boss"], ["ann"])
    assert question["exclude"] == ["agent:g/k"]
    assert rig.facts("asked")[0]["location"] == "a/ask/pay#1"


def test_edited_arguments_are_judged_again_and_used():
    rig = asking()
    rig.say(rig.tasks()[0][0], "approve", arguments={"cents": 3, "to": "bob"})
    assert rig.result == "paid 3 to bob"
    denied = asking(veto=[])
    denied.say(denied.tasks()[0][0], "approve", arguments={"cents": "many"})
    assert denied.result[0] == "arguments"


def test_edited_arguments_that_other_people_decide_are_asked_again():
    async def runner(node):
        found = []
        for cents in (5, 6):
            try:
                found.append(await node.use("pay", cents=cents))
            except Denied as denied:
                found.append(denied.stage)
        return found

    clerk = Permit("pay", "ask", where={"cents": {"max": 100}}, roles=("clerk",))
    rig = run(one(runner, permits=[clerk, Permit("pay", "ask", roles=("boss",))]))
    rig.say(rig.tasks()[0][0], "approve", arguments={"cents": 9000})
    [(second, question)] = rig.tasks()
    assert (question["roles"], question["data"]["arguments"]) == (["boss"], {"cents": 9000})
    rig.say(second, "approve", arguments={"cents": 8000, "to": "bob"})
    rig.say(rig.tasks()[0][0], "deny")
    assert rig.result == ["paid 8000 to bob", "person"]
    assert rig.state.reserved == {}
    rig.replayed()


def test_a_no_and_an_expired_question_are_denials():
    rig = asking()
    rig.say(rig.tasks()[0][0], "deny", reason="too much")
    assert rig.result == ["person", "ann said no: too much"]
    late = asking()
    late.expire(late.tasks()[0][0])
    assert late.result == ["expired", "no person answered in time"]


def test_a_node_that_needs_approval_begins_when_a_person_says_so():
    async def runner(node):
        return "ran"

    for outcome, end in (("approve", "completed"), ("deny", "failed(denied)")):
        graph = Graph("g", runner=runner, roles=["boss"])
        graph.node("a", approve="before")
        rig = run(graph)
        assert rig.ran == []
        rig.say(rig.tasks()[0][0], outcome)
        assert rig.outcomes() == {"a": end}


def test_cancelling_a_node_ends_what_it_submitted_and_its_questions():
    async def runner(node):
        if node.name == "a":
            await node.submit([{"name": "x"}, {"name": "y", "after": ["x"]}])
        return await node.use("pay", cents=5)

    graph = one(runner, permits=[Permit("pay", "ask", roles=("boss",))])
    graph.node("after", after=["a"])
    rig = run(graph)
    assert len(rig.tasks()) == 2
    rig.send("cancel", {"node": "a"})
    assert rig.outcomes() == {
        "a": "cancelled(asked)",
        "after": "skipped(upstream)",
        "a/x": "cancelled(asked)",
        "a/y": "cancelled(asked)",
    }
    assert rig.outcome is not None


def test_cancelling_the_instance_ends_everything():
    rig = asking()
    rig.cancel()
    assert rig.outcomes() == {"a": "cancelled(instance)"}
    assert rig.outcome.status == "cancelled"


def test_a_note_comes_with_the_next_answer():
    async def runner(node):
        await node.use("pay", cents=5)
        return node.notes

    rig = run(one(runner, permits=[Permit("pay", "ask", roles=("boss",))]))
    rig.send("note", {"node": "a", "text": "hurry"})
    rig.say(rig.tasks()[0][0], "approve")
    assert rig.result == ["hurry"]


def test_usage_is_counted_once_when_a_node_is_cancelled():
    async def runner(node):
        await node.step("model", lambda: 1, usage={"tokens": 6})
        await node.use("pay", cents=5)

    graph = one(runner, permits=[Permit("pay", "ask", roles=("boss",))], limits=Limits(tokens=50))
    rig = run(graph)
    rig.send("cancel", {"node": "a"})
    assert {axis: rig.state.used[axis] for axis in ("tokens", "calls")} == {"tokens": 6, "calls": 2}
    assert rig.state.reserved == {}


@pytest.mark.parametrize("outcome", ["approve", "deny"])
def test_a_tournament_and_a_reduce_wait_for_approval_too(outcome):
    async def runner(node):
        return "left" if node.match else node.goal

    graph = Graph("g", runner=runner, roles=["boss"], limits=Limits(running=1))
    graph.tournament("best", entrants={"x": "1", "y": "2"}, approve="before")
    graph.reduce("all", "collect", after=["best"], approve="before")
    rig = run(graph)
    assert rig.ran == []
    for _ in range(2):
        for intent, _ in rig.tasks():
            rig.say(intent, outcome)
    if outcome == "approve":
        assert rig.result == {"best": "1"}
    else:
        assert rig.outcomes() == {"best": "failed(denied)", "all": "skipped(upstream)"}


def test_a_question_shows_the_goal_with_its_references_filled():
    async def runner(node):
        return await node.use("pay", cents=5)

    graph = Graph("g", runner=runner, tools=TOOLS, roles=["boss"], permits=[Permit("pay", "ask")])
    graph.node("a", goal="pay for ${input.what}", approve="before")
    rig = run(graph, {"what": "tea"})
    seen = []
    for _ in range(2):
        [(intent, question)] = rig.tasks()
        seen.append(question["data"]["goal"])
        rig.say(intent, "approve")
    assert seen == ["pay for tea"] * 2

    missing = Graph("g", runner=runner, tools=TOOLS, roles=["boss"])
    missing.node("a", goal="${input.what}", approve="before")
    assert run(missing, {}).outcomes() == {"a": "failed(input)"}


def test_the_first_stage_that_denies_is_told():
    """One call that every stage of `use` would deny; each stage is mended in turn, and the next one speaks."""

    @tool(writes=True)
    async def drop(what: int) -> None: ...

    spec = NodeSpec("n", isolation="read_only", trust="quarantined")
    options: dict[str, Any] = {
        "tools": {"drop": drop},
        "permits": (Permit("drop", "deny"),),
        "veto": ("drop",),
        "accounts": (gate.Account("the node n", Limits(calls=0), {}, {}),),
        "wanted": {"calls": 1},
    }
    mended: list[tuple[dict[str, Any], dict[str, Any], NodeSpec]] = [
        ({"what": "text"}, {}, spec),
        ({"what": 1}, {}, spec),
        ({"what": 1}, {"veto": ()}, spec),
        ({"what": 1}, {"veto": (), "permits": ()}, spec),
        ({"what": 1}, {"veto": (), "permits": ()}, NodeSpec("n", trust="quarantined")),
        ({"what": 1}, {"veto": (), "permits": ()}, NodeSpec("n")),
    ]
    stages = [gate.use(node, "drop", given, **{**options, **other}).stage for given, other, node in mended]
    assert stages == ["arguments", "veto", "permit", "isolation", "trust", "budget"]

    used_up = (gate.Account("the graph", Limits(tokens=0), {}, {}),)
    openings = [
        gate.opening(node, 5, Limits(depth=1, running=0), 0, accounts, approved=True)
        for node, accounts in ((NodeSpec("n", trust="quarantined"), used_up), (NodeSpec("n"), used_up))
    ]
    openings.append(gate.opening(NodeSpec("n"), 0, Limits(depth=1, running=0), 0, used_up, approved=True))
    openings.append(gate.opening(NodeSpec("n"), 0, Limits(depth=1, running=0), 0, (), approved=True))
    assert [each.stage for each in openings] == ["quarantine", "depth", "budget", "running"]

    tight = Limits(depth=0, nodes=1)
    growth = [
        gate.growth(tight, closed=True, depth=1, weight=1, added=1),
        gate.growth(tight, closed=False, depth=1, weight=1, added=1),
        gate.growth(tight, closed=False, depth=0, weight=1, added=1),
    ]
    assert [each.stage for each in growth] == ["closed", "depth", "nodes"]


def test_a_rest_and_a_bracket_are_facts():
    rig = asking()
    rig.fire(20)
    assert rig.facts("rested") == [{"node": "a", "run": "a"}]

    async def judge(node):
        return "right" if node.match else node.goal

    graph = Graph("g", runner=judge)
    graph.tournament("t", entrants={"x": "1", "y": "2"})
    [fact] = run(graph).facts("bracket")
    assert fact == {"node": "t", "judge": "t/judge/~0/~0", "winner": "t/entrant/y"}


def rated(**options) -> Graph:
    """Four nodes that look, of which two may begin in ten seconds."""

    async def runner(node):
        return await node.use("look", what=node.name)

    graph = Graph("g", runner=runner, tools=[look], rate={"l*": (2, 10)}, **options)
    for name in ("a", "b", "c", "d"):
        graph.node(name)
    return graph


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_rate_limited_call_waits(rebuild):
    rig = Rig(rated(limits=Limits(running=1)), rebuild=rebuild).run()
    assert [each for each in rig.ran if "look" in each] == ["a/use/look#1", "b/use/look#1"]
    assert rig.state.running == 0, "a call that waits for its time holds no place"

    rig.fire(9)
    assert rig.facts("rested"), "and after a while its run leaves memory"
    assert len([each for each in rig.ran if "look" in each]) == 2
    rig.fire(1)
    rig.run()

    assert rig.outcome.status == "completed"
    assert rig.replayed().snapshot() == rig.machine.snapshot()


def test_a_call_that_a_person_has_allowed_and_one_that_is_tried_again_wait_too():
    tries = []

    @tool(retries=1, backoff=Backoff(base=1))
    async def shaky():
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("no")
        return len(tries)

    async def runner(node):
        return await node.use("shaky")

    permits = [Permit("shaky", "ask", roles=("boss",))]
    graph = Graph("g", runner=runner, tools=[shaky], permits=permits, rate={"shaky": (1, 60)})
    graph.node("a")
    rig = run(graph)
    rig.fire(100)
    rig.say(rig.tasks()[0][0], "approve")
    assert len(tries) == 1
    rig.fire(59)
    assert len(tries) == 1
    rig.fire(1)
    rig.run()

    assert rig.result == 2


def test_why_tells_of_a_rate():
    with World(rated()) as world:
        world.start("g", key="k")
        told = at_once(why(world._client, WhyParams("g/k")))

        assert "The tool look of the node c waits until" in "".join(each.text for each in told.reasons)


@pytest.mark.parametrize("of_the_node", [False, True])
def test_equal_calls_are_stopped(of_the_node):
    async def runner(node):
        found = [await node.use("pay", cents=1, to="bob")]
        for cents in (1, 1, 2):
            try:
                found.append(await node.use("pay", cents=cents))
            except Denied as denied:
                found.append(denied.note)
        return found

    limits = Limits(repeats=2)
    graph = Graph("g", runner=runner, tools=TOOLS, limits=Limits(repeats=9) if of_the_node else limits)
    graph.node("a", limits=limits if of_the_node else None)
    told = "pay was denied (repeat): this is call 2 with equal arguments, and repeats=2: do something else"
    assert run(graph).result == ["paid 1 to bob", "paid 1 to ann", told, "paid 2 to ann"]
