"""What an engine has registered: workflows by name and version, and which of them an instance runs on.

A new instance runs on the newest version, unless its start asks for another one. From then on it runs on the version
that it started with; where that is not registered, on the newest. Where only older ones are, it is left alone.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from perdure.errors import CallerError, PerdureError

from .mailbox import Refused

OWN: Final = "perdure."
"""What the names of built-in workflows begin with."""

_NUMBERS: Final = re.compile("([0-9]+)")


class Versioned(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


V = TypeVar("V", bound=Versioned)


class Workflows(Generic[V]):
    """Any number of versions of each name. The same definition may come twice; another one of its version may not."""

    def __init__(self, workflows: Iterable[V] = ()) -> None:
        self._versions: dict[str, dict[str, V]] = {}
        for workflow in workflows:
            versions = self._versions.setdefault(workflow.name, {})
            if versions.setdefault(workflow.version, workflow) != workflow:
                raise CallerError(
                    f"two workflows are named {workflow.name!r} and have version {workflow.version!r}: "
                    "give the newer one another version=..., or one of them another name=..."
                )
        self._newest = {name: versions[max(versions, key=in_order)] for name, versions in self._versions.items()}
        actives = workflows.actives if isinstance(workflows, Workflows) else {}
        self.actives: dict[str, str] = dict(actives)
        """Versions that were activated, by name. Of the other names the newest version is active."""
        self.unavailable: dict[str, PerdureError] = {}
        """Why a workflow of a name was removed."""

    def activate(self, name: str, version: str) -> None:
        """New instances run on this version, not on the newest."""
        self.actives[name] = version

    def active(self, name: str) -> V | None:
        """What a new instance runs on that asks for no version."""
        return (self.exactly(name, self.actives[name]) if name in self.actives else None) or self._newest.get(name)

    def replace(self, workflow: V) -> None:
        """Register newer code of a version, or one more."""
        versions = self._versions.setdefault(workflow.name, {})
        versions[workflow.version] = workflow
        self._newest[workflow.name] = versions[max(versions, key=in_order)]

    def remove(self, workflow: V, error: PerdureError) -> None:
        """A workflow cannot run here, whatever its code says."""
        self.unavailable[workflow.name] = error
        versions = self._versions.get(workflow.name, {})
        kept = {version: found for version, found in versions.items() if found is not workflow}
        if kept:
            self._versions[workflow.name] = kept
            self._newest[workflow.name] = kept[max(kept, key=in_order)]
        elif versions:
            del self._versions[workflow.name], self._newest[workflow.name]

    def newest(self, name: str) -> V | None:
        return self._newest.get(name)

    def exactly(self, name: str, version: str) -> V | None:
        """Of a version with a hash behind it (`1.2.0+93dca1`) the part before the plus is enough."""
        versions = self._versions.get(name, {})
        found = versions.get(version)
        if found is None and version and "+" not in version:
            found = next((versions[each] for each in versions if each.startswith(f"{version}+")), None)
        return found

    def of(self, name: str, version: str) -> V | None:
        """What an instance runs on that started with this version; None: nothing here, or only older versions."""
        newest = self._newest.get(name)
        if not version:
            return self.active(name)
        if newest is None or newest.version == version:
            return newest
        exact = self.exactly(name, version)
        return exact or (newest if in_order(newest.version) > in_order(version) else None)

    def versions(self, name: str) -> list[str]:
        """The oldest first."""
        return sorted(self._versions.get(name, ()), key=in_order)

    def several(self, name: str) -> bool:
        """Whether there is more than one version."""
        return len(self._versions.get(name, ())) > 1

    def names(self) -> list[str]:
        """Of users' workflows: what people want to read."""
        return sorted(name for name in self._newest if not name.startswith(OWN))

    def refusal(self, name: str, version: str = "", *, exact: bool = True) -> Refused | None:
        """Why nothing of this name can run here, in this version if one is given; `exact`: in no newer one either."""
        if name not in self._newest:
            known = ", ".join(each for each in self.names() if not each.startswith(OWN)) or "none"
            reason = f"no workflow is named {name!r} here; registered: {known}; register it: workflows=[...]"
            return Refused("unknown-workflow", reason)
        if version and self.exactly(name, version) is None and (exact or self.of(name, version) is None):
            known = ", ".join(map(repr, self.versions(name)))
            if not exact:
                known += "; older code is not used: register that version, or a newer one"
            return Refused("unknown-version", f"workflow {name!r} has no version {version!r} here; registered: {known}")
        return None

    def __contains__(self, name: str) -> bool:
        return name in self._newest

    def __len__(self) -> int:
        return sum(map(len, self._versions.values()))

    def __iter__(self) -> Iterator[V]:
        for versions in self._versions.values():
            yield from versions.values()


def in_order(version: str) -> tuple[list[tuple[int, str]], str]:
    """The natural order of versions: numbers in them count as numbers (2 before 10, 1.9 before 1.10), the rest as text.

    A version that goes on where another ends comes after it: 1.0 before 1.0.1. The text decides what is left (1, 01).
    """
    texts_and_numbers = _NUMBERS.split(version)  # a text, perhaps empty, before each number and after the last
    parts = [(0, part) for part in texts_and_numbers]
    for place in range(1, len(parts), 2):
        digits = parts[place][1].lstrip("0")
        parts[place] = (len(digits), digits)  # as numbers compare, however long they are
    return parts, version
