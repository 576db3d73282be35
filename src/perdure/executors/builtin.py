"""What performs the effects that every world has: requests, blobs and steps.

Parameters come as records, results go as plain data: the types are those of `cells/effects.py`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from perdure.codec import Signature, decode, encode
from perdure.errors import BadCall, PerdureError
from perdure.kernel.batch import Publication
from perdure.ports.executor import Work
from perdure.ports.store import Queries


class Requests:
    """`allow` is the operator's: addresses, networks and hosts besides the public ones."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._allow = allow if isinstance(allow, str) or not isinstance(allow, Iterable) else tuple(allow)
        if self._allow != ():  # what is wrong with it is said now, and not at the first request
            from .address import Guard

            Guard(self._allow)

    async def perform(self, params: Any, call: Any) -> dict[str, Any]:
        from .http import TIMEOUT_SECONDS, request  # here: it takes its time to import

        timeout = TIMEOUT_SECONDS if call.timeout is None else call.timeout / 1e9
        headers = [(header.name, header.value) for header in params.headers]
        response = await request(params.method, params.url, headers, params.body, timeout=timeout, allow=self._allow)
        answered = [{"name": name, "value": value} for name, value in response.headers]
        return {"status": response.status, "headers": answered, "body": response.body}


class Blobs:
    """`now`: the time in nanoseconds. A young blob is safe from whoever collects garbage."""

    def __init__(self, queries: Queries, now: Callable[[], int]) -> None:
        self._queries = queries
        self._now = now

    async def put(self, params: Any, call: Any) -> dict[str, Any]:
        (digest,) = await self._queries.put_blobs([params.data], self._now())
        return {"hash": f"sha256:{digest.hex()}", "size": len(params.data)}

    async def get(self, params: Any, call: Any) -> dict[str, Any]:
        data = await self._queries.blob(bytes.fromhex(params.hash.removeprefix("sha256:")))
        if data is None:
            raise LookupError(f"there is no blob {params.hash}")
        return {"data": data}


class Steps:
    """The handler of the effect of this name. `is_step` says whether something that was found in a module is a step."""

    is_async = False

    def __init__(self, effect: str, is_step: Callable[[Any], bool]) -> None:
        self.effect = effect
        self._is_step = is_step

    def work(self, params: Any, key: str, publication: Publication) -> Work:
        """The arguments are converted before the call begins: so a secret among them is seen, and gets its value."""
        name = params["function"]
        try:
            function = self._find(name)
            signature = Signature.of(function)
            args, kwargs = signature.call_args(decode(params["arguments"]))
        except PerdureError:
            raise
        except Exception as error:  # of a module, or of a type that checks what it is made of
            raise BadCall(f"the step {name!a} cannot be called: {type(error).__name__}: {error}") from error
        return Work(partial(_performed, function, signature), args, kwargs, Any)

    def _find(self, name: str) -> Callable[..., Any]:
        """Whoever writes the event may name any function there is: only what its author made a step is run."""
        module_name, colon, path = name.partition(":")
        try:
            found: Any = _module(module_name) if module_name and colon else None
        except ImportError as error:
            raise BadCall(f"the step {name!a} cannot be imported: {error}") from None
        for part in path.split("."):
            found = getattr(found, part, None)
        if not self._is_step(found):
            raise BadCall(f"{name!a} is not a function with @perdure.step: only such a function is run as a step")
        return found.function  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    """A script that runs is the module that its file would be: it is not run a second time."""
    script = sys.modules.get("__main__")
    if Path(getattr(script, "__file__", None) or "__main__").stem == name:
        return script
    return importlib.import_module(name)


def _performed(
    function: Callable[..., Any], signature: Signature, /, *args: Any, **kwargs: Any
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """In a thread. What it gives back is awaited on the loop, if it can be."""
    given = function(*args, **kwargs)
    return _later(signature, given) if inspect.isawaitable(given) else _result(signature, given)


def _result(signature: Signature, given: Any) -> dict[str, Any]:
    return {"result": encode(signature.result_to_plain(given))}


async def _later(signature: Signature, given: Awaitable[Any]) -> dict[str, Any]:
    return _result(signature, await given)
