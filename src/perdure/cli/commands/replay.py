"""`perdure replay`: would running instances go on with this code?"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import redirect_stdout
from typing import Any

import click

from perdure.errors import Divergence
from perdure.kernel.events import Address
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.status import TERMINAL
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Filter, Queries
from perdure.runtime.client import Client

from ..console import Console
from ..console import command as define
from ..exits import Exit
from ..load import flows_of, load_all, module_of
from ..text import indented
from ..world import world_in

PAGE = 200


@define("replay")
@click.option("--against", "targets", multiple=True, required=True, metavar="MODULE[:FLOW]", help="The new code.")
def command(console: Console, targets: tuple[str, ...]) -> None:
    """The histories of all instances that have not ended are replayed on the code of MODULE, without side effects:
    no step runs, nothing is written. Exit code 1 if any of them would diverge.

    An instance is replayed on the version that it started with, if MODULE has that, else on the newest one.
    """
    with redirect_stdout(sys.stderr):
        workflows = Workflows(each for target in targets for each in _code(target))

    async def replay(client: Client) -> list[dict[str, Any]]:
        return await _replay_all(client.queries, workflows)

    found = console.ask(replay)
    unsafe = [each for each in found if each["divergence"] is not None]
    counts = dict(Counter("unsafe" if each["divergence"] else "safe" for each in found))
    document = {"replayed": len(found), "safe": counts.get("safe", 0), "unsafe": unsafe}
    lines = [f"{click.style(each['id'], bold=True)}: {_shown(each['id'], each['divergence'])}" for each in unsafe]
    instances = "1 instance" if len(found) == 1 else f"{len(found)} instances"
    lines.append(f"{instances} replayed: {document['safe']} safe, {len(unsafe)} would be stuck")
    console.answer(document, "\n".join(lines))
    sys.exit(Exit.FAILED if unsafe else Exit.OK)


def _code(target: str) -> list[Any]:
    """Flows and cells. One cell is taken from the world of its module: it may announce what another one takes."""
    module, colon, name = target.partition(":")
    world = world_in(module)
    if world is None:
        return load_all(target)
    if not colon:
        return [*world.cells, *world.earlier, *flows_of(module)]
    wanted = getattr(getattr(module_of(module), name, None), "workflow", None)
    return [cell for cell in [*world.cells, *world.earlier] if cell.name == wanted] or load_all(target)


async def _replay_all(queries: Queries, workflows: Workflows[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in workflows.names():
        before = 0
        while heads := await queries.heads(Filter(workflow=name, before=before, limit=PAGE)):
            before = heads[-1].id
            for head in heads:
                if head.status not in TERMINAL:
                    workflow = workflows.of(name, head.version)
                    address = Address(head.workflow, head.key)
                    rows = await queries.history(head.id)
                    found.append({"id": str(address), "divergence": _divergence(address, rows, workflow)})
    return found


def _shown(id: str, divergence: str) -> str:
    return indented(divergence.removeprefix(f"{id}, "))


def _divergence(address: Address, rows: list[Any], workflow: Any) -> str | None:
    try:
        rebuild(fold(address, None, rows), workflow).dispose()
    except Divergence as error:
        return str(error)
    except Exception as error:  # what the code raises on the way would make the instance stuck as well
        return f"{type(error).__name__}: {error}"
    return None
