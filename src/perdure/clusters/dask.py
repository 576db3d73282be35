"""Dask: copies of jobs as tasks of a `distributed` scheduler, and what its workers say of themselves.

The client of Dask has a thread and a loop of its own, so an engine's loop does not wait for it. A connection that was
lost for long ends that client: the next submission makes another.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from perdure.errors import BadCall
from perdure.ports.cluster import Copy, Ended

CONNECT_SECONDS: Final = 5.0

MISSING: Final = "Dask is not installed here: pip install 'perdure[dask]'"

Run = Callable[[Copy, Mapping[str, str]], None]
"""What the workers of the cluster call. They import it by its name."""


class DaskCluster:
    """`address` is that of the scheduler. `settings` are for `run`, the same for all copies."""

    def __init__(self, address: str, run: Run, settings: Mapping[str, str]) -> None:
        try:
            import distributed
        except ImportError:
            raise BadCall(MISSING) from None
        self._distributed: Any = distributed  # its types are incomplete
        self.name = f"dask {address}"
        self._address = address
        self._run = run
        self._settings = dict(settings)
        self._loop = asyncio.get_running_loop()
        self._client: Any = None
        self._futures: dict[str, Any] = {}
        self._heard: Callable[[str, Ended], None] = _nobody

    def listen(self, ended: Callable[[str, Ended], None]) -> None:
        self._heard = ended

    async def submit(self, copies: Sequence[Copy]) -> None:
        await asyncio.to_thread(self._submit, copies)

    async def cancel(self, ids: Sequence[str]) -> None:
        futures = [future for id in ids if (future := self._futures.pop(id, None)) is not None]
        if futures:
            await asyncio.to_thread(_release, futures)

    async def machines(self) -> frozenset[str]:
        return await asyncio.to_thread(self._machines)

    async def close(self) -> None:
        client, self._client = self._client, None
        self._futures.clear()
        if client is not None:
            await asyncio.to_thread(client.close, CONNECT_SECONDS)

    # ---- in a thread ---------------------------------------------------------------------------------------------

    def _submit(self, copies: Sequence[Copy]) -> None:
        client = self._connected()
        groups: dict[tuple[tuple[str, float], ...], list[Copy]] = defaultdict(list)
        for copy in copies:
            groups[tuple(sorted(copy.resources.items()))].append(copy)
        for resources, group in groups.items():
            futures = client.map(
                self._run,
                group,
                key=[copy.id for copy in group],
                settings=self._settings,
                resources=dict(resources) or None,
                retries=0,
            )
            for copy, future in zip(group, futures, strict=True):
                self._futures[copy.id] = future
                future.add_done_callback(lambda future, id=copy.id: self._done(id, future))

    def _connected(self) -> Any:
        client = self._client
        if client is not None and client.status == "running":
            return client
        if client is not None and client.status in ("connecting", "newly-created"):
            raise ConnectionError("the connection to the scheduler is lost")
        if client is not None:
            self._client = None
            client.close(CONNECT_SECONDS)
        try:
            self._client = self._distributed.Client(self._address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ConnectionError(str(error) or "no answer") from None
        return self._client

    def _machines(self) -> frozenset[str]:
        client = self._connected()
        told = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=CONNECT_SECONDS)
        return frozenset(told["workers"])

    def _done(self, id: str, future: Any) -> None:
        status = future.status
        error = "" if status != "error" else _text_of(future)
        self._loop.call_soon_threadsafe(self._ended, id, Ended(status not in ("finished", "error"), error))

    def _ended(self, id: str, end: Ended) -> None:
        if self._futures.pop(id, None) is not None:
            self._heard(id, end)


def _nobody(id: str, end: Ended) -> None:
    pass


def _release(futures: Sequence[Any]) -> None:
    for future in futures:
        future.release()


def _text_of(future: Any) -> str:
    error: Any = future.exception(timeout=CONNECT_SECONDS)
    return f"{type(error).__name__}: {error}"


# ---- on a worker of the cluster ------------------------------------------------------------------------------------


def here() -> tuple[str, Callable[[Callable[[], None]], None]]:
    """The Dask worker that this task runs on, for people, and how to be called before that worker closes."""
    from distributed import WorkerPlugin, get_worker

    worker = get_worker()

    class Ending(WorkerPlugin):
        def __init__(self, stop: Callable[[], None]) -> None:
            self.name = f"perdure-{id(stop)}"
            self._stop = stop

        async def teardown(self, worker: Any) -> None:
            await asyncio.to_thread(self._stop)

    def at_end(stop: Callable[[], None]) -> None:
        worker.loop.add_callback(worker.plugin_add, Ending(stop))

    return f"dask {worker.address}", at_end
