"""`perdure config`: each setting of a server, and where it comes from."""

from __future__ import annotations

from perdure.server.configuration import OPTIONS, told

from ..console import Console, define
from ..text import table
from .serve import settled


@define("config", db="settings")
def config(console: Console) -> None:
    """A flag of `perdure serve` wins over PERDURE_*, that over `[server]` of perdure.toml or `[tool.perdure.server]` of
    pyproject.toml in this folder, and that over the default. Secrets are not shown.
    """
    found, known = settled(console), {option.name: option for option in OPTIONS}
    rows = {name: (told(known[name], each.value), each.origin) for name, each in found.items()}
    document = {name: {"value": value, "origin": origin} for name, (value, origin) in rows.items()}
    console.answer(document, table([[name, _text(value), origin] for name, (value, origin) in rows.items()]))


def _text(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"
