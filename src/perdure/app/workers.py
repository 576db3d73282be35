"""The wiring of queues: which functions a queue may call, and a worker that serves queues of a database."""

from __future__ import annotations

import importlib
import inspect
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.codec.returns import importable, is_async, returns_of
from perdure.errors import BadCall
from perdure.executors.queue import TOOLS, Find, FoundFunction, QueueExecutor, Tools
from perdure.kernel.batch import Publication
from perdure.kernel.effects import OURS
from perdure.kernel.job import asked
from perdure.kernel.receipt import Answerer, Receipt
from perdure.ports.executor import Executor
from perdure.ports.jobs import Jobs
from perdure.ports.store import Queries
from perdure.runtime.setup import Serves
from perdure.runtime.worker import Sign, Worker
from perdure.tools import names as tool_names

from .dialects import declares_steps

if TYPE_CHECKING:
    from perdure.executors.signatures import Keyring

NEVER_REACHED: Final = {*sys.stdlib_module_names, "perdure"}
"""Packages whose functions a module has for itself, and not for the jobs of its worker."""


class ServedQueues:
    """The queues that an engine serves itself: names, and how many calls of each run at once."""

    def __init__(
        self,
        queues: Mapping[str, int] | None,
        workflows: Iterable[Any],
        keys: Keyring | None,
        dispatchers: Callable[[Jobs], list[Serves]],
        tools: Callable[[], Tools] | None = None,
    ) -> None:
        if not isinstance(queues or {}, Mapping):
            raise BadCall(f'queues={queues!r}: queues are numbers of calls at once by name, like {{"images": 4}}')
        self._queues = dict([checked(name, slots) for name, slots in (queues or {}).items()])
        self._workflows = workflows
        self._keys = keys
        self._tools = tools
        self._dispatchers = dispatchers

    def executors(self) -> list[Executor]:
        tools = None if self._tools is None else self._tools()
        return [QueueExecutor(name, slots, imported, tools) for name, slots in self._queues.items()]

    def workers(self, jobs: Jobs) -> list[Serves]:
        """Workers have the functions of the modules that the workflows are in. Dispatchers ask a cluster."""
        names = {name for found in self._workflows for name in _modules(found)}
        modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
        workers = [
            worker(jobs, modules, [name], concurrency=slots, keys=self._keys, tools=self._tools and self._tools())
            for name, slots in self._queues.items()
        ]
        return [*workers, *self._dispatchers(jobs)]


def _modules(workflow: Any) -> Iterable[str]:
    """The modules whose functions a workflow brings: its own, or those that it says."""
    found: Iterable[str] = getattr(workflow, "modules", ())
    return found


def checked(name: str, slots: int) -> tuple[str, int]:
    if not isinstance(name, str) or not name or name in OURS:  # type: ignore[redundant-expr]
        raise BadCall(f"a queue has a name of its own, found {name!r}; taken are: {', '.join(sorted(OURS))}")
    if not isinstance(slots, int) or slots < 1:  # type: ignore[redundant-expr]
        raise BadCall(f"the queue {name} runs at least 1 call at once, found {slots!r}: queues={{{name!r}: 4}}")
    return name, slots


def imported(name: str) -> FoundFunction:
    """A function of this very process: what a flow names, its engine can import."""
    return _found(_imported(name))


def declared(name: str) -> FoundFunction:
    """A function of a module that declares steps. The name comes from a job: it must not reach any other module."""
    found = _imported(name)
    module = name.partition(":")[0]
    own = getattr(found, "__module__", "") in (module, "__main__")
    if not own or not declares_steps(found.__module__):
        raise BadCall(f"{name} is no function of a module that declares steps: put @perdure.step before it")
    return _found(found)


def _imported(name: str) -> Any:
    module_name, _, path = name.partition(":")
    main = sys.modules.get("__main__")
    try:
        here = main is not None and importable("__main__") == module_name
        found: Any = main if here else importlib.import_module(module_name)
    except ImportError as error:
        raise BadCall(f"the function {name} cannot be imported: {error}") from None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadCall(
            f"there is no function {path} in the module {module_name}: a step of a queue is found by its name"
        )
    return found


def known(modules: Iterable[ModuleType]) -> dict[str, FoundFunction]:
    """What the worker of these modules runs, by name: the functions that they define or import by name, and every
    `@perdure.step` of a module that they import. A job names its function: no other may be reached."""
    functions: dict[str, FoundFunction] = {}
    for module in modules:
        for value in vars(module).values():
            for function in _functions(value, module):
                functions[f"{importable(function.__module__)}:{function.__qualname__}"] = _found(function)
    return functions


def _functions(value: Any, module: ModuleType) -> list[Callable[..., Any]]:
    if hasattr(type(value), "brought"):
        return [value.brought]
    if inspect.ismodule(value):
        return [each.brought for each in vars(value).values() if hasattr(type(each), "brought")]
    own = getattr(value, "__module__", "") == module.__name__
    if inspect.isfunction(value) and (own or value.__module__.partition(".")[0] not in NEVER_REACHED):
        return [value]
    if inspect.isclass(value) and own:
        return [found for each in vars(value).values() for found in _functions(_plain(each), module)]
    return []


def _plain(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod) else value


def finding(functions: Mapping[str, FoundFunction]) -> Find:
    def find(name: str) -> FoundFunction:
        if name not in functions:
            raise BadCall(f"this worker has no function {name}")
        return functions[name]

    return find


def _found(value: Any) -> FoundFunction:
    function = getattr(value, "brought", value)
    return FoundFunction(function, returns_of(function), is_async(function))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Jobs, Queries]]:
    """The jobs and the blobs of a database, for a process that runs no engine on it."""
    from perdure.stores.postgres import PostgresDatabase

    database = await PostgresDatabase.open(url)
    try:
        yield database.jobs, database.queries
    finally:
        await database.close()


def keyring(text: str, queues: Iterable[str]) -> Keyring:
    """The key that signs the receipts of queues, from `ID=env:NAME`."""
    from perdure.executors.signatures import Key, Keyring

    id, found, material = text.partition("=")
    if not found or not id or not material.startswith("env:"):
        raise BadCall(f"--key is ID=env:NAME, found {id!r}: a secret on a command line is seen by everybody")
    made = Key.hmac(id, material)
    return Keyring({queue: [made] for queue in queues})


def signing(keys: Keyring | None) -> Sign:
    """Who a worker's receipts are from; signed where the queue has a key."""

    def sign(job: Publication, receipt: Receipt) -> Answerer:
        queue = job.effect.executor
        by = Answerer(queue)
        if keys is None or not keys.knows(queue):
            return by
        from perdure.executors.signatures import envelope

        answered = msgspec.structs.replace(receipt, by=by)
        address = job.address
        signed = envelope(asked(job.effect, job.delivery), address.workflow, address.key, job.intent, answered)
        return Answerer(queue, None, keys.sign(signed))

    return sign


def worker(
    jobs: Jobs,
    modules: Iterable[ModuleType],
    queues: Iterable[str],
    *,
    concurrency: int,
    name: str = "",
    keys: Keyring | None = None,
    tools: Tools | None = None,
) -> Worker:
    """A worker of these queues, which runs what it finds in these modules, and the tools that it is given."""
    functions = known(modules)
    executors = [QueueExecutor(*checked(queue, concurrency), finding(functions), tools) for queue in queues]
    name = name or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
    names = [*functions, *([] if tools is None else [TOOLS + each for each in tool_names()])]
    return Worker(jobs, executors, names, name=name, concurrency=concurrency, sign=signing(keys))
