"""Child processes of tools: bounded output, and no process is left behind when a call is withdrawn."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from perdure.executors.secrets import PREFIX

from ..tool import ToolError

OUTPUT_MAX: Final = 16 * 1024 * 1024


class ProcessEnd(msgspec.Struct, frozen=True):
    code: int
    out: bytes
    err: bytes


async def run_process(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> ProcessEnd:
    """Run a program to its end. It has a group of its own, which is killed if this is cancelled."""
    starting = asyncio.ensure_future(_started(argv, env, cwd))
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _killed(await starting)  # asyncio would kill the program alone, and wait for what the program began
        raise
    try:
        out, err, _ = await asyncio.gather(_read(process.stdout), _read(process.stderr), _write(process, stdin))
        return ProcessEnd(await process.wait(), out, err)
    finally:
        await _killed(process)


async def _started(argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**_inherited(), **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ToolError("not_found", f"the program {argv[0]!a:.200} cannot be started: {error}") from None


def _inherited() -> dict[str, str]:
    """The environment without secrets: a program that shows its environment would show them unredacted."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


async def _killed(process: asyncio.subprocess.Process) -> None:
    """Nothing of its group is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        await process.wait()


async def _write(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    found = bytearray()
    while chunk := await stream.read(65536):
        found += chunk
        if len(found) > OUTPUT_MAX:
            raise ToolError("too_large", f"the process wrote more than {OUTPUT_MAX:,} bytes")
    return bytes(found)
