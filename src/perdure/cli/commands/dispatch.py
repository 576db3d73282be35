"""`perdure dispatch`: a process that hands the steps of a queue to a cluster, for engines on PostgreSQL."""

from __future__ import annotations

import click

from perdure.app import Dispatch, run_async
from perdure.app.dispatch import SLOTS, refuse_file
from perdure.app.workers import opened
from perdure.errors import PerdureError

from ..console import Console, define
from ..exits import Stopped
from .run import interruptible


@define("dispatch")
@click.argument("queue")
@click.option("--dask", metavar="ADDRESS", required=True, help="The scheduler of a Dask cluster.")
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=SLOTS,
    show_default=True,
    help="How many steps are on the cluster at once, those that wait there included.",
)
@click.option(
    "--worker-db", metavar="URL", default="", help="The database as the cluster reaches it, or env:NAME there."
)
@click.option(
    "--key", metavar="ID=env:NAME", default="", help="Sign receipts, by a variable of the cluster's machines."
)
def dispatch(console: Console, queue: str, dask: str, slots: int, worker_db: str, key: str) -> None:  # noqa: PLR0917
    """The machines of the cluster claim the steps, perform them and answer. They need the code, and reach the database.

    SIGTERM or Ctrl-C: it submits nothing more. Steps that run on the cluster go on.
    """
    try:
        refuse_file(console.db, queue)
        wanted = Dispatch(queue, dask=dask, slots=slots, db=worker_db, key=key)
    except PerdureError as error:
        raise Stopped(str(error)) from None

    async def main() -> dict[str, int]:
        with interruptible() as (interrupted, hurry):
            async with opened(console.db) as (jobs, _):
                dispatcher = wanted.dispatcher(jobs, console.db)
                console.note(f"dispatching {queue} to dask {dask}, {slots} steps at once")
                return await dispatcher.serve(interrupted, hurry, 0.0)

    counts = run_async(main)
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count)
    console.answer(counts, told or "nothing was submitted")
