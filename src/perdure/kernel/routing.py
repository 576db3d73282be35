"""Routing: which instances a domain event goes to. Subscriptions are asked in order and fan out in that order.

Those of the registered workflows come first, then those of the rules in force.
"""

from collections.abc import Iterable

import msgspec

from perdure.codec import decode
from perdure.errors import BadDecision, PerdureError

from .decision import Fact
from .events import Address
from .limits import KEY_MAX
from .rules import NO_RULES, Rules, key_text


class Subscription(msgspec.Struct, frozen=True):
    """`key_path` is the dotted path, inside the fact's body, of the key of the instance that shall hear it."""

    fact: str
    key_path: str


class Router:
    def __init__(self) -> None:
        self._subscribers: dict[str, list[tuple[str, str]]] = {}
        self._governed: dict[str, list[tuple[str, str]]] = {}
        self.rules = NO_RULES

    def subscribe(self, workflow: str, subscriptions: Iterable[Subscription]) -> None:
        for subscription in subscriptions:
            self._subscribers.setdefault(subscription.fact, []).append((workflow, subscription.key_path))

    def enforce(self, rules: Rules) -> None:
        """From now on these rules hold."""
        self.rules = rules
        self._governed = {}
        for route in rules.routes:
            self._governed.setdefault(route.fact, []).append((route.workflow, route.key_path))

    def route(self, fact: Fact) -> list[Address]:
        """The addresses, in order. A body without the key has no address."""
        subscribers = [*self._subscribers.get(fact.name, ()), *self._governed.get(fact.name, ())]
        if not subscribers:
            return []
        try:
            body = decode(fact.body)
        except (PerdureError, ValueError):
            return []
        keys = [(workflow, key_text(_at(body, path)) if path else "") for workflow, path in subscribers]
        return [Address(workflow, key) for workflow, key in keys if key is not None]

    def objection(self, fact: Fact) -> str:
        """What is wrong with a key in a fact: no handle could name the instance that it goes to. Empty: nothing."""
        if len(fact.body) <= KEY_MAX and b"\x00" not in fact.body:
            return ""  # no key in it can be too long
        wrong = (text for address in self.route(fact) if (text := key_objection(address.key)))
        return next((f"{fact.name}: {text}" for text in wrong), "")

    def refuse_bad_keys(self, workflow: str, facts: Iterable[Fact]) -> None:
        for fact in facts:
            objection = self.objection(fact)
            if objection:
                raise BadDecision(workflow, f"it emitted {objection}")


def key_objection(key: str) -> str:
    """Why a text cannot be a key; empty: it can."""
    if len(key) <= KEY_MAX and "\x00" not in key:
        return ""
    return f"a key is a text of at most {KEY_MAX} characters without NUL, found {key!r:.80}"


def _at(value: object, path: str) -> object:
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value
