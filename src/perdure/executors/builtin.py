"""What performs the effects that every world has: requests, blobs and steps.

Parameters come as records, results go as plain data: the types are those of `cells/effects.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
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

    @property
    def allow(self) -> tuple[str, ...]:
        return tuple(self._allow)

    async def perform(self, params: Any, call: Any) -> dict[str, Any]:
        from .http import TIMEOUT_SECONDS, request  # here: it takes its time to import

        timeout = TIMEOUT_SECONDS if call.timeout is None else call.timeout / 1e9
        headers = [(header.name, header.value) for header in params.headers]
        response = await request(params.method, params.url, headers, params.body, timeout=timeout, allow=self._allow)
        answered = [{"name": name, "value": value} for name, value in response.headers]
        return {"status": response.status, "headers": answered, "body": response.body}


class BlobEffects:
    """`now`: the time in nanoseconds. A young blob is safe from garbage collection."""

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
    """The handler of the effect of this name. `find` gives the function of a step by its place; None: there is none.

    The sender of the event may name any place. So nothing is imported for it: only a function that its author made a
    step, in a module that this process has imported, is run.
    """

    is_async = False

    def __init__(self, effect: str, find: Callable[[str], Callable[..., Any] | None]) -> None:
        self.effect = effect
        self._find = find

    def work(self, params: Any, key: str, publication: Publication) -> Work:
        """The arguments are converted before the call begins: so a secret among them is seen, and gets its value."""
        name = params["function"]
        try:
            function = self._find(name)
            if function is None:
                text = f"{name!a:.200} is not a function with @perdure.step in a module that this engine has imported"
                raise BadCall(f"{text}; import its module where the engine is opened")
            signature = Signature.of(function)
            args, kwargs = signature.call_args(decode(params["arguments"]))
        except PerdureError:
            raise
        except Exception as error:  # of a type that checks what it is made of
            raise BadCall(f"the step {name!a:.200} cannot be called: {type(error).__name__}: {error}") from error
        perform = _awaited if inspect.iscoroutinefunction(function) else _performed
        return Work(partial(perform, function, signature), args, kwargs, Any)


def _performed(
    function: Callable[..., Any], signature: Signature, /, *args: Any, **kwargs: Any
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """In a thread. What it gives back is awaited on the loop, if it can be."""
    given = function(*args, **kwargs)
    return _later(signature, given) if inspect.isawaitable(given) else _result(signature, given)


async def _awaited(function: Callable[..., Any], signature: Signature, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """On the loop."""
    return _result(signature, await function(*args, **kwargs))


def _result(signature: Signature, given: Any) -> dict[str, Any]:
    return {"result": encode(signature.result_to_plain(given))}


async def _later(signature: Signature, given: Awaitable[Any]) -> dict[str, Any]:
    return _result(signature, await given)
