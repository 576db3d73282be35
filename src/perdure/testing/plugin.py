"""The pytest plugin: the fixture `world`. It loads by itself where perdure is installed; the engine waits for use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perdure.testing.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A world of its own for each test: start workflows, advance time, send messages, script steps."""
    from perdure.testing.world import World

    with World() as world:
        yield world
