"""Requests: recorded before they are acted on, answered once, heard again by a run that begins again."""

from __future__ import annotations

import pytest

from perdure.codec import decode, encode
from perdure.errors import Fatal, OutcomeUnknown, StepFailed
from perdure.graphs import Denied, Graph, Limits, NotInRun, Permit, tool
from perdure.kernel.events import Requested
from perdure.kernel.limits import VALUE_MAX
from perdure.kernel.receipt import Receipt
from perdure.ports import asking

from .rig import Rig, echo, run

DONE: list[str] = []


@tool(writes=True, retries=2)
async def buy(what: str) -> str:
    DONE.append(what)
    if what == "gold":
        raise ValueError("sold out")
    return f"bought {what}"


@tool
async def look(what: str) -> str:
    DONE.append(f"look {what}")
    return what


@tool(once=True)
async def fire() -> str:
    return "fired"


@pytest.fixture(autouse=True)
def _nothing_done():
    DONE.clear()


def one(runner, **options) -> Graph:
    graph = Graph("g", runner=runner, tools=[buy, look, fire], **options)
    graph.node("a", retries=1)
    return graph


def test_a_tool_call_is_two_entries_and_its_result_comes_back():
    async def runner(node):
        return await node.use("buy", what="tea")

    rig = run(one(runner))

    assert rig.result == "bought tea"
    assert rig.ran == ["a", "a/use/buy#1"]
    assert len(rig.journal) == 1 + 2 + 1


def test_a_cut_run_hears_its_recorded_answers_and_nothing_happens_twice():
    async def runner(node):
        if node.name != "a":
            return "b"
        first = await node.use("buy", what="tea")
        names = await node.submit([{"name": "b", "goal": "b"}])
        second = await node.use("buy", what="tea")
        found = await node.results(names)
        return [first, second, found["a/b"].value]

    for cut in range(1, 30):
        DONE.clear()
        rig = Rig(one(runner))
        rig.run(steps=cut)
        if rig.outcome is None:
            rig.crash()
            rig.run()
        assert rig.result == ["bought tea", "bought tea", "b"]
        assert len([each for each in DONE if each == "tea"]) <= 3, "at most the call in flight is delivered again"
        assert len(rig.facts("added")) == 1
        rig.replayed()


def test_a_value_that_an_open_run_has_read_is_kept_once():
    sizes = []

    async def runner(node):
        if node.name != "a":
            return "long value " * 1000
        names = await node.submit([{"name": "b"}])
        await node.results(names)  # waits for it
        for _ in range(2):
            found = await node.results(names)  # is answered at once
        sizes.append(rig.machine.snapshot().count(b"long value " * 1000))
        await node.use("look", what="x")
        return [await node.results([]) == {}, found["a/b"].value == "long value " * 1000]

    for cut in range(5, 20):  # also where the run begins again, and hears recorded answers
        rig = Rig(one(runner), rebuild=True)
        rig.run(steps=cut)
        if rig.outcome is None:
            rig.crash()
            rig.run()
        assert rig.result == [True, True]
    assert set(sizes) == {1}


def test_a_retry_repeats_reads_and_not_writes():
    tries: list[int] = []

    async def runner(node):
        if node.name != "a":
            return "b"
        await node.use("look", what="x")
        await node.use("buy", what="tea")
        names = await node.submit([{"name": "b"}])
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        return names

    rig = run(one(runner))
    rig.fire(60)

    assert rig.result == ["a/b"]
    assert DONE == ["look x", "tea", "look x"]


def test_a_failed_tool_is_tried_again_and_then_told():
    async def runner(node):
        with pytest.raises(StepFailed) as failed:
            await node.use("buy", what="gold")
        assert failed.value.attempts == 3
        return str(failed.value)

    rig = run(one(runner))
    rig.fire(100)

    assert "sold out" in rig.result
    assert DONE == ["gold"] * 3


def test_a_once_tool_whose_outcome_is_unknown_is_told():
    async def runner(node):
        with pytest.raises(OutcomeUnknown):
            await node.use("fire")
        return "careful"

    rig = Rig(one(runner))
    rig.run(steps=2)
    call = next(id for id, effect in rig.open.items() if effect.location == "a/use/fire#1")
    assert rig.open[call].deliveries_max == 1  # type: ignore[union-attr]
    rig._receipt(call, Receipt("unknown"))
    rig.run()

    assert rig.result == "careful"


def test_a_step_is_performed_by_the_run_and_recorded():
    calls: list[str] = []

    def think(prompt: str) -> str:
        calls.append(prompt)
        return prompt.upper()

    async def runner(node):
        first = await node.step("model", think, "a long conversation", usage={"tokens": 5})
        await node.use("look", what="x")
        return first

    rig = Rig(one(runner))
    rig.run(steps=5)
    rig.crash()
    rig.run()

    assert rig.result == "A LONG CONVERSATION"
    assert calls == ["a long conversation"]
    assert rig.state.used["tokens"] == 5
    assert not any(b"a long conversation" in event.body for event, *_ in rig.journal if hasattr(event, "body"))


def test_a_step_that_fails_is_told_the_same_way_again():
    def think() -> str:
        raise ValueError("no answer")

    async def runner(node):
        with pytest.raises(StepFailed) as failed:
            await node.step("model", think)
        await node.use("look", what="x")
        return str(failed.value)

    rig = Rig(one(runner))
    rig.run(steps=4)
    rig.crash()
    rig.run()

    assert "no answer" in rig.result


def test_a_coordinator_under_one_place_waits_for_what_it_submitted():
    async def runner(node):
        if node.name != "a":
            return node.name
        names = await node.submit([{"name": "x"}, {"name": "y"}])
        return [each.value for each in (await node.results(names)).values()]

    rig = run(one(runner, limits=Limits(running=1)))

    assert rig.result == ["a/x", "a/y"]
    assert rig.most == 1


def test_a_resting_run_is_no_call_and_no_place_and_the_answer_opens_it_again():
    starts: list[int] = []

    async def runner(node):
        starts.append(1)
        return await node.use("buy", what="tea")

    rig = Rig(one(runner, permits=[Permit("buy", "ask", roles=("r",))], rest_after=5))
    rig.run()
    rig.fire(6)
    assert [type(effect).__name__ for effect in rig.open.values()] == ["Child"], "only the question is open"
    assert rig.state.running == 0
    assert rig.facts("rested") == [{"node": "a", "run": "a"}]

    rig.say(rig.tasks()[0][0], "approve")

    assert rig.result == "bought tea"
    assert len(starts) == 2
    assert DONE == ["tea"]


def test_a_node_with_rest_false_never_rests():
    async def runner(node):
        return await node.use("buy", what="tea")

    graph = Graph("g", runner=runner, tools=[buy], permits=[Permit("buy", "ask", roles=("r",))])
    graph.node("a", rest=False)
    rig = run(graph)
    rig.fire(1000)

    assert rig.facts("rested") == []


def test_two_that_would_wait_for_each_other_are_refused():
    async def runner(node):
        if node.name == "a":
            await node.submit([{"name": "x", "after": ["b"]}])
            with pytest.raises(Denied) as denied:
                await node.results(["b"])
            return denied.value.reason
        return node.name

    graph = one(runner)
    graph.node("b", after=["a"], goal="b")
    rig = run(graph)

    assert "wait for each other" in str(rig.state.nodes["a"].notes)


def test_results_of_nobody_are_refused_with_what_there_is():
    async def runner(node):
        with pytest.raises(Denied, match="did you mean 'a'"):
            await node.results(["aa"])
        return 1

    assert run(one(runner)).result == 1


def test_a_request_outside_of_a_run_is_refused():
    kept = []

    async def runner(node):
        kept.append(node)
        return 1

    run(one(runner))
    coroutine = kept[0].use("look", what="x")
    with pytest.raises(NotInRun):
        coroutine.send(None)


def test_output_that_is_no_plain_data_fails_and_is_not_retried():
    async def runner(node):
        return {"x": object()}

    rig = run(one(runner))

    assert rig.outcomes() == {"a": "failed(output)"}
    assert "$.x" in rig.state.nodes["a"].detail


def test_a_fatal_error_is_not_retried():
    async def runner(node):
        raise Fatal("no")

    assert run(one(runner)).outcomes() == {"a": "failed(error)"}


def test_output_and_step_results_that_are_too_large_fail():
    async def runner(node):
        with pytest.raises(StepFailed, match="TooLarge"):
            await node.step("model", lambda: "x" * (VALUE_MAX + 1))
        return "x" * (VALUE_MAX + 1)

    rig = run(one(runner))

    assert rig.outcomes() == {"a": "failed(output)"}
    assert "the output has" in rig.state.nodes["a"].detail


def test_n_plain_nodes_are_n_plus_1_entries():
    graph = Graph("g", runner=echo)
    for number in range(20):
        graph.node(f"n{number}", after=[f"n{number - 1}"] if number % 3 else [])
    assert len(run(graph).journal) == 21


def test_the_journal_of_an_agent_grows_with_its_turns_and_not_with_their_square():
    def bytes_of(turns: int) -> int:
        async def runner(node):
            said: list[str] = []
            for _ in range(turns):
                said.append(await node.step("model", lambda said: "word " * 40, said))

        graph = Graph("g", runner=runner)
        graph.node("a")
        return sum(len(event.body) for event, _, _ in run(graph).journal if isinstance(event, Requested))

    assert bytes_of(100) < 10.5 * bytes_of(10)


def test_a_run_sees_the_resolved_fields_of_its_node():
    seen = []

    async def runner(node):
        seen.append(node)

    graph = Graph("g", runner=runner, roles=["r"])
    graph.node("z")
    graph.node("a", role="verify", after={"first": "z"}, retries=2, timeout=9, once=True, priority=3, rest=False)
    run(graph)
    node = seen[-1]
    assert (node.isolation, node.context, node.after, node.retries) == ("read_only", "none", {"first": "z"}, 2)
    assert (node.timeout, node.once, node.priority, node.rest, node.approve) == (9.0, True, 3, False, "")


@pytest.mark.parametrize(
    ("name", "body"), [("use", {"x": 1}), ("use", None), ("step", []), ("done", {}), ("results", 5), ("fly", None)]
)
def test_a_request_of_a_wrong_shape_is_denied_and_the_graph_goes_on(name, body):
    async def runner(node):
        answer = decode(await asking.current.get()("odd", name, encode(body)))
        return answer["d"][1]

    graph = Graph("g", runner=runner)
    graph.node("a")
    assert run(graph).result == "arguments"
