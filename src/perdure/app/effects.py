"""The executor of named effects: the handlers of all dialects, and what every engine performs itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from perdure.errors import BadCall, CallerError
from perdure.executors.builtin import BlobEffects, Requests, Steps
from perdure.executors.effects import EffectsExecutor
from perdure.executors.queue import Tools
from perdure.executors.secrets import MappingSecrets
from perdure.ports.clock import Clock
from perdure.ports.dialect import Gathered
from perdure.ports.executor import Executor, Handler
from perdure.ports.secrets import Secret, Secrets
from perdure.ports.store import Queries
from perdure.tools.handler import Surroundings, handlers

from .dialects import declared_step


class Effects:
    """What is wrong with handlers, addresses and secrets is said when this is made: nothing runs yet."""

    def __init__(
        self,
        gathered: Iterable[Gathered],
        given: Any,
        *,
        lenient: bool,
        allow: Iterable[str],
        secrets: Secrets | Mapping[str, str] | None,
        connections: Mapping[str, Any] | None = None,
    ) -> None:
        self._performers = [each.performers for each in gathered if each.performers is not None]
        self.given = _listed(given)
        self._lenient = lenient
        self._requests = Requests(allow)
        self._secrets = MappingSecrets(secrets) if isinstance(secrets, Mapping) else secrets
        if secrets is not None and not callable(getattr(secrets, "get", None)):
            raise BadCall(f"secrets= takes a dict or an object with get(name), found {type(secrets).__name__}")
        self.around = Surroundings(self._requests.allow, _checked(connections), secrets=self._secrets)
        self._built_in: Mapping[str, Callable[..., Any]] = dict.fromkeys(("http", "blob-put", "blob-get"), _unused)
        self._executor: EffectsExecutor | None = None
        self._find: Callable[[str], Handler | None] = handlers(self.around)
        self._handlers(self._built_in)

    def executor(self, queries: Queries, clock: Clock, on_loop: Executor, in_threads: Executor) -> EffectsExecutor:
        blobs = BlobEffects(queries, clock.now)
        self._built_in = {"http": self._requests.perform, "blob-put": blobs.put, "blob-get": blobs.get}
        find = self._find = handlers(msgspec.structs.replace(self.around, blobs=queries, now=clock.now))
        self._executor = EffectsExecutor(self._handlers(self._built_in), on_loop, in_threads, self._secrets, find)
        return self._executor

    def tools(self) -> Tools:
        """For the queues that this engine serves itself, once it has its database."""
        return Tools(self._find, self._secrets)

    def extend(self, gathered: Iterable[Gathered]) -> None:
        """Dialects of which only the database has definitions perform their effects too."""
        self._performers += [each.performers for each in gathered if each.performers is not None]
        if self._executor is not None:
            self._executor.use(self._handlers(self._built_in))

    def _handlers(self, built_in: Mapping[str, Callable[..., Any]]) -> list[Handler]:
        return [
            handler
            for performers in self._performers
            for handler in performers(self.given, built_in, step_handler, lenient=self._lenient)
        ]


def _checked(connections: Any) -> dict[str, Any]:
    """Connections by name: a text, a `Secret`, or a map of those."""
    if connections is not None and not isinstance(connections, Mapping):
        raise BadCall(
            f'connections= takes a dict: {{"orders": perdure.Secret("orders-dsn")}}, found {connections!r:.80}'
        )
    for name, given in (connections or {}).items():
        if not isinstance(given, str | Secret | Mapping):
            raise BadCall(f"the connection {name} is a text, a perdure.Secret or a dict, found {type(given).__name__}")
    return dict(connections or {})


def _listed(handlers: Any) -> list[Any]:
    if hasattr(handlers, "work") or not isinstance(handlers, Iterable):
        raise CallerError(f"handlers is a list of handlers, found {handlers!r}: write handlers=[...]")
    return list(handlers)


async def _unused(params: Any, call: Any) -> Any:
    raise NotImplementedError


def step_handler(effect: str) -> Handler:
    return Steps(effect, _step)


def _step(place: str) -> Callable[..., Any] | None:
    """The function of a step by its place. A script that runs is the module that its file would be."""
    module, _, name = place.partition(":")
    found = declared_step(module, name)
    if found is None:
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        found = declared_step("__main__", name) if module == Path(script or "__main__").stem else None
    return found
