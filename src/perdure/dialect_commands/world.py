"""Worlds of cells as people name them on the command line: a manifest file, a module, or a database."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from perdure.app.ours import FILES
from perdure.cells.policy import POLICY
from perdure.cli.exits import Exit, Stopped
from perdure.cli.load import current_directory_first, module_of
from perdure.codec import decode
from perdure.errors import UnknownWorkflow
from perdure.kernel.rules import DEFINITIONS, RULER
from perdure.ports.store import Filter, Queries
from perdure.runtime.arguments import unknown
from perdure.views.reasons import rules_in_force

if TYPE_CHECKING:
    from perdure.cells.bound_manifest import BoundManifest
    from perdure.cells.manifest import Manifest
    from perdure.cli.console import Console

NO_CELLS = "this database has no cells: no engine was opened on it with any"


def bound_of(target: str) -> BoundManifest:
    """The world of a manifest file or of a module, with its code."""
    from perdure.worlds.files import load_manifest

    if target.lower().endswith(FILES):
        current_directory_first()
        with redirect_stdout(sys.stderr):
            return load_manifest(target)
    return _of_module(target)


def manifest_of(target: str) -> Manifest:
    """The manifest of a file, whose code is not needed, of a module, or in force on a database or at a server."""
    from perdure.app import connect, run_async
    from perdure.cells.manifest import read as read_data
    from perdure.cli.remote import request
    from perdure.worlds.files import read_manifest

    if target.startswith(("http://", "https://")):
        return read_data(request(target, "manifest show", {}).manifest)
    if target.lower().endswith(FILES):
        return read_manifest(target)
    if "://" not in target and (target.endswith(".py") or not os.path.isfile(target)):
        return _of_module(target).manifest

    async def read() -> Manifest:
        async with connect(target) as client:
            return await in_force(client.queries)

    manifest: Manifest = run_async(read)
    return manifest


async def in_force(queries: Queries) -> Manifest:
    """The manifest that a database runs."""
    from perdure.cells.manifest import read

    head = await queries.head(RULER)
    data = None if head is None else await queries.published(head.id, DEFINITIONS)
    if data is None:
        raise Stopped(NO_CELLS, Exit.NOT_FOUND)
    return read(decode(data))


async def cell_names(queries: Queries) -> list[str]:
    """The workflows that are cells by the manifest in force."""
    return list((await rules_in_force(queries)).versions)


async def refuse_unknown_cell(queries: Queries, name: str) -> None:
    """For a name that is no cell by the manifest in force, and of which there are no cells from before it."""
    names = await cell_names(queries)
    if not names:
        raise Stopped(NO_CELLS, Exit.NOT_FOUND)
    if name not in names and not await queries.heads(Filter(name, limit=1)):
        raise UnknownWorkflow(unknown("cell", name, names, "`perdure cells ls` lists what exists"))


def refuse_unknown_of_server(console: Console, name: str) -> None:
    """The same, among the workflows that a server tells this login of."""
    listed = console.request("workflow ls").items
    if name not in [each.name for each in listed]:
        names = [each.name for each in listed if each.noun == POLICY.noun]
        raise UnknownWorkflow(unknown("cell", name, names, "`perdure cells ls` lists what exists"))


def without_version(cell: str) -> str:
    """The name of a cell's instances: people know its definition too, `com.acme/order@1`."""
    name, sign, version = cell.rpartition("@")
    return name if sign and version.isdigit() else cell


def _of_module(target: str) -> BoundManifest:
    found = world_in(target)
    if found is None:
        raise Stopped(f"{target} has no cells; put @perdure.cell(...) above a reducer")
    return found


def world_in(target: str) -> BoundManifest | None:
    """The world of a module's cells, or of what is named in it; None: it has none."""
    from perdure.cells.author import Cell
    from perdure.cells.bound_manifest import BoundManifest, manifest

    name, colon, attribute = target.partition(":")
    with redirect_stdout(sys.stderr):
        found: dict[str, Any] = vars(module_of(name))
        if colon:
            if attribute not in found:
                raise Stopped(f"{name} has no {attribute!r}")
            found = {attribute: found[attribute]}
        worlds = list({id(value): value for value in found.values() if isinstance(value, BoundManifest)}.values())
        cells = list({id(value): value for value in found.values() if isinstance(value, Cell)}.values())
        if len(worlds) > 1:
            raise Stopped(f"{name} has {len(worlds)} manifests; name one of them: {name}:NAME")
        if worlds:
            return worlds[0]
        return manifest(*cells) if cells else None
