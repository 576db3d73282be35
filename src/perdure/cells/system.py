"""What every world has without defining it: the definitions named `sys/...`."""

from __future__ import annotations

from typing import Final

from perdure.codec.record import Record, shape_of
from perdure.codec.schema import Schema

from . import effects
from .author import Effect, Rejected, effect_def, effect_name
from .manifest import EffectDef

_EFFECTS: Final[tuple[type[Effect], ...]] = (
    effects.Alarm,
    effects.BlobGet,
    effects.BlobPut,
    effects.Http,
    effects.PersonAsked,
    effects.Publish,
    effects.Spawn,
    effects.Step,
    effects.Task,
)

CLASSES: Final[dict[str, type[Effect]]] = {effect_name(effect): effect for effect in _EFFECTS}
EFFECTS: Final[dict[str, EffectDef]] = {name: effect_def(effect) for name, effect in CLASSES.items()}
OF_THE_KERNEL: Final = frozenset({effects.TIMER, effects.CHILD, effects.PUBLISH, effects.TASK})
"""What needs no handler."""

REJECTED: Final = Rejected.__perdure_name__


def _schemas(*kinds: type[Record]) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for kind in kinds:
        found.update(shape_of(kind).refs)
        receipt = getattr(kind, "Receipt", None)
        if receipt is not None:
            found.update(shape_of(receipt).refs)
    return {name: schema for name, schema in found.items() if name not in CLASSES}


SCHEMAS: Final[dict[str, Schema]] = _schemas(Rejected, *_EFFECTS)
