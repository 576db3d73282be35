"""Mutated documents: each is loaded, or refused with problems that have a place; none crashes or hangs."""

import os
import random
import time

from perdure.app.ours import installed
from perdure.playbooks.check import load
from perdure.playbooks.problem import CODES, BadPlaybook
from tests.playbooks.harness import PlaybookHarness
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
