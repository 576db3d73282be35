import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.world import World


@pytest.fixture
def world(tmp_path, monkeypatch):
    with inside(tmp_path, monkeypatch):
        world = World(tmp_path)
        yield world
        world.close()


@contextmanager
def inside(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current directory is the world's; what is imported from it is forgotten again."""
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(directory) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
