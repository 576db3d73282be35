"""The state of an instance changes in `apply` only, and only the kernel drives a machine. Exceptions stand here."""

import ast
from collections.abc import Iterator
from pathlib import Path

from perdure.kernel.events import Address
from perdure.kernel.instance import Instance

SOURCE = Path(__file__).parent.parent.parent / "src" / "perdure"

STATE = {*Instance(Address("a", "b")).state(), "identity"}
"""What is compared after a crash, and the identity, from which ids are derived."""

LOADERS = {"kernel/apply.py", "kernel/snapshot.py", "kernel/instance.py"}
"""`apply`; a snapshot, which is made of a whole state; the fields themselves."""

ELSEWHERE = {
    ("cells/replay.py", "definition"): "needed to find the code that decides; `apply` sets the same after it",
    ("kernel/creation.py", "identity"): "derived from the start, to check its decision; `apply` sets what it is of",
    ("kernel/creation.py", "version"): "a fork begins to count where its past ends; `apply` checks the number",
    ("kernel/kernel.py", "id"): "the seq of the first entry, while that is built; `apply` sets the same",
    ("kernel/kernel.py", "identity"): "derived from a rewind, to check its decision; `apply` sets what it is of",
    ("kernel/cache.py", "generation"): "an instance that has ended, from its head",
    ("kernel/cache.py", "id"): "an instance that has ended, from its head",
    ("kernel/cache.py", "input_hash"): "an instance that has ended, from its head",
    ("kernel/cache.py", "outcome"): "an instance that has ended, from its head",
    ("kernel/cache.py", "parent"): "an instance that has ended, from its head",
    ("kernel/cache.py", "status"): "an instance that has ended, from its head",
    ("runtime/history.py", "definition"): "a reader's own instance, from its head",
    ("runtime/history.py", "generation"): "a reader's own instance, from its head",
    ("runtime/history.py", "id"): "a reader's own instance, from its head",
    ("runtime/history.py", "outcome"): "a reader's own instance, from its head",
    ("runtime/history.py", "started_at"): "a reader's own instance, from its head",
    ("runtime/history.py", "status"): "a reader's own instance, from its head",
    ("stores/rebuild.py", "address"): "of an instance that is rebuilt, from the start that names it",
}
DRIVERS = {
    "kernel/kernel.py": "live",
    "kernel/replay.py": "the driver of replay: `Replay` for all entries of an instance, `deliver_again` for one",
    "kernel/rewind.py": "a rewind and the receipts that it kept, live",
    "testing/playbooks.py": "a second machine beside the one that the kernel drives, to compare them",
}
"""What hands events to machines."""

CHANGES = {"add", "append", "clear", "extend", "learn", "pop", "popitem", "remove", "setdefault", "update"}


def is_instance(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "instance") or (
        isinstance(node, ast.Attribute) and node.attr in {"instance", "_instance"}
    )


def written(tree: ast.AST) -> Iterator[str]:
    """Fields of instances that are set, deleted, or changed in place."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=name, ctx=ast.Store() | ast.Del()) if is_instance(value):
                yield name
            case ast.Subscript(value=ast.Attribute(value=value, attr=name), ctx=ast.Store() | ast.Del()) if is_instance(
                value
            ):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=value, attr=name), attr=how)) if (
                how in CHANGES and is_instance(value)
            ):
                yield name


def test_the_state_of_an_instance_changes_in_apply_only():
    found = {
        (name, field)
        for path in SOURCE.rglob("*.py")
        if (name := str(path.relative_to(SOURCE))) not in LOADERS
        for field in written(ast.parse(path.read_text()))
        if field in STATE
    }

    assert found == set(ELSEWHERE)


def test_only_the_kernel_drives_a_machine():
    """A call of `deliver` with an event and a moment. A machine may call its own."""
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "deliver"
        and node.args
        and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "self")
    }

    assert found == set(DRIVERS)
