"""The wiring of cells: what an engine needs beyond flows when there are cells among its workflows.

It is imported when the first cell is: who has flows only does not wait for it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from perdure.cells import load
from perdure.cells.author import Cell, effect_name
from perdure.cells.bind import Bound, limits_of, manifest
from perdure.cells.effects import BlobGet, BlobPut, Http, Step
from perdure.cells.handlers import EffectHandler
from perdure.cells.manifest import Manifest
from perdure.cells.world import WorldWorkflow
from perdure.codec import digest
from perdure.errors import BadCall, BadDefinition, BadManifest, CallerError, ManifestChanged, NoHandler
from perdure.executors.builtin import Blobs, Requests, Steps
from perdure.executors.effects import EffectsExecutor
from perdure.executors.secrets import MappingSecrets
from perdure.flows.author import STEPS
from perdure.kernel.events import Started
from perdure.kernel.rules import DEFINITIONS, IN_FORCE, RULER, decode_rules
from perdure.kernel.workflows import Workflows
from perdure.ports.clock import Clock
from perdure.ports.executor import Executor, Handler
from perdure.ports.secrets import Secrets
from perdure.ports.store import Queries
from perdure.runtime.door import Door

log = logging.getLogger("perdure")

BUILT_IN: Final = frozenset(effect_name(effect) for effect in (Http, BlobPut, BlobGet, Step))
"""Effects that every engine performs."""


def gather(workflows: Iterable[Any]) -> tuple[list[Any], Bound | None]:
    """All that the kernel runs of what was given, and the world that its cells are."""
    given = list(workflows)
    loose = [workflow for workflow in given if isinstance(workflow, Cell)]
    worlds = [workflow for workflow in given if isinstance(workflow, Bound)]
    if loose:
        worlds.append(manifest(*loose))
    if len(worlds) > 1:
        raise CallerError("a database has one world of cells: put all cells into one manifest, or list them all")
    found = [workflow for workflow in given if not isinstance(workflow, Cell | Bound)]
    for world in worlds:
        cells = [*world.cells, *world.earlier]
        found += [WorldWorkflow(cells), *cells]
    return found, worlds[0] if worlds else None


async def begin(door: Door, world: Bound, known: Workflows[Any]) -> None:
    """A new database gets its first manifest; another manifest than the one in force is not applied by an open."""
    head = await door.queries.head(RULER)
    if head is None:
        started = Started(RULER.workflow, RULER.key, world.manifest.bytes, door.entropy(), WorldWorkflow.version)
        await door.put(RULER, started)
        return
    now = await door.queries.published(head.id, DEFINITIONS)
    if now is None or now == world.manifest.bytes:
        return
    in_force = decode_rules(await door.queries.published(head.id, IN_FORCE))
    if all(known.exactly(name, version) is not None for name, version in in_force.versions.items()):
        log.info("the manifest in force is %s, the code has %s too", digest(now)[:19], world.manifest.hash[:19])
    else:
        raise ManifestChanged(digest(now), world.manifest.hash)


class Performers:
    """What performs the effects of a world: the handlers that were given, and those that every engine has."""

    def __init__(
        self,
        world: Bound | None,
        handlers: Iterable[Any],
        *,
        lenient: bool,
        allow: Iterable[str],
        secrets: Secrets | Mapping[str, str] | None,
    ) -> None:
        given = _handlers(handlers)
        self._own = given if world is None else [handler.bound(world.manifest) for handler in given]
        if world is not None and not lenient:
            _refuse_missing(world, self._own)
        self._requests = Requests(allow)
        self._secrets = MappingSecrets(secrets) if isinstance(secrets, Mapping) else secrets
        if secrets is not None and not callable(getattr(secrets, "get", None)):
            raise BadCall(f"secrets= takes a dict or an object with get(name), found {type(secrets).__name__}")

    def executor(self, queries: Queries, clock: Clock, on_loop: Executor, in_threads: Executor) -> EffectsExecutor:
        """An effect of perdure has its own handler, unless somebody gives another one."""
        blobs = Blobs(queries, clock.now)
        performed: dict[Any, Any] = {Http: self._requests.perform, BlobPut: blobs.put, BlobGet: blobs.get}
        built_in = [EffectHandler(effect, function) for effect, function in performed.items()]
        handlers: list[Handler] = [*built_in, Steps(effect_name(Step), _step), *self._own]
        return EffectsExecutor(handlers, on_loop, in_threads, self._secrets)


def _step(place: str) -> Callable[..., Any] | None:
    """The function of a step by its place. A script that runs is the module that its file would be."""
    module, _, name = place.partition(":")
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    own = module == Path(script or "__main__").stem
    found = STEPS.get((module, name)) or (STEPS.get(("__main__", name)) if own else None)
    return found.function if found is not None else None


def _handlers(given: Any) -> list[EffectHandler]:
    if isinstance(given, EffectHandler) or not isinstance(given, Iterable):
        raise CallerError(f"handlers is a list of handlers, found {given!r}: write handlers=[...]")
    found = list(given)
    for handler in found:
        if not isinstance(handler, EffectHandler):
            raise CallerError(f"{handler!r} is not a handler; did you forget @perdure.effect_handler(Effect)?")
    return found


def _refuse_missing(world: Bound, handlers: Iterable[Any]) -> None:
    known = BUILT_IN | {handler.effect for handler in handlers}
    for cell in [*world.cells, *world.earlier]:
        for effect in cell.effects.values():
            if effect.performed and effect.definition.name not in known:
                raise NoHandler(effect.definition.name, cell.cell.name)


# ---- files ---------------------------------------------------------------------------------------------------------


def load_manifest(path: str | os.PathLike[str], *, limits: Mapping[str, int] | None = None) -> Bound:
    """The world of a manifest file (JSON or YAML), ready to run: `perdure.open(url, workflows=[load_manifest(path)])`.

    Each cell names its reducer, `impl: module:function`, which is imported: a cell that agrees with the manifest, or a
    plain function that takes and returns `perdure.Datum`s. limits: as those of `perdure.manifest`.
    """
    kept = limits_of(limits)
    text, manifest = _read(path)
    try:
        return Bound(manifest, limits=kept)
    except (BadDefinition, BadManifest) as error:  # it disagrees with its code
        load.locate(error, text, os.fspath(path))
        raise


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """What a manifest file says, checked; no code is imported."""
    return _read(path)[1]


def _read(path: str | os.PathLike[str]) -> tuple[str, Manifest]:
    source = os.fspath(path)
    forms = {".json": load.from_json, ".yaml": load.from_yaml, ".yml": load.from_yaml}
    read = forms.get(Path(source).suffix.lower())
    if read is None:
        raise CallerError(f"{source}: a manifest is a file that ends in .json, .yaml or .yml")
    try:
        text = Path(source).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CallerError(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise CallerError(f"{source} cannot be read: {error.strerror}") from None
    return text, read(text, source)
