"""The tool `shell`: a program in a child process. Only `script` goes through a shell, and it is never rendered."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any, Final, Literal

import msgspec

from ..tool import OneOf, Told, Tool, ToolCall, ToolError
from .process import run_process


class ShellParams(msgspec.Struct):
    """Run a program. The result is what it writes, as text, lines or JSON."""

    argv: Annotated[list[Any] | None, msgspec.Meta(description="the program and its arguments")] = None
    command: Annotated[
        str | list[Any] | None,
        msgspec.Meta(description="the same as one text; it is split before it is rendered", extra={"split": True}),
    ] = None
    script: Annotated[
        str | list[str] | None,
        msgspec.Meta(
            description="a script for sh; it is not rendered, args are in its environment", extra={"raw": True}
        ),
    ] = None
    args: Annotated[dict[str, Any] | None, msgspec.Meta(description="variables for the script")] = None
    env: Annotated[dict[str, Any] | None, msgspec.Meta(description="further variables of the environment")] = None
    stdin: Annotated[str | None, msgspec.Meta(description="what the program reads")] = None
    cwd: Annotated[str | None, msgspec.Meta(description="the directory that it runs in")] = None
    ok_codes: Annotated[list[int], msgspec.Meta(description="exit codes that are ok")] = msgspec.field(
        default_factory=lambda: [0]
    )
    parse: Annotated[Literal["text", "lines", "json"], msgspec.Meta(description="what its output becomes")] = "text"


async def run(params: ShellParams, call: ToolCall) -> Told:
    argv = _argv(params)
    env = {name: _text(value) for name, value in {**(params.args or {}), **(params.env or {})}.items()}
    ended = await run_process(argv, stdin=(params.stdin or "").encode(), env=env, cwd=params.cwd)
    err = ended.err.decode(errors="replace")
    if ended.code not in params.ok_codes:
        text = f"{argv[0]} ended with the exit code {ended.code}: {err.strip()[-500:]}"
        raise ToolError("exit_code", text, status=ended.code, details={"code": ended.code, "stderr": err[-4000:]})
    out = ended.out.decode(errors="replace")
    if params.parse == "lines":
        return Told(out.splitlines())
    if params.parse == "json":
        try:
            return Told(json.loads(out))
        except ValueError as error:
            raise ToolError("bad_output", f"the output is no JSON: {error}") from None
    return Told(out.removesuffix("\n"))


def _argv(params: ShellParams) -> list[str]:
    if params.script is not None:
        script = params.script if isinstance(params.script, str) else "\n".join(params.script)
        return ["/bin/sh", "-ec", script]
    words = params.argv if params.argv is not None else params.command
    if isinstance(words, str):
        words = shlex.split(words)
    if not words:
        raise ToolError("bad_parameters", "the command is empty")
    return [_text(word) for word in words]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


SHELL: Final = Tool("shell", ShellParams, run, one_of=(OneOf(("argv", "command", "script")),))
