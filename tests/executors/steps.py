"""Functions that the tests call in child processes, by their names."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextvars import copy_context
from dataclasses import dataclass
from datetime import date
from typing import Any

import perdure
from perdure.errors import Fatal
from perdure.executors.info import step_info


@dataclass
class Item:
    name: str
    day: date


def pid() -> int:
    return os.getpid()


def later(item: Item, *more: Item, days: int = 1, **named: Item) -> list[Item]:
    items = [item, *more, *named.values()]
    return [Item(each.name.upper(), date(each.day.year, each.day.month, each.day.day + days)) for each in items]


@perdure.step(retries=0)
def decorated(item: Item) -> Item:
    return item


class Shop:
    @staticmethod
    def open(name: str) -> str:
        return f"{name} is open"


async def fetch(number: int) -> int:
    import asyncio

    await asyncio.sleep(0)
    return number + len(step_info().location)


def about() -> list[Any]:
    info = step_info()
    return [info.instance, info.location, info.name, info.attempt, info.delivery, info.idempotency_key]


def say(words: int) -> int:
    for n in range(1, words + 1):
        perdure.progress(n, words, f"word {n}")
        perdure.emit({"word": n})
    return words


async def say_async(words: int) -> int:
    return say(words)


def say_half_async(words: int) -> Any:
    """A thread begins it, and the loop ends it."""
    say(words)
    return say_async(words)


def leave_a_thread(fifo: str) -> None:
    """It speaks when the step has long ended."""
    about = copy_context()

    def speak() -> None:
        with open(fifo, "rb") as pipe:
            pipe.read()
        about.run(perdure.emit, "too late")
        about.run(perdure.progress, 1)

    threading.Thread(target=speak, daemon=True).start()


def speak_in_a_fork() -> str:
    """A fork has none of its parent's pipes: what it says must not end up in some other file."""
    read, write = os.pipe()
    if os.fork() == 0:
        for _ in range(10):
            perdure.emit("from a fork")
        os.write(write, b"said")
        os._exit(0)
    os.close(write)
    said = os.read(read, 100)
    os.wait()
    perdure.emit("from the step")
    return said.decode()


def loaded(names: list[str]) -> list[str]:
    return [name for name in names if name in sys.modules]


def large(size: int) -> bytes:
    return bytes(size)


def size_of(value: bytes) -> int:
    return len(value)


def lie() -> int:
    return "not a number"  # type: ignore[return-value]


def loud() -> str:
    print("printed")
    os.write(1, b"written\n")
    subprocess.run([sys.executable, "-c", "print('by a program')"], check=True)
    return sys.stdin.read() + os.getcwd()


def fail(kind: str) -> None:
    kinds = {"value": ValueError, "fatal": Fatal, "exit": SystemExit, "interrupt": KeyboardInterrupt}
    raise kinds[kind]("no")


def die(how: str) -> None:
    match how:
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # without the report on stderr
            ctypes.string_at(0)


def hold(fifo: str, deaf: bool = False) -> None:
    """Say who runs, and hold the pipe for as long as this process lives."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe = os.open(fifo, os.O_WRONLY)
    os.write(pipe, f"{os.getpid()}\n".encode())
    threading.Event().wait()


def hold_in_a_program(fifo: str) -> None:
    program = (
        "import os, sys, threading; pipe = os.open(sys.argv[1], os.O_WRONLY); "
        "os.write(pipe, b'0\\n'); threading.Event().wait()"
    )
    subprocess.run([sys.executable, "-c", program, fifo], check=True)


def fork_and_die(fifo: str) -> None:
    """Leave a fork behind that outlives this process."""
    if os.fork() == 0:
        pipe = os.open(fifo, os.O_RDONLY)
        os.read(pipe, 1)
        os._exit(0)
    os._exit(9)
