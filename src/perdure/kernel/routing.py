"""Routing: which instances a domain event goes to. Subscriptions are asked in order and fan out in that order.

Those of the registered workflows come first, then those of the manifest in force.
"""

from collections.abc import Iterable

import msgspec

from perdure.codec import decode
from perdure.errors import PerdureError

from .decision import Fact
from .events import Address
from .manifest import NO_MANIFEST, Manifest, key_text


class Subscription(msgspec.Struct, frozen=True):
    """`key_path` is the dotted path, inside the fact's body, of the key of the instance that shall hear it."""

    fact: str
    key_path: str


class Router:
    def __init__(self) -> None:
        self._subscribers: dict[str, list[tuple[str, str]]] = {}
        self._governed: dict[str, list[tuple[str, str]]] = {}
        self.manifest = NO_MANIFEST

    def subscribe(self, workflow: str, subscriptions: Iterable[Subscription]) -> None:
        for subscription in subscriptions:
            self._subscribers.setdefault(subscription.fact, []).append((workflow, subscription.key_path))

    def enforce(self, manifest: Manifest) -> None:
        """From now on this is the manifest in force."""
        self.manifest = manifest
        self._governed = {}
        for route in manifest.routes:
            self._governed.setdefault(route.fact, []).append((route.workflow, route.key_path))

    def route(self, fact: Fact) -> list[Address]:
        """The addresses, in order. A body without the key is for nobody."""
        subscribers = [*self._subscribers.get(fact.name, ()), *self._governed.get(fact.name, ())]
        if not subscribers:
            return []
        try:
            body = decode(fact.body)
        except (PerdureError, ValueError):
            return []
        keys = [(workflow, key_text(_at(body, path)) if path else "") for workflow, path in subscribers]
        return [Address(workflow, key) for workflow, key in keys if key is not None]


def _at(value: object, path: str) -> object:
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value
