"""An event to a playbook costs the same, however much the instance has open: counted in calls, not in seconds."""

import sys

import pytest

from perdure.codec import encode
from perdure.kernel.events import Message, Started
from perdure.kernel.moment import Moment
from perdure.playbooks.state import Open, OpenEffects
from tests.playbooks.harness import book

GATE = "spec: {policy: {admit: {rules: [{when: ctx.%s, then: {allow: true}}, {else: {then: {allow: false}}}]}}}"


def held(count):
    """A machine whose instance waits at so many gates."""
    keys = ", ".join(f"k{n}: {{init: false}}" for n in range(count))
    steps = ", ".join(f"{{step: g{n}, {GATE % f'k{n}'}, tool: {{kind: noop}}}}" for n in range(count))
    arcs = ", ".join(f"{{step: g{n}}}" for n in range(count))
    split = f"{{step: s, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}}}"
    playbook = book(f"executor: {{spec: {{ctx: {{{keys}}}}}}}\nworkflow: [{split}, {steps}]\n")
    machine = playbook.machine(f"{playbook.name}/k", None)
    deliver(machine, Started(playbook.name, "k", encode({}), bytes(32)), 1)
    return machine


def deliver(machine, event, number):
    moment = Moment(1_700_000_000_000_000_000 + number, bytes(32), number, seq=7)
    return machine.deliver(event, moment)


def calls(machine, number):
    """How many functions run for a patch that opens one gate."""
    counted = 0

    def count(frame, event, argument):
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        decision = deliver(machine, Message("ctx", encode({"set": {f"k{number}": True}}), f"m{number}"), number + 2)
    finally:
        sys.setprofile(None)
    assert len(decision.withdraw) == 1, "one gate has opened"
    return counted


def test_one_of_many_gates_opens_as_quickly_as_one_of_few():
    few, many = held(10), held(60)
    calls(few, 0), calls(many, 0)

    assert calls(many, 1) <= calls(few, 1) + 25  # going through the open ones once would be 50


def test_open_effects_are_found_by_their_token_and_their_kind():
    opened = {bytes([n]): Open(("call", "gate", "sleep")[n % 3], f"at-{n}", n % 4) for n in range(24)}
    effects = OpenEffects(opened)
    for n in (0, 4, 8, 12, 16, 20, 5):
        assert effects.take(bytes([n])) is opened.pop(bytes([n]))

    assert effects == opened
    for token in range(5):
        assert effects.of_token(token) == {id: each for id, each in opened.items() if each.token == token}
    for kind in ("call", "gate", "sleep", "none"):
        assert effects.of_kind(kind) == {id: each for id, each in opened.items() if each.kind == kind}
    with pytest.raises(KeyError):
        effects.take(b"none")
