"""Where the values of secrets come from, and how they get into a call: at its execution, and nowhere before.

`inject` gives the call its values, and a `Redaction` (`redaction.py`) that takes them out of all that comes back.
"""

from __future__ import annotations

import dataclasses
import hmac
import os
from collections.abc import Callable, Iterable, Mapping
from operator import is_not
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.codec import digest, is_text
from perdure.errors import BadCall, PerdureError, SecretChanged, SecretMissing
from perdure.ports.secrets import Secret, SecretParts, Secrets

from .redaction import Redaction

PREFIX: Final = "PERDURE_SECRET_"
SCALARS: Final = frozenset((str, int, float, bool, bytes, type(None)))
NO_SECRETS: Final = Redaction({})
"""Most calls have none."""


def inject(value: Any, secrets: Secrets) -> tuple[Any, Redaction]:
    """The value with the text of its secrets in place of the references, and what hides them again.

    It looks into lists, tuples, dicts, dataclasses and msgspec structs, and copies those that hold a reference.
    """
    injection = _Injection(secrets)
    injected = injection.into(value)
    return injected, Redaction(injection.revealed) if injection.revealed else NO_SECRETS


class _Injection:
    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self.revealed: dict[str, str] = {}

    def into(self, value: Any) -> Any:
        """The same object where nothing was put into it."""
        if type(value) in SCALARS:
            return value
        match value:
            case Secret():
                return value.prefix + self._reveal(value)
            case SecretParts(parts=parts):
                return "".join(each if isinstance(each, str) else self.into(each) for each in parts)
            case dict():
                items = {name: self.into(item) for name, item in value.items()}
                return items if any(map(is_not, items.values(), value.values())) else value
            case list() | tuple():
                found = [self.into(item) for item in value]
                return _like(value, found) if any(map(is_not, found, value)) else value
            case msgspec.Struct():
                return self._fields(value, value.__struct_fields__, msgspec.structs.replace)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                names = [field.name for field in dataclasses.fields(value) if field.init]
                return self._fields(value, names, dataclasses.replace)
            case _:
                return value

    def _fields(self, value: Any, names: Iterable[str], replace: Callable[..., Any]) -> Any:
        fields = {name: getattr(value, name) for name in names}
        changed = {name: item for name, old in fields.items() if (item := self.into(old)) is not old}
        try:
            return replace(value, **changed) if changed else value
        except Exception:  # not chained: its text may have the value
            raise BadCall(
                f"{type(value).__qualname__} refuses the text of a secret in: {', '.join(changed)}; "
                "its own checks must take a text where they take a reference"
            ) from None

    def _reveal(self, secret: Secret) -> str:
        """Asked for once in a call, so that two references to one secret are the same value, and both are hidden."""
        if secret.name not in self.revealed:
            self.revealed[secret.name] = self._asked_for(secret.name)
        value = self.revealed[secret.name]
        if secret.digest is not None and not hmac.compare_digest(digest(value.encode()), secret.digest):
            raise SecretChanged(secret.name)
        return value

    def _asked_for(self, name: str) -> str:
        """A source is anybody's code. What it raises is not chained and not quoted: its text may have the value."""
        try:
            value: Any = self._secrets.get(name)
        except PerdureError:
            raise
        except Exception as error:
            raise SecretMissing(name, f"its source raised {type(error).__name__}, which may quote it") from None
        if not isinstance(value, str):
            raise SecretMissing(name, f"its source gave {type(value).__name__}, which is no text")
        if not is_text(value):
            raise SecretMissing(name, "it is no valid Unicode")
        return _present(name, value, "")


def _like(value: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    if isinstance(value, list):
        return items
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


class MappingSecrets:
    """Secrets that were fetched before, and for tests."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def get(self, name: str) -> str:
        return _present(name, self._values.get(name), "it is not in the mapping")

    def __repr__(self) -> str:
        return f"<MappingSecrets {' '.join(self._values)}>"


class EnvironmentSecrets:
    """`stripe-key` is in `PERDURE_SECRET_STRIPE_KEY`: in upper case, with _ for . and -."""

    def __init__(self, prefix: str = PREFIX) -> None:
        self._prefix = prefix

    def get(self, name: str) -> str:
        variable = self._prefix + name.upper().replace("-", "_").replace(".", "_")
        return _present(name, os.environ.get(variable), f"the environment variable {variable} is not set")


class FileSecrets:
    """`stripe-key` is the file of that name in a directory, as container platforms mount them.

    Read at every use, so a rotated secret is seen at once. One line break at its end is not part of it.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    def get(self, name: str) -> str:
        file = self._directory / name
        try:
            text = file.read_bytes().decode()
        except FileNotFoundError:
            raise SecretMissing(name, f"there is no file {file}") from None
        except OSError as error:
            raise SecretMissing(name, f"the file {file} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SecretMissing(name, f"the file {file} is not UTF-8") from None
        return _present(name, text.removesuffix("\n").removesuffix("\r"), "")


def _present(name: str, value: str | None, otherwise: str) -> str:
    if value is None:
        raise SecretMissing(name, otherwise)
    if not value:
        raise SecretMissing(name, "it is there, but empty")
    return value
