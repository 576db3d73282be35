"""The tool `python`: a function, or code of the playbook, in a child process. The code is never rendered."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import msgspec

from ..tool import OneOf, Told, Tool, ToolCall, ToolError
from .process import OUTPUT_MAX, run_process

RUNNER: Final = str(Path(__file__).with_name("runner.py"))


class PythonParams(msgspec.Struct):
    """Run Python in a child process. The result is what the function returns, or what the code names `result`."""

    call: Annotated[str | None, msgspec.Meta(description="`module:function`, called with args")] = None
    code: Annotated[
        str | None,
        msgspec.Meta(
            description="sets `result`, has `main(**args)`, or returns; it is not rendered", extra={"raw": True}
        ),
    ] = None
    script: Annotated[str | None, msgspec.Meta(description="a file with such code")] = None
    args: Annotated[
        dict[str, Any] | None, msgspec.Meta(description="names for the code, and the maps `args` and `input_data`")
    ] = None
    libs: Annotated[
        dict[str, str] | None,
        msgspec.Meta(description="names to modules, or `module:name`, that are imported under them"),
    ] = None
    env: Annotated[dict[str, Any] | None, msgspec.Meta(description="further variables of the environment")] = None


async def run(params: PythonParams, call: ToolCall) -> Told:
    code, file = _code(params)
    asked = {"call": params.call, "code": code, "file": file, "args": params.args or {}, "libs": params.libs or {}}
    env = {
        "PERDURE_IDEMPOTENCY_KEY": call.idempotency_key,
        **{name: str(value) for name, value in (params.env or {}).items()},
    }
    with TemporaryDirectory(prefix="perdure-") as directory:
        told_in = Path(directory, "told")
        argv = [sys.executable, RUNNER, str(told_in)]
        ended = await run_process(argv, stdin=json.dumps(asked, default=str).encode(), env=env)
        told = _told(told_in)
    if len(told) > OUTPUT_MAX:
        raise ToolError("too_large", f"the result has more than {OUTPUT_MAX:,} bytes")
    if not told:
        err = ended.err.decode(errors="replace")
        raise ToolError(
            "exit_code", f"Python ended with the exit code {ended.code}: {err.strip()[-500:]}", status=ended.code
        )
    found = json.loads(told)
    if "error" in found:
        error = found["error"]
        told_py = {"exception": error["exception"], "traceback": error["traceback"]}
        raise ToolError(error["exception"], error["message"], retryable=True, more={"py": told_py})
    return Told(found["result"])


def _told(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _code(params: PythonParams) -> tuple[str | None, str]:
    if params.script is None:
        return params.code, "<playbook>"
    try:
        return Path(params.script).read_text(), params.script
    except OSError as error:
        raise ToolError("not_found", f"the script cannot be read: {error.strerror}: {params.script}") from None


PYTHON: Final = Tool("python", PythonParams, run, one_of=(OneOf(("call", "code", "script")),))
