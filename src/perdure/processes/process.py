"""A process: the definition that its parts make, with its problems, bytes and hash."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.codec import digest, encode
from perdure.errors import BadCall, BadProcess, Problem
from perdure.kernel.retention import Retention

from . import model
from .author import Reference, Steps, Task, caller
from .compile import messages_of
from .fields import Lifted
from .workflow import Runnable

if TYPE_CHECKING:
    from perdure.drawing.draw import Format
    from perdure.drawing.model import Direction

    from .check import Known


class Process(Runnable):
    """A process: a name, a version and a nested value of steps. See `perdure.processes` for its parts."""

    def __init__(
        self,
        name: str,
        version: str,
        steps: Steps,
        *,
        title: str = "",
        description: str = "",
        labels: Mapping[str, str] | None = None,
        input: Any = None,
        output: Any = None,
        state_schema: Any = None,
        state: Mapping[str, Any] | None = None,
        reference: Reference | None = None,
        roles: Sequence[str] = (),
        managers: Sequence[str] = (),
        tasks: Sequence[Task] = (),
        functions: Mapping[str, int] | None = None,
        unhandled: Literal["stuck", "fail"] = "stuck",
        limits: Mapping[str, int] | None = None,
        retention: Retention | None = None,
    ) -> None:
        document = {
            "format": model.FORMAT,
            "name": name,
            "version": version,
            "title": title,
            "description": description,
            "labels": labels,
            "input": input,
            "output": output,
            "state_schema": state_schema,
            "state": {key: Lifted(value) for key, value in state.items()} if isinstance(state, Mapping) else state,
            "reference": reference,
            "roles": roles,
            "managers": managers,
            "tasks": tasks,
            "steps": steps,
            "requires": {"functions": {} if functions is None else functions},
            "unhandled": unhandled,
            "limits": limits,
            "retention": retention,
        }
        self._begin(document, caller(), None)

    def _begin(self, document: Any, where: str, locate: Callable[[str], str] | None) -> None:
        Runnable.__init__(self)
        data, reader = model.read(document)
        self._data = data if reader.problems else _copied(data)
        self._form = tuple(reader.problems)
        self.children = tuple(reader.workflows)
        """Workflows that its steps were given themselves: a test runs them too."""
        self._places = {model.spelled(path): place for path, place in reader.places.items()}
        self._where = where
        self._locate = locate

    @classmethod
    def of(cls, document: Any, where: str = "", locate: Callable[[str], str] | None = None) -> Process:
        """The process of a document from JSON, YAML or stored bytes. `locate` gives the place of a path in its text."""
        process = cls.__new__(cls)
        process._begin(document, where, locate)
        return process

    @property
    def name(self) -> str:
        return str(self._data.get("name", "a process without a name"))

    @property
    def number(self) -> str:
        """The version that the author gave it, MAJOR.MINOR.PATCH."""
        return str(self._data.get("version", "without a version"))

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, errors first. A process with an error cannot run."""
        return self.problems_with()

    def problems_beside(self, values: Collection[Any], workflows: Collection[str]) -> tuple[Problem, ...]:
        """The problems, with those of parts that are not among the values of its modules. An engine may be given
        transports, functions and workflows of other modules: without them there are warnings. Without values these are
        not judged.
        """
        from .check import ELSEWHERE, Known
        from .dialect import is_step
        from .functions import Transport, UserFunction

        if not values:
            return self.problems_with(Known(steps=is_step))
        functions = {each.name: each.version for each in values if isinstance(each, UserFunction)}
        transports = {each.name for each in values if isinstance(each, Transport)}
        names = {*workflows, *(each.name for each in self.children)}
        found = self.problems_with(Known(functions, transports, names, is_step))
        told = [
            each._replace(severity="warning") if ELSEWHERE.match(f"{each.code} {each.where}") else each
            for each in found
        ]
        return tuple(sorted(told, key=lambda each: each.severity != "error"))

    def problems_with(self, known: Known | None = None) -> tuple[Problem, ...]:
        """The problems, with those of parts that an engine does not have."""
        from .check import ENDLESS, Known, check  # it reads every expression: only when it is asked for

        children = [each for each in self.children if isinstance(each, Process)]
        ending = {each.name for each in children if all(problem.code != ENDLESS for problem in each.problems)}
        found = [*self._form, *check(self._data, (known or Known())._replace(ending=ending))]
        placed = [each._replace(where=self._placed(each.where)) for each in dict.fromkeys(found)]
        return tuple(sorted(placed, key=lambda each: each.severity != "error"))

    def _placed(self, path: str) -> str:
        """The path of a problem, with the place of the part that it is in."""
        inside = [
            part for part in self._places if path.startswith(part) and path[len(part) :][:1] in ("", ".", "[", "/")
        ]
        place = self._places[max(inside, key=len)] if inside else self._where
        if self._locate is not None:
            place = self._locate(path)
        return f"{path} ({place})" if place else path

    def require_valid(self) -> None:
        """Raise `BadProcess` with all problems, if one of them is an error."""
        errors = tuple(each for each in self.problems if each.severity == "error")
        if errors:
            raise BadProcess(f"{self.name} {self.number}", errors)

    @property
    def data(self) -> dict[str, Any]:
        """The definition as plain data, each time a copy. Raises `BadProcess` if it has errors."""
        self.require_valid()
        return _copied(self._data)

    @cached_property
    def bytes(self) -> bytes:
        """The one canonical encoding of the definition."""
        return encode(self.data)

    @cached_property
    def hash(self) -> str:
        return digest(self.bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Process) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        return f"<Process {self.name} {self.number}>"

    def message_schemas(self) -> dict[str, list[dict[str, Any]]]:
        """The messages that its instances take, by name, with the schema of each step that receives it."""
        return messages_of(self.data)

    def source(self) -> str:
        """The definition as Python of `perdure.processes`. Running it gives the same bytes."""
        from .source import source

        return source(self.data)

    def export(self, format: Literal["json", "yaml", "python"] = "json") -> str:
        """The definition as text; loading it gives the same hash."""
        from .load import to_json, to_yaml

        if format == "python":
            return self.source()
        if format not in ("json", "yaml"):
            raise BadCall(f"format={format!r:.80}: a process is exported as json, yaml or python")
        return to_yaml(self.data) if format == "yaml" else to_json(self.data)

    def draw(self, format: Format = "svg", direction: Direction = "LR") -> str:
        """The definition as a picture: SVG, Mermaid or JSON."""
        from perdure.drawing import draw

        from .blocks import blocks

        return draw(blocks(self.data), format, direction, title=f"{self.name} {self.number}")


def _copied(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(data)
    return found
