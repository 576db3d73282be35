"""The wiring of clusters: a dispatcher that hands the jobs of a queue to one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from perdure.errors import BadCall
from perdure.ports.cluster import Cluster
from perdure.runtime.dispatch import Dispatcher

from .runner import run_job
from .urls import is_server
from .workers import checked

if TYPE_CHECKING:
    from perdure.ports.jobs import Jobs
    from perdure.runtime.setup import Serves

SLOTS: Final = 100


class Dispatch:
    """The steps of a queue are performed by a cluster: `perdure.open(url, dispatch=[perdure.Dispatch(...)])`.

    dask: the address of a Dask scheduler. slots: how many steps are on the cluster at once, those that wait there
    included. db: the URL of the database as the machines of the cluster reach it, or `env:NAME` of a variable there;
    without it the URL of the engine. key: `ID=env:NAME`, to sign receipts by the secret in a variable of the machines.
    """

    def __init__(self, queue: str, *, dask: str, slots: int = SLOTS, db: str = "", key: str = "") -> None:
        self.queue, self.slots = checked(queue, slots)
        if not isinstance(dask, str) or "://" not in dask:  # type: ignore[redundant-expr]
            raise BadCall(f"dask={dask!r}: it takes the address of a scheduler, like tcp://127.0.0.1:8786")
        if db and not db.startswith("env:") and not is_server(db):
            raise BadCall(f"db={db!r}: the machines of a cluster need postgresql://... or env:NAME")
        self.dask = dask
        self.db = db
        self.key = key

    def dispatcher(self, jobs: Jobs, url: str) -> Dispatcher:
        return Dispatcher(jobs, self._cluster(url), self.queue, self.slots)

    def _cluster(self, url: str) -> Cluster:
        from perdure.clusters.dask import DaskCluster

        return DaskCluster(self.dask, run_job, {"db": self.db or url, "key": self.key})


class Dispatching:
    """The dispatchers of an engine. What is wrong with them is said when this is made: nothing runs yet."""

    def __init__(self, dispatch: Iterable[Dispatch], url: str | os.PathLike[str]) -> None:
        self._dispatch = [dispatch] if isinstance(dispatch, Dispatch) else list(dispatch)
        self._url = str(url)
        for each in self._dispatch:
            if not isinstance(each, Dispatch):
                raise BadCall(f"dispatch= takes perdure.Dispatch(...), found {each!r}")
            refuse_file(url, each.queue)

    def __call__(self, jobs: Jobs) -> list[Serves]:
        return [each.dispatcher(jobs, self._url) for each in self._dispatch]


def refuse_file(url: str | os.PathLike[str], queue: str) -> None:
    if not is_server(url):
        raise BadCall(
            f"the queue {queue} cannot be dispatched from {os.fspath(url)}: the machines of a cluster claim their jobs "
            "in the database, and they can do that on PostgreSQL only: postgresql://..."
        )
