"""The gate of a graph: one pure place that judges openings, growth, tool calls and steps.

Every verdict follows from its arguments, which are recorded state. The kernel's own gate, which knows executors and
their slots, stands behind this one. The stages of each judgement stand in the order of the code; the first one that
denies is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from perdure.codec.converters.frame import did_you_mean
from perdure.errors import PerdureError

from .model import AXES, Limits, NodeSpec, Permit, fits, fits_any
from .state import Usage
from .tools import Tool

MATCHED_MAX: Final = 10_000
"""Characters of an argument that a pattern is tried on. A longer one fits each permit that asks or denies."""


WITHOUT_PLACE: Final = ("child", "reduce", "tournament", "wait")
"""Kinds of nodes that have no run, and so no place."""


class Verdict(msgspec.Struct, frozen=True):
    """`defer`: not now. `ask`: a person decides. `deny`: with the stage that said no, and why."""

    word: Literal["allow", "defer", "ask", "deny"]
    stage: str = ""
    reason: str = ""
    permit: Permit | None = None


ALLOW: Final = Verdict("allow")
DEFER: Final = Verdict("defer", "running")
ASK: Final = Verdict("ask")


def deny(stage: str, reason: str) -> Verdict:
    return Verdict("deny", stage, reason)


class Account(msgspec.Struct, frozen=True):
    """What is used, what is reserved, and the limits, of a node or of the instance."""

    whose: str
    limits: Limits
    used: Usage
    reserved: Usage


def budget(accounts: Iterable[Account], wanted: Usage) -> Verdict:
    """Whether what is wanted still fits. An axis that is used up denies, whatever is wanted."""
    for account in accounts:
        for axis in AXES:
            limit = getattr(account.limits, axis)
            if limit is None:
                continue
            spent = account.used.get(axis, 0) + account.reserved.get(axis, 0)
            if spent >= limit:
                return deny("budget", f"{account.whose} has used up its {axis}: {spent:g} of {limit:g}")
            if spent + wanted.get(axis, 0) > limit:
                left = limit - spent
                return deny("budget", f"{account.whose} has {left:g} {axis} left, and {wanted[axis]:g} are wanted")
    return ALLOW


def opening(
    spec: NodeSpec, depth: int, limits: Limits, running: int, accounts: Iterable[Account], *, approved: bool
) -> Verdict:
    """Stages: quarantine, depth, budget, running; then whether a person must be asked."""
    if spec.trust == "quarantined":
        if spec.isolation != "read_only":
            return deny(
                "quarantine", f"it reads what nobody vouches for, so it must be read_only, not {spec.isolation}"
            )
        if spec.kind == "child":
            return deny("trust", "a quarantined node starts no child")
    if limits.depth is not None and depth > limits.depth:
        return deny("depth", f"its depth is {depth}, and the limit is {limits.depth}")
    found = budget(accounts, {})
    if found is not ALLOW:
        return found
    if spec.approve == "before" and not approved:
        return ASK
    if limits.running is not None and spec.kind not in WITHOUT_PLACE:
        return place("the graph", limits.running, running)
    return ALLOW


def place(whose: str, limit: int, running: int) -> Verdict:
    """Whether one more run may have a place of the graph, or of a submitted one."""
    if limit == 0:
        return deny("running", f"{whose} runs no node at all: running=0")
    return DEFER if running >= limit else ALLOW


def growth(limits: Limits, *, closed: bool, depth: int, weight: int, added: int) -> Verdict:
    """Stages: closed, depth, nodes. The last one, shape, is that of `check.py`."""
    if closed:
        return deny("closed", "the graph takes no more nodes: it is being cancelled")
    if limits.depth is not None and depth > limits.depth:
        return deny("depth", f"nodes may be submitted down to depth {limits.depth}, and these have depth {depth}")
    if limits.nodes is not None and weight + added > limits.nodes:
        return deny("nodes", f"the graph has {weight} nodes of {limits.nodes}, and {added} more were submitted")
    return ALLOW


def use(
    spec: NodeSpec,
    name: str,
    arguments: Mapping[str, Any],
    *,
    tools: Mapping[str, Tool],
    permits: Iterable[Permit],
    veto: tuple[str, ...],
    accounts: Iterable[Account],
    wanted: Usage,
    approved: Permit | None = None,
    tainted: bool = False,
    nth: int = 1,
    repeats: int | None = None,
) -> Verdict:
    """Stages: arguments, veto, permit, isolation, trust, repeat, budget. `approved`: what a person has answered for.

    `tainted`: the run has read what is not trusted, so a person is asked before it writes. `nth`: the how many-th equal
    call this is; `repeats`: the first that is denied.
    """
    tool = tools.get(name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return deny("arguments", f"there is no such tool; there are: {known}{did_you_mean(name, tools)}")
    try:
        bound = tool.bind(arguments)  # permits have conditions on the default of an argument, too
    except PerdureError as error:
        return deny("arguments", str(error))
    if fits_any(veto, name) or fits_any(spec.veto, name):
        return deny("veto", "a veto names it")
    if spec.tools is not None and not fits_any(spec.tools, name):
        return deny("permit", f"this node may use: {', '.join(spec.tools) or 'no tool'}")
    permit = permit_for(name, bound, permits, tainted=tainted and tool.writes)
    if permit is not None and permit.verdict == "deny":
        return deny("permit", f"a permit denies {permit.glob}{' with such arguments' if permit.where else ''}")
    if spec.isolation == "read_only" and tool.writes:
        return deny("isolation", "the node is read_only, and the tool writes")
    if spec.trust == "quarantined" and tool.writes:
        return deny("trust", "the node is quarantined, and the tool writes")
    if repeats is not None and nth >= repeats:
        return deny("repeat", f"this is call {nth} with equal arguments, and repeats={repeats}: do something else")
    found = budget(accounts, wanted)
    if found is not ALLOW:
        return found
    if permit is not None and permit.verdict == "ask" and permit != approved:
        return Verdict("ask", permit=permit)
    return ALLOW


def permit_for(
    name: str, arguments: Mapping[str, Any], permits: Iterable[Permit], *, tainted: bool = False
) -> Permit | None:
    """The first permit that fits; None: the tool is allowed. A tainted run is asked for where others are allowed."""
    found = next((each for each in permits if fits(each.glob, name) and _holds(each, arguments)), None)
    if tainted and (found is None or found.verdict == "allow"):
        return Permit(name, "ask") if found is None else msgspec.structs.replace(found, verdict="ask")
    return found


def offered(spec: NodeSpec, tools: Mapping[str, Tool], permits: Iterable[Permit], veto: tuple[str, ...]) -> list[Tool]:
    """The tools that a node may use with some arguments: what an agent is told of."""
    permits = list(permits)
    found = []
    for name, tool in tools.items():
        if fits_any(veto, name) or fits_any(spec.veto, name) or (tool.writes and spec.isolation == "read_only"):
            continue
        if spec.tools is not None and not fits_any(spec.tools, name):
            continue
        first = next(
            (each for each in permits if fits(each.glob, name) and (not each.where or each.verdict != "deny")), None
        )
        if first is None or first.verdict != "deny":
            found.append(tool)
    return found


def _holds(permit: Permit, arguments: Mapping[str, Any]) -> bool:
    unsure = permit.verdict != "allow"
    return all(_fulfils(arguments, path, conditions, unsure) for path, conditions in permit.where.items())


def _fulfils(arguments: Mapping[str, Any], path: str, conditions: Mapping[str, Any], unsure: bool) -> bool:
    value: Any = arguments
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return all(_condition(value, word, wanted, unsure) for word, wanted in conditions.items())


def _condition(value: Any, word: str, wanted: Any, unsure: bool) -> bool:
    """`unsure`: the answer for a text that is too long to be compared with a pattern."""
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    match word:
        case "equals":
            return _equal(value, wanted)
        case "one_of":
            return any(_equal(value, each) for each in wanted)
        case "min":
            return number and value >= wanted
        case "max":
            return number and value <= wanted
        case "matches":
            if isinstance(value, str) and len(value) > MATCHED_MAX:
                return unsure
            return isinstance(value, str) and re.fullmatch(wanted, value) is not None
        case _:
            return False


def _equal(value: Any, wanted: Any) -> bool:
    """1 and 1.0 are equal, 1 and true are not."""
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)
