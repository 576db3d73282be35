"""What a tool is: a name, a struct of parameters, and an async function that performs one call.

    class Params(msgspec.Struct):
        '''Ask the depot for a shelf.'''
        shelf: str
        floor: int = 5

    async def run(params: Params, call: ToolCall) -> Told: ...

    DEPOT = Tool("depot", Params, run)

An entry point in the group `perdure.tools` makes it known: `depot = "shop.tools:DEPOT"`. Checks of playbooks and the
reference follow from the struct. A secret may stand at any place of the parameters.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure.errors import BadCall, NotInstalled


class Told(msgspec.Struct):
    """The result of a call, and what else is told of it: `http`, `sql` or `py`."""

    result: Any = None
    more: dict[str, Any] = {}
    content_type: str = ""


class ToolError(Exception):
    """A call failed. `kind` is what rules of playbooks compare; `retryable`: another attempt may make sense."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retryable: bool = False,
        status: Any = None,
        details: Any = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.status = status
        self.details = details
        self.more = dict(more or {})

    @property
    def retry(self) -> bool | None:
        """For steps of flows: False where no other attempt of the same call can end otherwise."""
        return False if self.kind in ("bad_parameters", "blocked_address") else None

    @property
    def data(self) -> dict[str, Any]:
        """What is recorded besides the text."""
        told = {"kind": self.kind, "retryable": self.retryable, "status": self.status, "details": self.details}
        return {**told, **self.more}


class ToolCall(msgspec.Struct, frozen=True):
    """What a tool may know of its call. The key is equal for all attempts and deliveries of one visit of an action."""

    idempotency_key: str = ""
    timeout: float = 60.0  # seconds
    delivery: int = 1
    allow: tuple[str, ...] = ()  # addresses besides the public ones
    connections: Mapping[str, Any] = {}  # of the engine, by name, with the values of their secrets

    def connection(self, name: str) -> Any:
        if name not in self.connections:
            hint = "perdure.open(connections=...), perdure run --connection"
            raise ToolError("auth", f"the engine has no connection {name}; give it one: {hint}")
        return self.connections[name]


RAW: Final = msgspec.Meta(extra={"raw": True})
"""The text of this parameter is code, and no template."""

SQL: Final = msgspec.Meta(extra={"sql": True})
"""Values are bound to this text, and never written into it."""

SPLIT: Final = msgspec.Meta(extra={"split": True})
"""The text of this parameter is split into words before templates are rendered."""


class OneOf(msgspec.Struct, frozen=True):
    """Parameters of which a call has one; without `needed` it may have none."""

    keys: tuple[str, ...]
    needed: bool = True

    def refuse(self, tool: str, given: Mapping[str, Any]) -> None:
        found = [key for key in self.keys if given.get(key) is not None]
        if len(found) > 1 or (self.needed and not found):
            words = f"{', '.join(self.keys[:-1])} and {self.keys[-1]}"
            least = "one" if self.needed else "at most one"
            text = f"{tool} has {least} of {words}, found {' and '.join(found) or 'none'}"
            raise ToolError("bad_parameters", text)


class Tool:
    """See the module. Called with keyword arguments it performs the call: so it is a step for flows, too."""

    def __init__(
        self,
        name: str,
        params: type[msgspec.Struct],
        run: Callable[[Any, ToolCall], Awaitable[Told]],
        needs: tuple[str, str] | None = None,
        one_of: tuple[OneOf, ...] = (),
    ) -> None:
        """`needs`: a module that must be there, and the extra of perdure that brings it."""
        self.name = name
        self.needs = needs
        self.one_of = one_of
        self.params = params
        self.run = run
        self.__name__ = name
        self.__qualname__ = name
        self.__doc__ = params.__doc__

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    async def __call__(self, **params: Any) -> Any:
        """The result of one call. Errors are `ToolFailed`."""
        from .handler import surroundings

        return (await surroundings().perform(self, params)).result

    def require(self) -> None:
        """Raise `NotInstalled` if the tool cannot run here."""
        if self.needs is None:
            return
        module, extra = self.needs
        try:
            found = module in sys.modules or find_spec(module) is not None
        except ValueError:
            found = False
        if not found or sys.modules.get(module, self) is None:
            raise NotInstalled(f"the tool {self.name}", extra)

    def read(self, given: Mapping[str, Any]) -> Any:
        """The parameters as the struct. Raises `ToolError`."""
        unknown = sorted(set(given) - set(self.params.__struct_fields__) - {"auth"})
        if unknown:
            raise ToolError("bad_parameters", f"{self.name} has no parameter {unknown[0]}")
        for one in self.one_of:
            one.refuse(self.name, given)
        known = {key: value for key, value in given.items() if key in self.params.__struct_fields__}
        try:
            return msgspec.convert(known, self.params)
        except msgspec.ValidationError as error:
            raise ToolError("bad_parameters", f"{self.name}: {error}") from None

    def describe(self) -> dict[str, Any]:
        """Plain data for the checks of playbooks: each parameter with its types."""
        hints = get_type_hints(self.params, include_extras=True)
        fields = {}
        for field in msgspec.structs.fields(self.params):
            extra = _extra(hints[field.name])
            fields[field.encode_name] = {
                "types": sorted(_types(hints[field.name])),
                "required": field.required,
                **({"words": words} if (words := _words(hints[field.name])) else {}),
                **extra,
            }
        about = (self.params.__doc__ or "").partition("\n")[0]
        return {"about": about, "fields": fields, "one_of": [msgspec.to_builtins(one) for one in self.one_of]}

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters."""
        return msgspec.json.schema(self.params)


def _extra(hint: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if get_origin(hint) is Annotated:
        for meta in get_args(hint)[1:]:
            if isinstance(meta, msgspec.Meta):
                found.update(meta.extra or {})
                if meta.description:
                    found["about"] = meta.description
    return found


def _words(hint: Any) -> list[str]:
    """The texts that a parameter takes, where it takes no others."""
    if get_origin(hint) is Annotated:
        return _words(get_args(hint)[0])
    return [word for word in get_args(hint) if isinstance(word, str)] if get_origin(hint) is Literal else []


_NAMES: Final[dict[Any, str]] = {
    str: "string",
    bytes: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
}


def _types(hint: Any) -> set[str]:
    origin = get_origin(hint)
    if origin is Annotated:
        return _types(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return set().union(*map(_types, get_args(hint)))
    if origin is Literal:
        return set().union(*(_types(type(word)) for word in get_args(hint)))
    found = _NAMES.get(origin or hint, "any")
    return {found, "integer"} if found == "number" else {found}


OURS: Final = {
    "http": "http:HTTP",
    "postgres": "postgres:POSTGRES",
    "sqlite": "sqlite:SQLITE",
    "duckdb": "duckdb:DUCKDB",
    "python": "python:PYTHON",
    "shell": "shell:SHELL",
}

GROUP: Final = "perdure.tools"


@cache
def find(name: str) -> Tool:
    """The tool of a name: ours, or one that a package brings."""
    from importlib import import_module

    if name in OURS:
        module, _, attribute = OURS[name].partition(":")
        tool: Tool = getattr(import_module(f"perdure.tools.kinds.{module}"), attribute)
        return tool
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        if point.name == name:
            loaded: Tool = point.load()
            return loaded
    raise BadCall(f"there is no tool {name}; known are {', '.join(names())}")


@cache
def names() -> tuple[str, ...]:
    from importlib.metadata import entry_points

    return tuple(sorted({*OURS, *(point.name for point in entry_points(group=GROUP))}))


def described() -> dict[str, dict[str, Any]]:
    """All tools, as the checks of playbooks take them."""
    return {name: find(name).describe() for name in names()}
