"""The pytest plugin: the fixture `world`, and `*.test.yaml` as tests of playbooks.

It loads by itself where perdure is installed; the engine waits for use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perdure.testing.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A world of its own for each test: start workflows, advance time, send messages, script steps."""
    from perdure.testing.world import World

    with World() as world:
        yield world


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name.endswith(".test.yaml"):
        return _PlaybookTests.from_parent(parent, path=file_path)
    return None


class _PlaybookTests(pytest.File):
    def collect(self) -> Iterable[pytest.Item]:
        from perdure.testing.playbooks import cases_of

        for case in cases_of(self.path):
            yield _PlaybookTest.from_parent(self, name=case.name, case=case)


class _PlaybookTest(pytest.Item):
    def __init__(self, *, case: Any, **given: Any) -> None:
        super().__init__(**given)
        self._case = case

    def runtest(self) -> None:
        problems = self._case.run()
        if problems:
            raise AssertionError("\n".join(problems))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, AssertionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
