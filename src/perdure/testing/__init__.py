"""For your tests and ours. `World`, `crash_test` and `replay` test workflows; the rest tests perdure itself.

With pytest there is a fixture `world`, without any import: see `plugin.py`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.testing.cells import OpenEffect, Reduced, reduce
    from perdure.testing.crashes import CrashReport, crash_test
    from perdure.testing.histories import replay
    from perdure.testing.steps import Run
    from perdure.testing.world import World, WorldHandle

_HOME = {
    "CrashReport": "crashes",
    "OpenEffect": "cells",
    "Reduced": "cells",
    "Run": "steps",
    "World": "world",
    "WorldHandle": "world",
    "crash_test": "crashes",
    "reduce": "cells",
    "replay": "histories",
}

__all__ = ["CrashReport", "OpenEffect", "Reduced", "Run", "World", "WorldHandle", "crash_test", "reduce", "replay"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'perdure.testing' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"perdure.testing.{_HOME[name]}"), name)
    return value
