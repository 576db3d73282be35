"""The message `ctx`: a person or another system changes keys of ctx."""

from __future__ import annotations

from typing import Any

from .kinds import WORDS, wrong_type
from .problem import meant
from .scope import Compiler


def refusal(ctx_version: int, compiler: Compiler, body: Any) -> str:
    """Why a patch is refused; empty: it is not."""
    if not isinstance(body, dict) or not isinstance(body.get("set"), dict) or not body["set"]:
        return 'a patch is {"set": {key: value}}, with if_ctx_version if you want'
    if unknown := sorted(body.keys() - {"set", "if_ctx_version"}):
        return f"a patch has no key {unknown[0]}"
    version = body.get("if_ctx_version")
    if version is not None and version != ctx_version:
        return f"ctx has version {ctx_version}, not {version}: read it again"
    declared = compiler.playbook.settings.ctx
    for key, value in sorted(body["set"].items()):
        known = declared.get(key)
        if key not in compiler.names.ctx:
            hint = meant(str(key), compiler.names.ctx)
            return f"the playbook has no ctx key {key}" + (f"; {hint}" if hint else "")
        if known is not None and not known.patch:
            return f"ctx.{key} has patch: false"
        if known is not None and known.init is not None and (found := wrong_type(value, _types(known.init))):
            return f"ctx.{key} is {WORDS[_types(known.init)[0]]}, as its first value is, found {found}"
    return ""


def _types(value: Any) -> tuple[str, ...]:
    match value:
        case bool():
            return ("boolean",)
        case int() | float():
            return ("number",)
        case str():
            return ("string",)
        case list():
            return ("array",)
        case _:
            return ("object",)
