"""What `app` knows of cells: how they become a world, the instance that a world has, who performs their effects."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from perdure.codec import digest
from perdure.errors import CallerError, ManifestChanged, NoHandler, UnclearRequest
from perdure.kernel.rules import DEFINITIONS, IN_FORCE, RULER, decode_rules
from perdure.kernel.workflows import Workflows
from perdure.ports.dialect import Beginning, Gathered, Published
from perdure.ports.executor import Handler
from perdure.ports.seen import Words

from .author import Cell, effect_name
from .bound_manifest import BoundManifest, Catalog, manifest
from .effects import BlobGet, BlobPut, Http, Step
from .handlers import EffectHandler
from .policy import POLICY, WORLD_POLICY
from .words import CellWords, WorldWords
from .world import WorldWorkflow

log = logging.getLogger("perdure")

BUILT_IN: Final[dict[str, Any]] = {"http": Http, "blob-put": BlobPut, "blob-get": BlobGet}
"""Effects that every engine performs, besides `Step`."""


class CellDialect:
    name = POLICY.noun
    catalog = staticmethod(Catalog.read)
    words: Final[Mapping[str, Words]] = {POLICY.noun: CellWords(), WORLD_POLICY.noun: WorldWords()}

    def meant(self, given: Sequence[Any]) -> Sequence[Any]:
        """The manifest, where there is one; else all cells."""
        worlds = [each for each in given if isinstance(each, BoundManifest)]
        if len(worlds) > 1:
            raise UnclearRequest(f"{len(worlds)} manifests are there; name one of them: MODULE:NAME")
        return worlds or given

    def gather(self, given: Sequence[Any]) -> Gathered:
        """All that the kernel runs of what was given. Its cells are one world."""
        world = world_of(given)
        rest = [each for each in given if not isinstance(each, Cell | BoundManifest)]
        if world is None:
            return Gathered(rest=rest, performers=Performing(None))
        cells = [*world.cells, *world.earlier]
        begin = Beginning(RULER, WorldWorkflow.version, world.manifest.bytes, (DEFINITIONS, IN_FORCE), Unchanged(world))
        return Gathered([WorldWorkflow(cells), *cells], rest, beginnings=[begin], performers=Performing(world))


DIALECT: Final = CellDialect()


def world_of(given: Iterable[Any]) -> BoundManifest | None:
    """The world that cells are; None: there are none."""
    given = list(given)
    worlds = [each for each in given if isinstance(each, BoundManifest)]
    loose = [each for each in given if isinstance(each, Cell)]
    if loose:
        worlds.append(manifest(*loose))
    if len(worlds) > 1:
        raise CallerError("a database has one world of cells: put all cells into one manifest, or list them all")
    return worlds[0] if worlds else None


class Unchanged:
    """Another manifest than the one in force is not applied by an open."""

    def __init__(self, world: BoundManifest) -> None:
        self._world = world

    def __call__(self, published: Published, known: Workflows[Any]) -> None:
        now, mine = published[DEFINITIONS], self._world.manifest
        if now is None or now == mine.bytes:
            return
        in_force = decode_rules(published[IN_FORCE])
        if all(known.exactly(name, version) is not None for name, version in in_force.versions.items()):
            log.info("the manifest in force is %s, the code has %s too", digest(now)[:19], mine.hash[:19])
        else:
            raise ManifestChanged(digest(now), mine.hash)


class Performing:
    """What performs the effects of a world: the handlers that were given, and those that every engine has."""

    def __init__(self, world: BoundManifest | None) -> None:
        self._world = world

    def __call__(
        self,
        given: Sequence[Any],
        built_in: Mapping[str, Callable[..., Any]],
        steps: Callable[[str], Handler],
        *,
        lenient: bool,
    ) -> list[Handler]:
        """An effect of perdure has its own handler, unless another one is given."""
        own = [_checked(handler) for handler in given if getattr(handler, "dialect", "") in ("", POLICY.noun)]
        for effect, count in Counter(handler.effect for handler in dict.fromkeys(own)).items():
            if count > 1:
                raise CallerError(f"{count} handlers perform {effect}: give one of them, the others would never run")
        if self._world is not None:
            own = [handler.bound(self._world.manifest) for handler in own]
            if not lenient:
                _refuse_missing(self._world, own)
        ours = [EffectHandler(effect, built_in[name]) for name, effect in BUILT_IN.items()]
        return [*ours, steps(effect_name(Step)), *own]


def _checked(handler: Any) -> EffectHandler:
    if not isinstance(handler, EffectHandler):
        raise CallerError(f"{handler!r} is not a handler; did you forget @perdure.effect_handler(Effect)?")
    return handler


def _refuse_missing(world: BoundManifest, handlers: Iterable[EffectHandler]) -> None:
    known = {*map(effect_name, [*BUILT_IN.values(), Step]), *(handler.effect for handler in handlers)}
    for cell in [*world.cells, *world.earlier]:
        for effect in cell.effects.values():
            if effect.performed and effect.definition.name not in known:
                raise NoHandler(effect.definition.name, cell.cell.name)
