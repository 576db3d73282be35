"""The messages `pause` and `resume`: what runs goes on to its end, and nothing else begins until a person says so."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

import perdure
from perdure.app.ours import load_playbook
from perdure.codec import encode
from perdure.kernel.asked import Actor, Asked
from perdure.kernel.decision import Decision
from perdure.kernel.events import Message
from perdure.kernel.moment import Moment
from perdure.ports.store import Queries
from perdure.testing import crash_test
from perdure.views.look import look
from tests.playbooks.harness import HEAD, PlaybookHarness, book
from tests.playbooks.test_crashes import BOOKS, bad

OFF = ["&pause#1"]


def fine(location: str, params: Any) -> str:
    return "done"


def paused_by(harness: PlaybookHarness, by: str, reason: str = "") -> Any:
    harness.deliver(Message("pause", encode({}), "m-1", asked=Asked(by=Actor(by), reason=reason)))
    harness.play()
    return harness.published["paused"]


def begun(body: str, **input: Any) -> PlaybookHarness:
    """An instance that waits at its first step for the message `go`, and was paused there."""
    first = "- {step: first, tool: {kind: wait, message: go}, next: work}"
    text = textwrap.dedent(body).replace("WORKFLOW:", f"workflow:\n{first}")
    return PlaybookHarness(book(text), fine, input)


def test_a_paused_instance_admits_no_token_and_says_by_whom_since_when_and_why():
    harness = begun("WORKFLOW:\n- {step: work, tool: {kind: http, url: a}}")

    told = paused_by(harness, "ann", "the bank is down")
    harness.send("go")

    assert told == {"by": "ann", "since": "2023-11-14T22:13:20Z", "reason": "the bank is down"}
    assert (harness.waits, harness.done) == (["&pause#1"], []), "the step that ran has ended, and routed its token"
    assert harness.send("resume") == {"paused": False}
    assert (harness.done, harness.result, harness.published["paused"]) == (["work/work_task"], "done", None)


def test_an_action_that_runs_goes_on_to_its_end_and_the_next_one_is_held():
    harness = PlaybookHarness(
        book("workflow: [{step: s, tool: [{name: a, kind: http, url: a}, {name: b, kind: http, url: b}]}]"),
        {"s/a": 1, "s/b": 2},
        auto=False,
    )

    harness.send("pause")
    harness.play()
    assert (harness.done, harness.waits) == (["s/a"], OFF)
    harness.send("resume")
    harness.play()

    assert (harness.done, harness.result) == (["s/a", "s/b"], 2)


def test_a_retry_whose_time_comes_in_a_pause_begins_after_it():
    rule = "{when: outcome.status == 'error', then: {do: retry, delay: 10}}"
    failing = [{"error": {"kind": "busy", "retryable": True}}, "done"]
    text = f"workflow: [{{step: s, tool: {{name: x, kind: http, url: a, spec: {{policy: {{rules: [{rule}]}}}}}}}}]"
    harness = PlaybookHarness(book(text), {"s/x": failing})

    harness.send("pause")
    harness.advance(60)
    assert (harness.done, harness.waits) == (["s/x"], OFF)
    harness.send("resume")

    assert (harness.done, harness.result) == (["s/x", "s/x"], "done")


def test_a_loop_begins_no_iteration_in_a_pause_and_goes_on_in_order():
    text = """
        workflow:
          - step: s
            loop: {in: 5, iterator: i, spec: {mode: parallel, max_in_flight: 2}}
            tool: {name: x, kind: http, url: "{{ i }}"}
    """
    harness = PlaybookHarness(book(text), lambda location, params: params["url"], auto=False)

    harness.send("pause")
    harness.play()
    assert (harness.done, harness.waits) == (["s/~0/x", "s/~1/x"], OFF)
    harness.send("resume")
    harness.play()

    assert (harness.result, harness.in_flight) == ([0, 1, 2, 3, 4], 2)


def test_a_gate_that_a_patch_would_open_opens_at_the_resume():
    text = """
        executor: {spec: {ctx: {go: {init: false}}}}
        workflow:
          - step: held
            spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
            tool: {name: x, kind: http, url: a}
    """
    harness = PlaybookHarness(book(text), fine)

    harness.send("pause")
    assert harness.patch(go=True) == {"ctx_version": 1}
    assert (harness.done, harness.waits) == ([], ["&pause#1", "gate/held#1"])
    harness.send("resume")

    assert harness.result == "done"


def test_pending_tokens_are_not_judged_at_the_end_while_a_patch_may_have_opened_their_gate():
    text = """
        executor: {spec: {pending_at_end: discard, ctx: {go: {init: false}}}}
        workflow:
          - {step: s, next: {spec: {mode: inclusive}, arcs: [{step: held}, {step: other}]}}
          - step: held
            spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}]}}}
            tool: {kind: noop, result: in}
          - {step: other, tool: {name: x, kind: http, url: b, set: {ctx.go: true}}}
    """
    harness = PlaybookHarness(book(text), fine, auto=False)

    harness.send("pause")
    harness.play()
    assert harness.waits == ["&pause#1", "gate/held#2"]
    harness.send("resume")

    assert harness.result == {"held": "in", "other": "done"}


@pytest.mark.parametrize(
    ("on_timeout", "verdict", "waits"), [("discard", "success", []), ("fail", "failed", []), ("admit", "", OFF)]
)
def test_the_deadline_of_a_gate_holds_in_a_pause(on_timeout: str, verdict: str, waits: list[str]):
    admit = f"{{rules: [{{when: ctx.go, then: {{allow: true}}}}], timeout: 1h, on_timeout: {on_timeout}}}"
    text = f"""
        executor: {{spec: {{ctx: {{go: {{init: false}}}}}}}}
        workflow: [{{step: held, spec: {{policy: {{admit: {admit}}}}}, tool: {{name: x, kind: http, url: a}}}}]
    """
    harness = PlaybookHarness(book(text), fine)

    harness.send("pause")
    harness.advance(3600)

    assert (harness.waits, harness.done) == (waits, [])
    assert harness.published.get("summary", {"verdict": ""})["verdict"] == verdict
    if waits:  # it was admitted, and its first attempt is held
        harness.send("resume")
        assert harness.result == "done"


def test_deadlines_of_runs_and_of_the_instance_hold_in_a_pause_and_end_it():
    text = """
        executor: {spec: {timeout: 1h, final_step: last}}
        workflow:
          - {step: s, tool: {kind: wait, message: go}, spec: {policy: {lifecycle: {timeout_s: 60}}}, next: [{step: t, on: failed}]}
          - {step: t, tool: {name: x, kind: http, url: a}}
          - {step: last, tool: {name: y, kind: http, url: b}}
    """
    harness = PlaybookHarness(book(text), fine)

    harness.send("pause")
    harness.advance(60)
    assert harness.waits == ["&pause#1", "&timer"], "the run has timed out, and its arc was followed"
    harness.advance(3600)

    assert (harness.done, harness.error) == (["last/y"], "timeout"), "an instance that is over is paused no longer"
    assert harness.published["paused"] is None


def test_a_cancelled_instance_is_paused_no_longer():
    text = """
        executor: {spec: {final_step: last, final_on: [cancelled]}}
        workflow: [{step: s, tool: {kind: wait, message: go}}, {step: last, tool: {name: y, kind: http, url: b}}]
    """
    harness = PlaybookHarness(book(text), fine)

    harness.send("pause")
    harness.cancel()

    assert (harness.done, harness.outcome.status) == (["last/y"], "cancelled")


def test_the_same_message_again_changes_nothing():
    harness = begun("WORKFLOW:\n- {step: work, tool: {kind: http, url: a}}")

    first = paused_by(harness, "ann")
    again = paused_by(harness, "bob")
    assert (again, harness.waits) == (first, ["&pause#1", "first/first_task"]), "it is ann's pause still"
    assert [harness.send("resume"), harness.send("resume")] == [{"paused": False}] * 2
    harness.send("pause")
    assert harness.waits == ["&pause#2", "first/first_task"], "each pause has a wait of its own"


def test_an_action_that_waits_for_a_message_of_that_name_gets_it():
    text = "workflow: [{step: s, tool: [{kind: wait, message: pause}, {kind: wait, message: resume}]}]"
    harness = PlaybookHarness(book(text))

    harness.send("pause", 1)
    harness.send("resume", 2)

    assert harness.result == 2


def test_a_message_that_was_kept_before_there_were_pauses_stays_one_in_a_replay():
    harness = begun("WORKFLOW:\n- {step: work, tool: {kind: http, url: a}}")
    kept = Moment(harness.now, harness.seed, 2, recorded=Decision(), seq=7)

    decision = harness.machine.deliver(Message("pause", encode({}), "m-1"), kept)

    assert (decision.open, harness.machine.state.mail) == ((), [["pause", {}]])


@pytest.mark.parametrize("name", BOOKS)
def test_a_pause_anywhere_changes_no_outcome(name: str):
    """Each delivery is followed by a pause, and by a resume when what runs has ended."""

    def stub(location: str, params: Any) -> Any:
        return {"error": {"kind": "down", "retryable": True}} if "bad" in location else params.get("url")

    def run(pause_at: int) -> Any:
        harness = PlaybookHarness(book(BOOKS[name]), stub, auto=False)
        while harness.outcome is None:
            if harness.number == pause_at:
                harness.send("pause")
                if harness.outcome is None:
                    harness.play()
                if harness.outcome is None:
                    harness.send("resume")
            elif any(type(effect).__name__ == "Call" for effect in harness.open.values()):
                id, effect = next((id, e) for id, e in harness.open.items() if type(e).__name__ == "Call")
                harness.answer(id, harness.stub(effect))
            else:
                harness.advance(7200)
        summary = {key: harness.published["summary"][key] for key in ("verdict", "counts", "results", "failures")}
        return harness.number, summary, harness.outcome.status

    number, *calm = run(0)
    if name == "expressions":  # its results are dice of an entry
        calm[0].pop("results")
    for pause_at in range(1, number):
        _, *found = run(pause_at)
        if name == "expressions":
            found[0].pop("results")
        assert found == calm, pause_at


STORY = """
executor: {spec: {ctx: {go: {init: false}, sum: {init: 0, reduce: sum}}}}
workflow:
  - {step: s, tool: {kind: wait, message: go}, next: {spec: {mode: inclusive}, arcs: [{step: turns}, {step: tries}, {step: held}]}}
  - step: turns
    loop: {in: 3, iterator: i, spec: {mode: parallel, max_in_flight: 2}}
    tool: {name: x, kind: http, url: "{{ i }}", set: {ctx.sum: "{{ i }}"}}
    next: all
  - step: tries
    tool:
      - {name: bad, kind: http, url: x, spec: {policy: {rules: [{when: "outcome.status == 'error' and _attempt < 3", then: {do: retry, delay: 2, attempts: 5}}, {else: {then: {do: skip}}}]}}}
      - {name: x, kind: http, url: y}
    next: all
  - step: held
    spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
    tool: {name: x, kind: http, url: z}
    next: all
  - {step: all, join: all, tool: {kind: noop, result: "{{ ctx.sum }}"}}
"""


def test_a_pause_survives_a_crash_anywhere():
    def story(world: Any, handle: Any) -> None:
        handle.send("go", id="1")
        handle.send("pause", by="ann", reason="the bank is down", id="2")
        world.advance(60)
        assert not any(open.kind == "call" for open in handle.waiting())
        runs = len(world.runs())
        handle.send("ctx", {"set": {"go": True}}, id="3")
        world.advance(60)
        assert (len(world.runs()), handle.read("paused")["by"]) == (runs, "ann")
        handle.send("resume", id="4")
        world.advance(60)
        assert handle.result() == 3

    report = crash_test(
        load_playbook(HEAD.rstrip() + "\n" + textwrap.dedent(STORY)),
        script={"x": lambda params: params["url"], "bad": bad, "held_task": lambda params: 1},
        story=story,
        pairs=10,
        random=5,
    )

    assert report.singles > 10


async def published_of(queries: Queries, id: int) -> dict[str, Any]:
    head = await queries.head(id)
    assert head is not None
    return (await look(queries, head)).published


async def test_another_engine_goes_on_where_an_instance_was_paused(tmp_path):
    text = HEAD.rstrip() + "\n" + textwrap.dedent(STORY)
    playbook, url = load_playbook(text), str(tmp_path / "p.db")
    async with perdure.open(url, workflows=[playbook]) as engine:
        handle = await engine.start(playbook, key="k")
        await handle.until("waiting")
        assert await handle.ask("pause", by="ann", reason="the bank is down") == {"paused": True}

    async with perdure.open(url) as engine:
        handle = engine.handle("p", "k")
        (head,) = await engine.instances(workflow="p")
        assert "paused" in head.reason
        assert (await handle.read("paused"))["reason"] == "the bank is down"
        assert "paused" in await published_of(engine.queries, head.id)
        assert await handle.ask("resume") == {"paused": False}
        await handle.cancel()
        await handle.until("cancelled")
        assert "paused" not in await published_of(engine.queries, head.id), "it is paused no longer"
