"""Dask: copies of jobs as tasks of a `distributed` scheduler, and what its workers say of themselves.

The client of Dask has a thread and a loop of its own, so an engine's loop does not wait for it. A connection that was
lost for long ends that client: the next submission makes another.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from perdure.errors import BadCall
from perdure.ports.cluster import CannotBegin, Copy, Ended

T = TypeVar("T")

CONNECT_SECONDS: Final = 5.0

MISSING: Final = "Dask is not installed here: pip install 'perdure[dask]'"

Run = Callable[[Copy, Mapping[str, str]], None]
"""What the workers of the cluster call. They import it by its name."""


def distributed_of_dask() -> Any:
    """Its types are incomplete, so it has none here."""
    try:
        import distributed
    except ImportError:
        raise BadCall(MISSING) from None
    return distributed


class DaskCluster:
    """`address` is that of the scheduler. `settings` are for `run`, the same for all copies."""

    def __init__(self, address: str, run: Run, settings: Mapping[str, str]) -> None:
        self._distributed = distributed_of_dask()
        self.name = f"dask {address}"
        self._address = address
        self._run = run
        self._settings = dict(settings)
        self._loop = asyncio.get_running_loop()
        self._client: Any = None
        self._connecting = threading.Lock()
        self._futures: dict[str, Any] = {}
        self._heard: Callable[[str, Ended], None] = _nobody

    def listen(self, ended: Callable[[str, Ended], None]) -> None:
        self._heard = ended

    async def submit(self, copies: Sequence[Copy]) -> None:
        await self._asked(lambda: self._submit(copies))

    async def cancel(self, ids: Sequence[str]) -> None:
        futures = [future for id in ids if (future := self._futures.pop(id, None)) is not None]
        if futures:
            await asyncio.to_thread(_release, futures)

    async def machines(self) -> frozenset[str]:
        return await self._asked(self._machines)

    async def _asked(self, ask: Callable[[], T]) -> T:
        """In a thread. A client that is being closed raises what it likes: a dispatcher only has to try again."""
        try:
            return await asyncio.to_thread(ask)
        except OSError:
            raise
        except Exception as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        client, self._client = self._client, None
        self._futures.clear()
        if client is not None:
            await asyncio.to_thread(client.close, CONNECT_SECONDS)

    # ---- in a thread ---------------------------------------------------------------------------------------------

    def _submit(self, copies: Sequence[Copy]) -> None:
        client = self._connected()
        groups: dict[tuple[Any, ...], list[Copy]] = defaultdict(list)
        for copy in copies:  # to prefer machines loosens all that is asked of one: never where resources are asked for
            groups[frozenset() if copy.resources else copy.avoid, *sorted(copy.resources.items())].append(copy)
        for (avoid, *resources), group in groups.items():
            others = sorted(self._machines() - avoid) if avoid else []
            futures = client.map(
                self._run,
                group,
                key=[copy.id for copy in group],
                settings=self._settings,
                resources=dict(resources) or None,
                workers=others or None,
                allow_other_workers=bool(others),
                retries=0,
            )
            for copy, future in zip(group, futures, strict=True):
                self._futures[copy.id] = future
                future.add_done_callback(lambda future, id=copy.id: self._done(id, future))

    def _connected(self) -> Any:
        with self._connecting:
            return self._connect()

    def _connect(self) -> Any:
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
        end = _failure_of(future) if status == "error" else Ended(lost=status != "finished")
        self._loop.call_soon_threadsafe(self._ended, id, end)

    def _ended(self, id: str, end: Ended) -> None:
        if self._futures.pop(id, None) is not None:
            self._heard(id, end)


def _nobody(id: str, end: Ended) -> None:
    pass


def _release(futures: Sequence[Any]) -> None:
    for future in futures:
        future.release()


def _failure_of(future: Any) -> Ended:
    error: Any = future.exception(timeout=CONNECT_SECONDS)
    if isinstance(error, CannotBegin):
        return Ended(error=error.reason, machine=error.machine)
    return Ended(error=f"{type(error).__name__}: {error}")


# ---- for people --------------------------------------------------------------------------------------------------


def examine(address: str, reach: Callable[[str], Awaitable[str]], db: str) -> tuple[dict[str, Any], list[str]]:
    """The versions of a cluster, and what is wrong with them. `reach` is called by each worker with the database."""
    try:
        client = distributed_of_dask().Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        return {"address": address, "workers": {}}, [f"dask {address} cannot be reached: {str(error) or 'no answer'}"]
    try:
        versions = client.get_versions(packages=["perdure"])
        problems = problems_of(address, versions)
        if db and not problems:
            answers = client.run(reach, db, on_error="return")
            problems += [f"the dask worker {name}: {answer}" for name, answer in sorted(answers.items()) if answer]
    finally:
        client.close()
    return {"address": address, "workers": {name: _short(each) for name, each in versions["workers"].items()}}, problems


def problems_of(address: str, versions: Mapping[str, Any]) -> list[str]:
    """What does not fit, from the answer of `Client.get_versions`: arguments and results cross these versions."""
    own = _short(versions["client"])
    problems = [] if versions["workers"] else [f"dask {address} has no workers: nothing would run there"]
    for name, told in sorted(versions["workers"].items()):
        found = _short(told)
        if found["perdure"] is None:
            problems.append(f"the dask worker {name} has no perdure: install perdure[dask] {own['perdure']} there")
        elif found["perdure"] != own["perdure"]:
            problems.append(f"the dask worker {name} has perdure {found['perdure']}, here it is {own['perdure']}")
        if found["python"].split(".")[:2] != own["python"].split(".")[:2]:
            problems.append(f"the dask worker {name} has Python {found['python']}, here it is {own['python']}")
        if found["distributed"] != own["distributed"]:
            problems.append(f"the dask worker {name} has distributed {found['distributed']}, here {own['distributed']}")
    return problems


def _short(told: Mapping[str, Any]) -> dict[str, Any]:
    packages = told["packages"]
    python = ".".join(packages["python"].split(".")[:3])
    return {"python": python, "perdure": packages["perdure"], "distributed": packages["distributed"]}


# ---- on a worker of the cluster ------------------------------------------------------------------------------------


def here() -> tuple[str, str, Callable[[Callable[[], None]], None]]:
    """The kind and the address of the Dask worker that this is, and how to be called before that worker closes."""
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

    return "dask", worker.address, at_end
