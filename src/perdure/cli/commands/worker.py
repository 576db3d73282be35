"""`perdure worker`: a process that performs the steps of queues, for the engines of a PostgreSQL database."""

from __future__ import annotations

import time

import click

from perdure.app import is_server, run_async, workers
from perdure.app.workers import checked, keyring, known, opened
from perdure.errors import PerdureError
from perdure.executors.queue import Tools
from perdure.executors.signatures import Keyring
from perdure.tools.handler import Surroundings, handlers

from ..console import Console, define
from ..exits import Stopped
from ..given import secrets_of
from ..load import module_of
from .run import interruptible


@define("worker")
@click.argument("modules", metavar="MODULE...", nargs=-1)
@click.option("--queue", "queues", metavar="NAME", multiple=True, required=True, help="A queue to serve; repeatable.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=10, show_default=True, help="How many steps run at once."
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="How long running steps may take to end when the worker is stopped.",
)
@click.option("--tools", is_flag=True, help="Perform the tools of playbooks, too.")
@click.option("--allow", metavar="ADDRESS", multiple=True, help="An address that HTTP requests of tools may go to.")
@click.option(
    "--connection", "connections", metavar="NAME=SECRET", multiple=True, help="What auth: NAME of a tool means."
)
@click.option("--key", metavar="ID=env:NAME", help="Sign receipts with HMAC, by the secret in this variable.")
def worker(  # noqa: PLR0917
    console: Console,
    modules: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    drain: float,
    tools: bool,
    allow: tuple[str, ...],
    connections: tuple[str, ...],
    key: str | None,
) -> None:
    """It runs the functions of its modules, and every step among their names; work for others it leaves alone.

    SIGTERM or Ctrl-C: it claims nothing more and lets running steps end; what is not done in time is given back. The
    second one: at once.
    """
    if not is_server(console.db):
        raise Stopped(
            f"{console.db} is served by the engine that runs on it: perdure.open(..., queues={{{queues[0]!r}: "
            f"{concurrency}}}); a worker needs postgresql://..."
        )
    for queue in queues:
        checked(queue, concurrency)
    loaded = [module_of(name) for name in modules]
    functions = known(loaded)
    if not functions and not tools:
        raise Stopped(f"there is no function in {', '.join(modules)}: nothing that a worker could run")
    keys = None if key is None else _keyring(key, queues)

    async def main() -> dict[str, int]:
        with interruptible() as (interrupted, hurry):
            async with opened(console.db) as (jobs, queries):
                around = Surroundings(allow, secrets_of(connections), blobs=queries, now=time.time_ns)
                found = Tools(handlers(around)) if tools else None
                made = workers.worker(jobs, loaded, queues, concurrency=concurrency, keys=keys, tools=found)
                served = [f"{len(functions)} function{'s' * (len(functions) != 1)} of {', '.join(modules)}"] * bool(
                    modules
                )
                served += ["the tools"] * tools
                console.note(f"serving {', '.join(queues)} with {' and '.join(served)}, {concurrency} at once")
                counts = await made.serve(interrupted, hurry, drain)
        return counts

    counts = run_async(main)
    told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items()) if count)
    console.answer(counts, told or "nothing was claimed")


def _keyring(text: str, queues: tuple[str, ...]) -> Keyring:
    try:
        return keyring(text, queues)
    except PerdureError as error:
        raise Stopped(str(error)) from None
