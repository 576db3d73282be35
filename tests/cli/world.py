"""A directory with flows in it, and perdure as people and scripts call it: in a process, or in this one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from perdure.cli import cli

PATIENCE_SECONDS = 120.0

FLOWS = """
import asyncio
from datetime import timedelta
from pathlib import Path

import perdure


def note(what: str) -> str:
    with open("evidence", "a") as file:
        file.write(what + "\\n")
    return what.upper()


async def wait_for_file(name: str) -> None:
    note("second")
    perdure.progress(1, 3, "waiting\\n for a file")
    while not Path(name).exists():
        await asyncio.sleep(0.01)


async def never() -> None:
    raise ValueError("no stock")


@perdure.flow
async def order(ctx: perdure.Context, order_id: str, cents: int = 100) -> dict[str, object]:
    charge = await ctx.step("charge", note, order_id)
    return {"charge": charge, "cents": cents}


@perdure.flow
async def three(ctx: perdure.Context) -> list[str]:
    first = await ctx.step("first", note, "first")
    await ctx.step("second", wait_for_file, "go")
    third = await ctx.step("third", note, "third")
    return [first, third]


@perdure.flow
async def approval(ctx: perdure.Context, title: str = "") -> object:
    ctx.publish("title", title)
    message = await ctx.receive("decision", "abort", timeout=timedelta(days=2))
    return message.body


@perdure.flow
async def sleepy(ctx: perdure.Context) -> None:
    await ctx.sleep("nap", timedelta(hours=3))


@perdure.flow
async def parent(ctx: perdure.Context) -> object:
    return await ctx.child(approval, "from a parent", key="inner")


@perdure.flow
async def failing(ctx: perdure.Context) -> None:
    raise ValueError("wrong from the start")


@perdure.flow
async def unlucky(ctx: perdure.Context) -> None:
    step = ctx.step.options(backoff=perdure.Backoff(base=3600, max=3600))
    await step("buy", never)


@perdure.flow
async def fragile(ctx: perdure.Context) -> str:
    if not Path("mended").exists():
        await asyncio.Event().wait()
    return "mended"


def stocked(name: str) -> str:
    if not Path(name).exists():
        raise perdure.Fatal("no " + name)
    return note(name)


@perdure.flow
async def parts(ctx: perdure.Context) -> list[str]:
    return [await ctx.step(name, stocked, name) for name in ("wheel", "frame", "bell")]


@perdure.flow(name="the-named")
async def named(ctx: perdure.Context) -> None:
    print("printed by the flow")


def plain() -> None:
    pass


number = 7
"""


class World:
    """`flows.py` and `shop.db` in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.db = str(directory / "shop.db")
        (directory / "flows.py").write_text(FLOWS)
        self._processes: list[subprocess.Popen[str]] = []

    # ---- in this process -----------------------------------------------------------------------------------

    def perdure(self, *args: str, db: bool = True, input: str | None = None) -> Result:
        """As `perdure ARGS`, with the database in the environment."""
        env = {"PERDURE_DB": self.db if db else None, "PERDURE_DEBUG": None}
        result = CliRunner().invoke(cli, args, prog_name="perdure", env=env, input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def json(self, *args: str, exit: int = 0, db: bool = True) -> Any:
        result = self.perdure(*args, "--json", db=db)
        assert result.exit_code == exit, result.output
        return json.loads(result.stdout)

    # ---- in processes of their own -------------------------------------------------------------------------

    def process(
        self, *args: str, stderr: str = "stderr", stdin: int | None = None, **env: str
    ) -> subprocess.Popen[str]:
        """A real process; what it says on stderr is in a file."""
        with open(self.directory / stderr, "w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "perdure.cli", *args],
                cwd=self.directory,
                env={**clean_environment(), **env},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._processes.append(process)
        return process

    def ended(self, process: subprocess.Popen[str], input: str | None = None) -> tuple[int, str]:
        """Its exit code and stdout."""
        out, _ = process.communicate(input, timeout=PATIENCE_SECONDS)
        return process.returncode, out

    def call(self, *args: str, input: str | None = None, **env: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        stdin = None if input is None else subprocess.PIPE
        code, out = self.ended(self.process(*args, stderr="call", stdin=stdin, **env), input)
        return code, out, self.said("call")

    def said(self, stderr: str = "stderr") -> str:
        return (self.directory / stderr).read_text()

    def evidence(self) -> list[str]:
        file = self.directory / "evidence"
        return file.read_text().split() if file.exists() else []

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def clean_environment() -> dict[str, str]:
    names = ("PERDURE_DB", "PERDURE_DEBUG", "NO_COLOR", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if name not in names}


def eventually(condition: Callable[[], Any]) -> Any:
    """Wait for a condition of the real world, not for a time."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)
    return found
