"""What callers start: a workflow whose code is here, or one that is known by its name only."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from perdure.codec import Parameters, decode, encode, to_plain
from perdure.errors import CallerError

from .arguments import limited

R_co = TypeVar("R_co", covariant=True)


class Startable(Protocol[R_co]):
    """What a dialect's definition gives to callers."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes: ...

    def encode_plain_input(self, value: Any) -> bytes: ...

    def decode_result(self, value: bytes) -> R_co: ...


class Named:
    """A workflow that is known here by its name only: its code, and so its types, are in another process."""

    version = ""  # the newest

    def __init__(self, name: str, parameters: bytes = b"") -> None:
        self.name = name
        self._parameters = Parameters(name, parameters)

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if args:
            raise CallerError(
                f"{self.name!r} is known here by its name only: pass keyword arguments, or the workflow itself"
            )
        return self._encoded(self._parameters.bind(to_plain(kwargs)))

    def encode_plain_input(self, value: Any) -> bytes:
        return self._encoded(self._parameters.bind(to_plain(self._parameters.named(value)), json=True))

    def _encoded(self, bound: dict[str, Any]) -> bytes:
        return limited(encode(bound), f"the input of {self.name}")

    def decode_result(self, value: bytes) -> Any:
        return decode(value)
