"""A call as recorded data: arguments by parameter name.

Two spellings of one call (positional or by name, a default given or left out) are the same call and have the
same bytes. A call that the function would refuse is refused here, before anything is recorded.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Self, Union

from perdure.codec.converters.frame import Converter, Mismatch, converter
from perdure.codec.converters.records import hints_of
from perdure.codec.parameters import Way, described, not_taken
from perdure.codec.values import encode
from perdure.errors import NotConvertible, NotPlain

_EMPTY: Final = inspect.Parameter.empty
_POSITIONAL_ONLY: Final = inspect.Parameter.POSITIONAL_ONLY
_POSITIONAL: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_REST: Final = inspect.Parameter.VAR_POSITIONAL
_NAMED: Final = inspect.Parameter.KEYWORD_ONLY
_REST_NAMED: Final = inspect.Parameter.VAR_KEYWORD


class Signature:
    """How a function is called, and how its arguments and its result are recorded."""

    def __init__(self, fn: Callable[..., Any], skip_first: bool = False) -> None:
        self.name: str = getattr(fn, "__name__", type(fn).__name__)
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())[1 if skip_first else 0 :]
        self._signature = signature.replace(parameters=parameters)
        function = _function_of(fn)
        hints = hints_of(function, _enclosing(function))
        self._kinds = {parameter.name: parameter.kind for parameter in parameters}
        self._converters = {
            parameter.name: _converter_of(parameter, hints.get(parameter.name, Any)) for parameter in parameters
        }
        self._defaults = {p.name: p.default for p in parameters if p.default is not _EMPTY}
        self._result = converter(hints.get("return", Any))
        # Most functions take named parameters only: those are bound without the machinery of `inspect`.
        self._simple = all(kind is _POSITIONAL or kind is _NAMED for kind in self._kinds.values())
        self._positional = [name for name, kind in self._kinds.items() if kind in (_POSITIONAL, _POSITIONAL_ONLY)]

    @classmethod
    def of(cls, fn: Callable[..., Any], skip_first: bool = False) -> Self:
        """The signature of a function, without its first parameter (the context) if `skip_first`."""
        return _cached(cls, fn, skip_first)  # type: ignore[return-value,arg-type]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The plain data of a call, by parameter name, with defaults."""
        plain: dict[str, Any] = {}
        name = ""
        try:
            for name, value in self._named(args, kwargs).items():
                plain[name] = _plain(self._converters[name], value)
        except Mismatch as mismatch:
            raise mismatch.at(name).error(self.name) from None
        except NotPlain as error:
            raise NotPlain(f"$.{name}{error.path[1:]}", error.found, error.advice) from None
        except RecursionError:
            raise NotPlain(f"$.{name}", "a value nested too deeply", "flatten it; check for a cycle") from None
        return plain

    def defaults(self) -> dict[str, Any]:
        """The plain data of the arguments that a call may leave out. One that cannot be recorded must be given."""
        recordable: dict[str, Any] = {}
        for name, value in self._defaults.items():
            with suppress(Mismatch, NotPlain, RecursionError):
                plain = self._converters[name].to(value)
                encode(plain)
                recordable[name] = plain
        return recordable

    def parameters(self) -> bytes:
        """The parameters as canonical bytes, for `Parameters` to check a call where the code is not."""
        ways: dict[Any, Way] = {_REST: "positional", _REST_NAMED: "named"}
        defaults = self.defaults()
        return encode(
            [
                described(
                    name,
                    ways.get(kind, "optional" if name in self._defaults else "needed"),
                    self._converters[name],
                    defaults,
                )
                for name, kind in self._kinds.items()
            ]
        )

    def bind_plain(self, value: Any) -> dict[str, Any]:
        """The plain data of a call that a person wrote as JSON.

        A dict is arguments by name, a list arguments by position, None no argument, and anything else the
        only one.
        """
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if isinstance(value, dict):
            kwargs = value
        elif isinstance(value, list | tuple):
            args = tuple(value)
        elif value is not None or self._takes_one():
            args = (value,)
        self._named(args, kwargs)  # refuses a wrong call
        given = self._signature.bind(*args, **kwargs).arguments
        values: dict[str, Any] = {}
        misfits: list[NotConvertible] = []
        for name, item in given.items():
            try:
                values[name] = self._read(name, list(item) if self._kinds[name] is _REST else item, json=True)
            except NotConvertible as misfit:
                misfits.append(misfit)
        if misfits:
            raise misfits[0].beside(misfits[1:])
        return self.bind(*self._spread(values))

    def call_args(self, plain: Mapping[str, Any], strict: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a recorded call, converted by the annotations of the code as it is now.

        A parameter that the code has gained takes its default; what it no longer takes is left out. `strict`: the call
        is new, so what the code does not take is refused.
        """
        if strict and not plain.keys() <= self._kinds.keys():
            raise self._not_taken(plain.keys() - self._kinds.keys())
        values: dict[str, Any] = {}
        for name, kind in self._kinds.items():
            if name in plain:
                values[name] = self._read(name, plain[name], False)
            elif name not in self._defaults and kind not in (_REST, _REST_NAMED):
                raise NotConvertible(f"$.{name}", self._converters[name].label, "nothing", self.name)
        return self._spread(values)

    def result_to_plain(self, value: Any) -> Any:
        """The plain data of what the function returned."""
        try:
            return self._result.to(value)
        except Mismatch as mismatch:
            raise mismatch.error(f"the result of {self.name}") from None
        except RecursionError:
            raise NotPlain("$", "a value nested too deeply", "flatten it; check for a cycle") from None

    def result_from_plain(self, plain: Any) -> Any:
        """What the function returned, from its plain data."""
        try:
            return self._result.read(plain, False)
        except Mismatch as mismatch:
            raise mismatch.error(f"the result of {self.name}") from None

    # ---- binding -------------------------------------------------------------------------------------------

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, with defaults: as `inspect` does it, but fast for the usual call."""
        if not kwargs and len(args) == len(self._positional) == len(self._kinds):
            return dict(zip(self._positional, args, strict=False))
        if self._simple and len(args) <= len(self._positional):
            named = {**self._defaults, **dict(zip(self._positional, args, strict=False)), **kwargs}
            given_twice = any(name in kwargs for name in self._positional[: len(args)])
            if named.keys() == self._kinds.keys() and not given_twice:
                return named
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._wrong_call(error, args, kwargs) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _wrong_call(self, error: TypeError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NotConvertible:
        """In words that follow on 'found'. A name that it does not take says more than the one that is missing then."""
        takes_any = _REST_NAMED in self._kinds.values()
        strange = [name for name in kwargs if name not in self._kinds and not takes_any]
        parameter = _quoted(str(error))
        if strange or (parameter and parameter not in self._kinds):
            return self._not_taken(strange or [parameter])
        if not parameter:
            found = f"{len(args)} arguments by position"
        elif self._kinds[parameter] is inspect.Parameter.POSITIONAL_ONLY and parameter in kwargs:
            found = f"an argument {parameter!r} by name, which it takes by position"
        elif parameter in kwargs:
            found = f"two values for {parameter!r}"
        else:
            found = f"no argument {parameter!r}"
        path = f"$.{parameter}" if parameter else "$"
        return NotConvertible(path, f"a call {self.name}{self._shown()}", found, self.name)

    def _not_taken(self, names: Collection[str]) -> NotConvertible:
        found = not_taken(names, self._kinds)
        rest = [name for name, kind in self._kinds.items() if kind is _REST_NAMED]
        if rest:
            found += f"; where it is started by its name, others are passed together: {rest[0]}={{...}}"
        return NotConvertible(f"$.{min(names)}", f"a call {self.name}{self._shown()}", found, self.name)

    def _shown(self) -> str:
        return str(self._signature.replace(return_annotation=inspect.Signature.empty))

    def _takes_one(self) -> bool:
        return len(self._kinds) > len(self._defaults)

    def _read(self, name: str, plain: Any, json: bool) -> Any:
        try:
            return self._converters[name].read(plain, json)
        except Mismatch as mismatch:
            raise mismatch.at(name).error(self.name) from None
        except RecursionError:
            raise NotConvertible(f"$.{name}", "data of sensible depth", "a value nested too deeply") from None

    def _spread(self, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments of a call with these values."""
        if len(values) == len(self._positional) == len(self._kinds):
            return tuple(values.values()), {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_name = False  # once a parameter is left to its default, what follows must be named
        for name, kind in self._kinds.items():
            if name not in values:
                by_name = True
            elif kind is _REST:
                args.extend(values[name])
            elif kind is _REST_NAMED:
                kwargs.update(values[name])
            elif kind is _NAMED or (by_name and kind is _POSITIONAL):
                kwargs[name] = values[name]
            else:
                args.append(values[name])
        return tuple(args), kwargs


def _plain(converter: Converter, value: Any) -> Any:
    """The plain data of an argument, which may be given in its recorded form: `{"sku": "a"}` for an `Item`.

    Raises the `Mismatch` that is deeper in the value: it names the field.
    """
    try:
        return converter.to(value)
    except Mismatch as mismatch:
        if type(value) not in (dict, list, str):
            raise
        try:
            plain = converter.to(converter.read(value, False))
        except Mismatch as other:
            raise (other if len(other.path) > len(mismatch.path) else mismatch) from None
        if not _has_all(plain, value):
            raise
        return plain


def _has_all(plain: Any, given: Any) -> bool:
    """Whether nothing was left out that was given: a field that a type does not have, for instance."""
    if isinstance(given, dict):
        return isinstance(plain, dict) and all(key in plain and _has_all(plain[key], given[key]) for key in given)
    if isinstance(given, list):
        return isinstance(plain, list) and len(plain) == len(given) and all(map(_has_all, plain, given))
    return True


@functools.lru_cache(maxsize=4096)
def _cached(cls: type[Signature], fn: Callable[..., Any], skip_first: bool) -> Signature:
    return cls(fn, skip_first)


def _converter_of(parameter: inspect.Parameter, annotation: Any) -> Converter:
    if parameter.kind is _REST:
        return converter(tuple[annotation, ...])
    if parameter.kind is _REST_NAMED:
        return converter(dict[str, annotation])
    if parameter.default is None and annotation is not Any:
        # `x: int = None` is an old spelling of `x: int | None = None`.
        return converter(Union[annotation, None])  # noqa: UP007
    return converter(annotation)


def _function_of(fn: Any) -> Any:
    """The function that holds the annotations of a callable."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    return fn if inspect.isroutine(fn) or inspect.isclass(fn) else type(fn).__call__


def _enclosing(fn: Callable[..., Any]) -> dict[str, Any] | None:
    """Names of the enclosing function that this one uses: classes defined there may be in its annotations."""
    code, cells = getattr(fn, "__code__", None), getattr(fn, "__closure__", None)
    if code is None or not cells:
        return None
    names: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def _quoted(message: str) -> str:
    parts = message.split("'")
    return parts[1] if len(parts) == 3 else ""
