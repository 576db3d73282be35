"""Mutated documents are loaded, or refused with problems that have a place. No value makes a machine raise."""

import os
import random
import time

import pytest

from perdure.app.ours import installed
from perdure.playbooks.check import load
from perdure.playbooks.problem import CODES, BadPlaybook
from tests.playbooks.harness import PlaybookHarness, book
from tests.playbooks.test_crashes import BOOKS
from tests.playbooks.test_example import EXAMPLE
from tests.playbooks.test_v10 import DOCUMENT

PIECES = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ": ",
    ",",
    "- ",
    "\n",
    "  ",
    "&a ",
    "*a",
    "!t ",
    "<<: ",
    "'",
    '"',
    "{{",
    "}}",
    "{%",
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "~",
]
WORDS = [
    "step",
    "next",
    "join",
    "all",
    "loop",
    "tool",
    "kind",
    "noop",
    "when",
    "ctx.x",
    "spec",
    "policy",
    "rules",
    "else",
    "then",
    "do",
    "retry",
    "set",
    "x" * 200,
]
SEEDS = [EXAMPLE, DOCUMENT, *("apiVersion: perdure/v1\nmetadata: {name: p}\n" + text for text in BOOKS.values())]


def mutated(dice: random.Random) -> str:
    text = dice.choice(SEEDS)
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(text))
        match dice.randrange(6):
            case 0:
                text = text[:at] + text[at + dice.randrange(1, 20) :]
            case 1:
                text = text[:at] + dice.choice(PIECES) + text[at:]
            case 2:
                lines = text.splitlines(keepends=True)
                dice.shuffle(lines)
                text = "".join(lines)
            case 3:
                text = text.replace(dice.choice(WORDS[:18]), dice.choice(WORDS))
            case 4:
                end = at + dice.randrange(1, 60)
                text = text[:at] + text[at:end] * dice.randrange(2, 4) + text[end:]
            case _:
                text = text[:at] + chr(dice.randrange(1, 0x3000)) + text[at + 1 :]
        text = text or "x"
    return text


def test_mutated_documents_are_read_or_refused():
    number = int(os.environ.get("PERDURE_FUZZ", "400"))
    kinds = installed()
    for seed in range(number):
        text = mutated(random.Random(seed))
        before = time.monotonic()
        try:
            loaded = load(text, "f.yaml", kinds)
        except BadPlaybook as bad:
            assert bad.problems, seed
            assert all(problem.code in CODES and problem.line > 0 for problem in bad.problems), (seed, bad.problems)
        else:
            assert loaded.definition.version
            if seed % 5 == 0:
                run(loaded, seed)
        assert time.monotonic() - before < 20, seed


def run(loaded, seed):
    """A playbook that is fit to run does not break the machine."""
    from perdure.playbooks.workflow import PlaybookWorkflow

    stage = PlaybookHarness(PlaybookWorkflow(loaded.definition), lambda location, params: {"rows": [1]})
    stage.advance(100_000)
    if stage.outcome is None:
        stage.cancel()
    assert stage.outcome is not None, seed


FIELDS = {
    "loop": "loop: {in: '{{ workload.v }}', spec: {mode: parallel}}, tool: {kind: noop, set: {ctx.s: '{{ workload.v }}'}}",
    "slots": "loop: {in: 2, spec: {mode: parallel, max_in_flight: '{{ workload.v }}'}}, tool: {kind: noop}",
    "gate": "spec: {policy: {admit: {rules: [{when: workload.v, then: {allow: true}}], timeout: '{{ workload.v }}'}}}, tool: {kind: noop}",
    "run": "spec: {timeout: '{{ workload.v }}', policy: {lifecycle: {timeout_s: '{{ workload.v }}', deadline_s: '{{ workload.v }}'}}}, tool: {kind: http, url: x}",
    "call": "tool: {kind: http, url: '{{ workload.v }}', auth: '{{ workload.v }}', spec: {queue: '{{ workload.v }}'}}",
    "timeout": "tool: {kind: python, code: x, args: '{{ workload.v }}', spec: {timeout: '{{ workload.v }}'}}",
    "for": "tool: {kind: wait, for: '{{ workload.v }}'}",
    "until": "tool: {kind: wait, until: '{{ workload.v }}'}",
    "message": "tool: {kind: wait, message: '{{ workload.v }}', timeout: '{{ workload.v }}'}",
    "child": "tool: {kind: workflow, workflow: '{{ workload.v }}', key: '{{ workload.v }}', args: '{{ workload.v }}'}",
    "task": "tool: {kind: task, title: t, roles: '{{ workload.v }}', escalate: '{{ workload.v }}', due: '{{ workload.v }}'}",
    "due": "tool: {kind: task, title: t, due: '{{ workload.v }}', expire: '{{ workload.v }}'}",
    "entry": "tool: {kind: workbook, use: w, args: '{{ workload.v }}'}",
    "fail": "tool: {kind: fail, message: '{{ workload.v }}', error: '{{ workload.v }}'}, next: [{step: t, on: any, args: {e: '{{ event }}'}}]",
    "rule": "tool: {kind: fail, spec: {policy: {rules: [{else: {then: {do: retry, delay: '{{ workload.v }}', jitter: '{{ workload.v }}'}}}]}}}",
    "set": "tool: {kind: noop, set: {ctx.s: '{{ workload.v }}', iter.a.b: '{{ workload.v }}'}}, set: {ctx.t: '{{ steps }}'}, next: t",
}
NASTY = (None, True, -1, 1.5, float("nan"), float("inf"), 1e300, 10**30, "", "5s", [1], {"a": None}, {"kind": 5}, b"b")


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_the_input_makes_a_machine_raise(field):
    head = "executor: {spec: {ctx: {s: {init: 0, reduce: sum}, t: {init: 0}}}}\nworkbook: {w: {kind: noop, result: '{{ args.a }}'}}\n"
    playbook = book(
        f"{head}workflow: [{{step: a, {FIELDS[field]}}}, {{step: t, tool: {{kind: noop, result: '{{{{ args }}}}'}}}}]\n"
    )

    for value in NASTY:
        stage = PlaybookHarness(playbook, lambda location, params, value=value: {"result": value}, {"v": value})
        stage.advance(200)
        if stage.outcome is None:
            stage.patch(s=value)
        if stage.outcome is None:
            stage.cancel()
        assert stage.outcome is not None
