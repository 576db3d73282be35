"""Soundness: nets with a mistake, and nets without."""

import pytest

from perdure.playbooks.soundness import findings
from tests.playbooks.harness import book
from tests.playbooks.test_crashes import BOOKS

SPLIT = "next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}"

CASES = [
    (
        "runs-twice",
        "c",
        f"[{{step: s, {SPLIT}}}, {{step: a, next: c}}, {{step: b, next: c}}, {{step: c, tool: {{kind: noop}}}}]",
    ),
    (
        "join-short",
        "c",
        f"[{{step: s, {SPLIT}}}, {{step: a, next: c}}, {{step: b, next: [{{step: c, when: ctx.x}}]}}, {{step: c, join: 2}}]",
    ),
    (
        "unbounded",
        "b",
        "[{step: a, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}, {step: b, next: a}]",
    ),
    ("dead-step", "z", "[{step: a, tool: {kind: noop}}, {step: z, tool: {kind: noop}}]"),
]


@pytest.mark.parametrize(("code", "step", "workflow"), CASES, ids=[case[0] for case in CASES])
def test_a_mistake_is_found_with_its_path(code, step, workflow):
    found = findings(book(f"executor: {{spec: {{ctx: {{x: {{}}}}}}}}\nworkflow: {workflow}").definition.playbook)

    assert (code, step) in [(each.code, each.step) for each in found]
    assert all(each.path or each.code == "dead-step" for each in found)


@pytest.mark.parametrize("name", BOOKS)
def test_sound_nets_have_no_finding(name):
    assert findings(book(BOOKS[name]).definition.playbook) == []


ALL = "spec: {mode: inclusive}, arcs:"
USUAL = {
    "a poll tells a person and goes on": f"[{{step: s, next: {{{ALL} [{{step: poll}}, {{step: note}}]}}}}, {{step: poll, next: [{{step: s, when: ctx.x}}, {{step: done}}]}}, {{step: note, tool: {{kind: noop}}}}, {{step: done, tool: {{kind: noop}}}}]",
    "a note of two steps": f"[{{step: s, next: {{{ALL} [{{step: poll}}, {{step: note}}]}}}}, {{step: poll, next: [{{step: s, when: ctx.x}}]}}, {{step: note, next: sent}}, {{step: sent, tool: {{kind: noop}}}}]",
    "a branch tries again before its join": f"[{{step: s, {SPLIT}}}, {{step: a, next: [{{step: a, when: ctx.x}}, {{step: j}}]}}, {{step: b, next: j}}, {{step: j, join: all}}]",
    "rounds with a join": f"[{{step: s, {SPLIT}}}, {{step: a, next: j}}, {{step: b, next: j}}, {{step: j, join: all, next: [{{step: s, when: ctx.x}}, {{step: z}}]}}, {{step: z, tool: {{kind: noop}}}}]",
    "rounds that tell a person": f"[{{step: s, {SPLIT}}}, {{step: a, next: j}}, {{step: b, next: j}}, {{step: j, join: all, next: {{{ALL} [{{step: s, when: ctx.x}}, {{step: note}}]}}}}, {{step: note, tool: {{kind: noop}}}}]",
    "branches that may not be taken": f"[{{step: s, next: {{{ALL} [{{step: a, when: ctx.x}}, {{step: b, when: ctx.x}}]}}}}, {{step: a, next: j}}, {{step: b, next: j}}, {{step: j, join: all}}]",
    "splits in splits": f"[{{step: o, next: {{{ALL} [{{step: s}}, {{step: p}}]}}}}, {{step: s, {SPLIT}}}, {{step: a, next: j}}, {{step: b, next: j}}, {{step: j, join: all, next: k}}, {{step: p, next: k}}, {{step: k, join: all, next: [{{step: o, when: ctx.x}}]}}]",
    "a split in a split that goes round": f"[{{step: o, next: {{{ALL} [{{step: s}}, {{step: p}}]}}}}, {{step: s, {SPLIT}}}, {{step: a, next: [{{step: s, when: ctx.x}}, {{step: k}}]}}, {{step: b, tool: {{kind: noop}}}}, {{step: p, next: k}}, {{step: k, join: all}}]",
    "an answer is asked for again": "[{step: ask, next: [{step: ask, when: ctx.x}, {step: fix}]}, {step: fix, next: [{step: ask, when: ctx.x}, {step: z}]}, {step: z, tool: {kind: noop}}]",
    "the first answer wins": f"[{{step: s, {SPLIT}}}, {{step: a, next: j}}, {{step: b, next: j}}, {{step: j, join: {{mode: any, cancel_rest: true}}, next: [{{step: s, when: ctx.x}}]}}]",
    "failures are told": f"[{{step: s, {SPLIT}}}, {{step: a, next: [{{step: j}}, {{step: no, on: failed}}]}}, {{step: b, next: j}}, {{step: no, tool: {{kind: noop}}}}, {{step: j, join: all}}]",
}
UNDECIDED = {
    "rounds are gathered after the last": f"[{{step: s, {SPLIT}}}, {{step: a, next: [{{step: s, when: ctx.x}}, {{step: j}}]}}, {{step: b, next: j}}, {{step: j, join: all}}]",
    "and go round once more": f"[{{step: s, {SPLIT}}}, {{step: a, next: [{{step: s, when: ctx.x}}, {{step: j}}]}}, {{step: b, next: j}}, {{step: j, join: all, next: [{{step: s, when: ctx.x}}]}}]",
}


@pytest.mark.parametrize("name", [*USUAL, *UNDECIDED])
def test_usual_nets_have_no_false_alarm(name):
    text = {**USUAL, **UNDECIDED}[name]
    found = findings(book(f"executor: {{spec: {{ctx: {{x: {{}}}}}}}}\nworkflow: {text}").definition.playbook)

    assert {each.code for each in found} == ({"undecided"} if name in UNDECIDED else set())


def test_a_spent_budget_claims_nothing():
    arcs = ", ".join(f"{{step: s{n}, when: ctx.x}}" for n in range(6))
    steps = ", ".join(
        f"{{step: s{n}, next: [{{step: t{n}, when: ctx.x}}]}}, {{step: t{n}, tool: {{kind: noop}}}}" for n in range(6)
    )
    text = f"executor: {{spec: {{ctx: {{x: {{}}}}}}}}\nworkflow: [{{step: a, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}}}, {steps}]"

    assert [each.code for each in findings(book(text).definition.playbook, budget=50)] == ["undecided"]
    assert findings(book(text).definition.playbook) == []


def test_a_split_with_many_arcs_is_undecided_and_what_was_found_stays_found():
    arcs = ", ".join(f"{{step: s{n}, when: ctx.x}}" for n in range(8))
    steps = ", ".join(f"{{step: s{n}, next: j}}" for n in range(8))
    text = f"executor: {{spec: {{ctx: {{x: {{}}}}}}}}\nworkflow: [{{step: a, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}}}, {steps}, {{step: j, join: 3}}, {{step: z, tool: {{kind: noop}}}}]"

    found = findings(book(text).definition.playbook)

    assert [(each.code, each.step) for each in found] == [("join-short", "j"), ("undecided", "a")]
