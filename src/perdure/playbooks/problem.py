"""What is wrong with a playbook: one line each, with its place in the file."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import msgspec

from perdure.errors import BadPlaybook

PROBLEMS_MAX: Final = 50

CODES: Final = {
    "yaml-syntax": "The text is no YAML 1.2 document, or has a tag or a merge key.",
    "duplicate-key": "A map has a key twice.",
    "unquoted-template": "A template begins a value without quotes around it, so YAML reads a map.",
    "unknown-key": "A key has no meaning at its place.",
    "missing-key": "A key that its place needs is not there.",
    "wrong-type": "A value has another type than its key takes.",
    "bad-word": "A value is not one of the words that its key takes, or a name has characters that names cannot have.",
    "removed-key": "An earlier version of the language had this key.",
    "too-large": "The document has more bytes, nodes or levels than a playbook may have.",
    "duplicate-step": "Two steps have one name.",
    "duplicate-label": "Two actions of a step have one label.",
    "unknown-step": "A step is named that the playbook does not have.",
    "unknown-label": "A jump names a label that the step does not have.",
    "unknown-kind": "No tool has this name, or its package is not installed, or no workbook entry has it.",
    "unknown-name": "An expression reads a name that is not known at its place.",
    "bad-expression": "A text in braces, or a guard, is no expression of the language.",
    "dead-arc": "An arc stands behind one that is always followed.",
    "secret-use": "A secret stands where no secret may stand.",
    "sql-interpolation": "A template stands in SQL text. Bind values as :name.",
    "final-step": "The final step is the target of an arc, or has next, join or admit.",
}
"""Every code of a problem, and what it means."""

WARNINGS: Final = {
    "unreachable-step": "No path leads to the step.",
    "free-cycle": "A cycle of steps has no guard, gate or wait.",
    "constant-gate": "A gate reads nothing that can change.",
    "never-set": "A ctx key is read and never set.",
    "unknown-member": "An expression reads a member that what it looks into never has.",
    "read-early": "A step's result is read where the step may not have run.",
    "no-else": "Rules have no else.",
    "parallel-write": "A parallel loop writes a ctx key that has no reducer.",
    "runs-twice": "A step behind a split runs once for each token.",
    "two-owners": "A bare name could mean two things.",
    "v10": "A thing that only v10 mode takes.",
    "unbounded": "Tokens can pile up without a bound.",
    "dead-step": "No order of events lets the step run.",
    "join-short": "A join of a number can get fewer tokens than it needs.",
    "undecided": "The soundness check has spent its budget.",
}
"""Every code of a warning. A warning refuses nothing."""


class Problem(msgspec.Struct, frozen=True):
    code: str
    text: str
    hint: str = ""
    line: int = 0
    column: int = 0
    source: str = ""
    warning: bool = False

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        word = "warning: " if self.warning else ""
        return f"{self.source or '<playbook>'}:{self.line}:{self.column}: {word}{self.text}{hint}"


def meant(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(known), 1, 0.6)
    return f"did you mean {near[0]}?" if near else ""


class Report:
    """Collects problems and warnings while a playbook is read."""

    def __init__(self, source: str = "") -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def add(self, at: tuple[int, int], code: str, text: str, hint: str = "") -> None:
        assert code in CODES, code
        problem = Problem(code, text, hint, at[0], at[1], self.source)
        if problem not in self.problems:
            self.problems.append(problem)

    def warn(self, at: tuple[int, int], code: str, text: str, hint: str = "") -> None:
        assert code in WARNINGS, code
        problem = Problem(code, text, hint, at[0], at[1], self.source, warning=True)
        if problem not in self.warnings:
            self.warnings.append(problem)

    def forget(self, code: str) -> None:
        self.problems = [problem for problem in self.problems if problem.code != code]

    def finish(self) -> None:
        """Raise if there is a problem."""
        if self.problems:
            raise BadPlaybook(_in_order(self.problems))

    def ordered_warnings(self) -> tuple[Problem, ...]:
        return _in_order(self.warnings)


def _in_order(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda each: (each.line, each.column))[:PROBLEMS_MAX])


__all__ = ["CODES", "PROBLEMS_MAX", "WARNINGS", "BadPlaybook", "Problem", "Report", "meant"]
