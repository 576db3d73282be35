import sys

import pytest

from tests.cli.world import World


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The current directory is the world's; what is imported from it is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    world = World(tmp_path)
    before = set(sys.modules)
    yield world
    world.close()
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
