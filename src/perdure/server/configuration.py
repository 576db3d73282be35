"""Where each setting of a server comes from: a flag, PERDURE_*, a TOML file of the folder, or the default.

One table has all settings. Flags, `perdure config` and the reference are made from it. A secret never stands in a TOML
file: it comes from the environment, or from the file that `file:PATH` names.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from perdure.errors import CallerError

from .reading import no_such

Form = Literal["text", "texts", "switch", "secret"]
FILES: Final = (("perdure.toml", ("server",)), ("pyproject.toml", ("tool", "perdure", "server")))
"""The first file that has such a table counts."""

YES: Final = frozenset({"1", "true", "yes", "on"})
NO: Final = frozenset({"0", "false", "no", "off", ""})
FILE: Final = "file:"
PREFIX: Final = "PERDURE_"


class ServerOption(msgspec.Struct, frozen=True):
    """`flag`: of the command line; empty: it has none. A switch that is on by default has a flag that turns it off."""

    name: str
    form: Form
    default: Any
    help: str
    flag: str = ""
    metavar: str = ""
    env: str = ""

    @property
    def variable(self) -> str:
        return self.env or f"PERDURE_{self.name.upper()}"


OPTIONS: Final[tuple[ServerOption, ...]] = (
    ServerOption("db", "text", "", "The database.", "--db", "URL"),
    ServerOption("listen", "text", "127.0.0.1:7373", "Port 0 takes a free one.", "--listen", "HOST:PORT"),
    ServerOption("hosts", "texts", (), "A name under which browsers come; repeatable.", "--host", "NAME"),
    ServerOption("tls_cert", "text", "", "The certificate, a PEM file.", "--tls-cert", "FILE"),
    ServerOption("tls_key", "text", "", "Its key, a PEM file.", "--tls-key", "FILE"),
    ServerOption("behind_proxy", "switch", False, "A proxy in front speaks TLS.", "--behind-proxy"),
    ServerOption("queues", "texts", (), "Serve a queue, N steps at once; repeatable.", "--queue", "NAME=N"),
    ServerOption("connect", "switch", False, "No engine: the server reads and asks another process.", "--connect"),
    ServerOption("read_only", "switch", False, "Refuse every verb that changes something.", "--read-only"),
    ServerOption("redact", "texts", (), "Hide these fields of recorded values; repeatable.", "--redact", "POINTER"),
    ServerOption("ui", "switch", True, "The API alone.", "--no-ui"),
    ServerOption("oidc", "text", "", "The issuer of an OIDC provider, for logins and tokens.", "--oidc", "URL"),
    ServerOption("oidc_client", "text", "", "The name of this server at the provider.", "--oidc-client", "ID"),
    ServerOption("oidc_audience", "text", "", "Of bearer tokens; else that name.", "--oidc-audience", "ID"),
    ServerOption("oidc_actor", "text", "sub", "The claim that names the actor.", "--oidc-actor", "CLAIM"),
    ServerOption("oidc_task_roles", "text", "", "The claim with roles of tasks.", "--oidc-task-roles", "CLAIM"),
    ServerOption("oidc_grants", "texts", (), "'CLAIM=VALUE ROLE [WORKFLOWS]'; repeatable.", "--oidc-grant", "RULE"),
    ServerOption("oidc_secret", "secret", "", "The secret of the client at the provider."),
    ServerOption("secret", "secret", "", "Signs sessions; several servers share it.", env="PERDURE_SERVER_SECRET"),
)  # fmt: skip


class Configured(NamedTuple):
    """The value of a setting, and where it comes from."""

    value: Any
    origin: str


def configured(flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> dict[str, Configured]:
    """Every setting. `flags` has those that the command line gives, by name."""
    _refuse_misspelled(environ)
    file, table = read_table(folder)
    return {option.name: _one(option, flags, environ, file, table) for option in OPTIONS}


def _one(
    option: ServerOption, flags: Mapping[str, Any], environ: Mapping[str, str], file: str, table: Mapping[str, Any]
) -> Configured:
    if option.name in flags:
        return Configured(flags[option.name], f"the flag {option.flag}")
    if option.variable in environ:
        value = _from_text(option, environ[option.variable])
        return Configured(_secret(option, value, option.variable), option.variable)
    if option.name in table:
        value = _from_toml(option, table[option.name], file)
        return Configured(_secret(option, value, file), file)
    return Configured(option.default, "default")


def read_table(folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of the file that has settings, and its table; both empty if no file has one."""
    for name, path in FILES:
        try:
            table: Any = tomllib.loads((folder / name).read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise CallerError(f"{name} cannot be read: {error}") from None
        if len(path) == 1:  # a file of our own
            for key in table.keys() - {*path}:
                raise CallerError(f"{name}: {no_such('table', key, path)}; settings stand below [{path[0]}]")
        for key in path:
            table = table.get(key, {}) if isinstance(table, dict) else {}
        if table and isinstance(table, dict):
            _refuse_unknown(name, table)
            return name, table
    return "", {}


def _refuse_misspelled(environ: Mapping[str, str]) -> None:
    """A variable that is nearly the one of a setting. Others are for other commands, secrets, tests, or tools."""
    known = {option.variable.removeprefix(PREFIX): option.variable for option in OPTIONS}
    for name in environ:
        word = name.removeprefix(PREFIX)
        near = [] if word == name or word in known else get_close_matches(word, known, 1, 0.8)
        if near:
            raise CallerError(f"no setting has the variable {name}; did you mean {known[near[0]]}?")


def _refuse_unknown(file: str, table: dict[str, Any]) -> None:
    known = [option.name for option in OPTIONS]
    for key in table:
        if key not in known:
            raise CallerError(f"{file}: {no_such('setting', key, known)}")


def _from_text(option: ServerOption, text: str) -> Any:
    if option.form == "switch":
        if text.lower() not in YES | NO:
            raise CallerError(f"{option.variable} is 1 or 0, found {text!r:.40}")
        return text.lower() in YES
    if option.form == "texts":
        return tuple(part for each in text.split(";") if (part := each.strip()))
    return text


def _from_toml(option: ServerOption, value: Any, file: str) -> Any:
    expected: dict[Form, tuple[type[Any], str]] = {
        "switch": (bool, "true or false"),
        "texts": (list, "a list of texts"),
        "text": (str, "a text"),
        "secret": (str, "file:PATH"),
    }
    kind, said = expected[option.form]
    parts: list[Any] = value if isinstance(value, list) else []
    if not isinstance(value, kind) or not all(isinstance(each, str) for each in parts):
        raise CallerError(f"{file}: {option.name} is {said}, found {value!r:.60}")
    if option.form == "secret" and not value.startswith(FILE):
        raise CallerError(f"{file}: {option.name} is a secret: set {option.variable}, or write file:PATH here")
    if option.name == "db" and without_password(value) != value:
        raise CallerError(f"{file}: the URL of the database has a password: set {option.variable} instead")
    return tuple(value) if kind is list else value


def _secret(option: ServerOption, value: Any, origin: str) -> Any:
    """A secret itself, also where a file has it."""
    if option.form != "secret" or not value.startswith(FILE):
        return value
    path = Path(value.removeprefix(FILE))
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise CallerError(f"{origin}: {option.name} cannot be read from {path}: {error}") from None


def told(option: ServerOption, value: Any) -> Any:
    """A value as people may see it: no secret, no password."""
    if option.form == "secret":
        return "set" if value else "not set"
    if option.name == "db":
        return without_password(value)
    return list(value) if isinstance(value, tuple) else value


def without_password(url: str) -> str:
    """A URL as people may see it."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    login, at, place = rest.rpartition("@")
    shown = f"{scheme}://{login.partition(':')[0]}@{place}" if at else url
    return re.sub(r"([?&]password=)[^&]*", r"\1…", shown)
