"""Undoing: what was done is undone, newest first, before the instance ends.

A step that was done leaves a plan: its undo steps, and what their expressions read, as it was then. The plan outlives
the turn or the dropped branch that made it. A failing undo stops for a person.
"""

from __future__ import annotations

from perdure.kernel.decision import Outcome

from .branches import Branch, Frame, Scope
from .compile import reads
from .life import Life, Planned

KEPT = ("item", "index", "loop", "payload", "task", "message", "error")


def plan(life: Life, branch: Branch) -> None:
    """The step that a branch is at was done: keep what undoes it."""
    op = branch.op
    if "undo" not in op.s or life.ending is not None:
        return
    planned = Planned(op, branch.location)
    bindings = branch.bindings()
    for path in reads(op.s["undo"]):
        root = path[0]
        if root in ("result", "tasks") and len(path) > 1:
            kept = planned.results if root == "result" else planned.tasks
            if path[1] in bindings[root]:
                kept[path[1]] = bindings[root][path[1]]
        elif root in ("result", "tasks"):  # all of it
            (planned.results if root == "result" else planned.tasks).update(bindings[root])
        elif root in KEPT:
            planned.given[root] = bindings.get(root)
    life.planned.append(planned)


def begin(life: Life, outcome: Outcome) -> None:
    """Drop what is open, undo what was done, and end with this outcome."""
    life.slice.undo = True
    if life.root is not None:
        life.drop(life.root)
    life.slice.ready.clear()
    life.slice.total = 0  # an endless loop must not keep it
    life.ending = outcome
    follow(life)


def follow(life: Life) -> None:
    """Undo the next step; after the last one the instance ends."""
    assert life.ending is not None
    if life.root is not None:
        life.root.frames = []
    if not life.planned:
        life.root = None
        life.slice.outcome = life.ending
        return
    planned = life.planned.pop()
    frame = Frame(planned.op.s["undo"], f"{planned.location}/undo/", "undo")
    frame.scope = Scope()
    frame.scope.results, frame.scope.tasks = planned.results, planned.tasks
    frame.given = planned.given
    life.slice.noted.append(f"undo {planned.location}")
    life.root = Branch([frame])
    life.slice.ready.append(life.root)
