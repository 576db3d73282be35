"""The parameters of a function as recorded data: a call by name is checked where the code of the function is not.

`described` writes them, and a database keeps them with each workflow. `Parameters` reads them and checks a call. It
knows the names, the defaults, and the types that are plain data; what else a type demands is checked where the code is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal

from perdure.codec.converters.frame import PLAIN_SCALARS, Converter, Mismatch, converter, did_you_mean
from perdure.codec.values import decode
from perdure.errors import CallerError, NotConvertible

Way = Literal["needed", "optional", "positional", "named"]
"""How a parameter is given; the last two take any number of arguments: `*args` and `**kwargs`."""

KINDS: Final = {kind.__name__: kind for kind in PLAIN_SCALARS}


def described(name: str, way: Way, convert: Converter, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """One parameter as plain data. `defaults`: those that can be recorded."""
    kinds = sorted(kind.__name__ for kind in convert.kinds) if convert.kinds <= PLAIN_SCALARS else []
    form: dict[str, Any] = {"name": name, "way": way, "type": convert.label, "kinds": kinds}
    return {**form, "default": defaults[name]} if name in defaults else form


_JSON: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "NoneType": "null"}


def form_of(data: bytes) -> dict[str, Any]:
    """The JSON Schema of the input that recorded parameters ask for; of unknown ones it takes anything."""
    if not data:
        return {}
    known = decode(data)
    fields = {each["name"]: _field(each) for each in known if each["way"] != "named"}
    open = any(each["way"] == "named" for each in known)
    required = [each["name"] for each in known if each["way"] == "needed"]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": open}


def _field(each: Mapping[str, Any]) -> dict[str, Any]:
    kinds = each["kinds"]
    types = [_JSON[kind] for kind in kinds] if all(kind in _JSON for kind in kinds) else []
    found: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types else {}
    if each["way"] == "positional":
        found = {"type": "array"}
    return {**found, "title": each["name"], "description": each["type"]} | (
        {"default": each["default"]} if "default" in each else {}
    )


def not_taken(names: Collection[str], known: Iterable[str]) -> str:
    """In words that follow on 'found'."""
    first, *others = sorted(names)
    if others:
        return f"the arguments {', '.join(map(repr, sorted(names)))}, which it does not take"
    return f"an argument {first!r} that it does not take{did_you_mean(first, known)}"


class Parameters:
    """What is known of a function by its recorded parameters. `data` is empty where nothing is."""

    def __init__(self, function: str, data: bytes) -> None:
        self._function = function
        self._known: dict[str, dict[str, Any]] | None = {each["name"]: each for each in decode(data)} if data else None

    def bind(self, plain: Mapping[str, Any], json: bool = False) -> dict[str, Any]:
        """The recorded form of a call by name, with defaults. `json`: the arguments came as JSON."""
        known = self._known
        if known is None:
            return dict(plain)
        given = dict(plain)
        for name, each in known.items():
            if each["way"] == "named" and name not in given:
                given[name] = {other: given.pop(other) for other in plain if other not in known}
        strange = given.keys() - known.keys()
        if strange:
            raise self._wrong(min(strange), not_taken(strange, known))
        bound: dict[str, Any] = {}
        misfits: list[NotConvertible] = []
        for name, each in known.items():
            if name in given:
                try:
                    bound[name] = self._checked(name, given[name], json)
                except NotConvertible as misfit:
                    misfits.append(misfit)
            elif "default" in each:
                bound[name] = each["default"]
            elif each["way"] == "needed":
                misfits.append(self._wrong(name, f"no argument {name!r}"))
            elif each["way"] == "positional":
                bound[name] = []
        if misfits:
            raise misfits[0].beside(misfits[1:])
        return bound

    def named(self, value: Any) -> Mapping[str, Any]:
        """A value that came as JSON, as arguments by name: what is no object is the only argument."""
        if isinstance(value, dict):
            return value
        if self._known is not None and len(self._known) == 1 and not isinstance(value, list):
            ((name, each),) = self._known.items()
            if each["way"] in ("needed", "optional"):
                return {name: value}
        parameters = "" if self._known is None else f" {self._shown()}"
        text = (
            f"the input of {self._function!r} must be a JSON object of its parameters{parameters}, found {value!r:.200}"
        )
        raise CallerError(text)

    def _checked(self, name: str, value: Any, json: bool) -> Any:
        kinds = [KINDS[each] for each in self._known[name]["kinds"] if each in KINDS]  # type: ignore[index]
        if not kinds or type(value) in kinds:
            return value
        try:
            if len(kinds) == 1:
                return converter(kinds[0]).read(value, json)
            converter(Any).refuse(value)
        except Mismatch as mismatch:
            label = self._known[name]["type"]  # type: ignore[index]
            raise Mismatch(label, mismatch.found).at(name).error(self._function) from None

    def _wrong(self, name: str, found: str) -> NotConvertible:
        return NotConvertible(f"$.{name}", f"a call {self._function}{self._shown()}", found, self._function)

    def _shown(self) -> str:
        stars = {"positional": "*", "named": "**"}
        shown = [
            f"{stars.get(each['way'], '')}{name}: {each['type']}"
            + (f" = {each['default']!r:.60}" if "default" in each else "")
            for name, each in (self._known or {}).items()
        ]
        return f"({', '.join(shown)})"
