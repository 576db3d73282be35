"""The other side of the process executor: requests in, frames and a receipt out, until the pipe closes.

A packet is the length of its body (8 bytes, big-endian) and the body, in our own codec: nothing is ever
unpickled. The pipes arrive as stdin and stdout and are moved away from there at once, so that a step may
print and read as it likes: what it prints goes to stderr.

The main thread runs the steps. Another one listens, because a child must not outlive its parent: the next
engine would run the same step again beside it.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import io
import os
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Final

import msgspec

from perdure.codec import Signature, decode, encode
from perdure.errors import BadCall, CallerError
from perdure.kernel.receipt import Receipt, failure_of

from . import info

MAIN: Final = "__perdure_main__"
"""The name of the parent's script here, so that its `if __name__ == "__main__"` block does not run."""

_importing: list[str] = []
_HEADER: Final = struct.Struct(">Q")


# ---- packets: both sides -----------------------------------------------------------------------------------


def write_packet(descriptor: int, body: bytes) -> None:
    rest = memoryview(_HEADER.pack(len(body)) + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_packet(descriptor: int) -> bytes | None:
    """The next packet, or None when the other side is gone, be it in the middle of one."""
    header = _read(descriptor, _HEADER.size)
    return None if header is None else _read(descriptor, _HEADER.unpack(header)[0])


def _read(descriptor: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def request_of(params: bytes, about: info.StepInfo) -> bytes:
    step = [about.instance, about.location, about.attempt, about.delivery, about.idempotency_key]
    return encode({"params": params, "step": step})


def said_in(packet: bytes) -> Receipt | info.News:
    said = decode(packet)
    return tuple(said["news"]) if isinstance(said, dict) else msgspec.convert(said, Receipt)


# ---- the process -------------------------------------------------------------------------------------------


def main() -> None:
    incoming, outgoing = _take_pipes()
    faulthandler.enable()  # a segmentation fault says on stderr where it was
    first = read_packet(incoming)
    if first is None:
        return
    setup = decode(first)
    sys.argv = [os.fsdecode(argument) for argument in setup["argv"]]
    requests: SimpleQueue[bytes | None] = SimpleQueue()
    busy = threading.Event()
    outlet = PipeOutlet(outgoing)
    threading.Thread(target=_listen, args=(incoming, requests, busy), daemon=True).start()
    while (request := requests.get()) is not None:
        receipt = copy_context().run(perform, request, setup["main"], outlet)
        busy.clear()  # before the answer: it brings the next request
        outlet.end(receipt)


def _take_pipes() -> tuple[int, int]:
    incoming, outgoing = os.dup(0), os.dup(1)  # not inherited by programs that a step starts...
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what was printed before a kill is seen

    def let_go() -> None:
        os.close(incoming)
        os.close(outgoing)

    if hasattr(os, "register_at_fork"):  # ...but by its forks, where they would hide the end of this process
        os.register_at_fork(after_in_child=let_go)
    return incoming, outgoing


def _listen(incoming: int, requests: SimpleQueue[bytes | None], busy: threading.Event) -> None:
    while (request := read_packet(incoming)) is not None:
        busy.set()
        requests.put(request)
    if busy.is_set():
        os._exit(1)
    requests.put(None)


class PipeOutlet:
    """The pipe to the parent: the frames of the running step, then its receipt. Not a word of others between them.

    A step may leave threads behind, which are not heard after its end, and forks, which are never heard.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._running: info.StepInfo | None = None

    def begin(self, about: info.StepInfo) -> None:
        self._running = about

    def send(self, about: info.StepInfo, news: info.News) -> None:
        packet = encode({"news": list(news)})
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._running is about:
                self._write(packet)

    def end(self, receipt: Receipt) -> None:
        packet = encode(msgspec.to_builtins(receipt, builtin_types=(bytes,)))
        with self._lock:
            self._running = None
            self._write(packet)

    def _write(self, packet: bytes) -> None:
        with suppress(BrokenPipeError):  # the parent is gone, and the listener says so next
            write_packet(self._pipe, packet)


# ---- one call ----------------------------------------------------------------------------------------------


def perform(request: bytes, main: list[Any] | None, outlet: PipeOutlet) -> Receipt:
    try:
        asked = decode(request)
        instance, location, attempt, delivery, key = asked["step"]
        about = info.StepInfo(instance, location, attempt, delivery, key, outlet)
        info.current.set(about)
        outlet.begin(about)
        call = decode(asked["params"])
        function = _function(call["call"], main)
        args, kwargs = arguments(function, call["args"], call["kwargs"])
    except BaseException as error:  # not even SystemExit from an imported module may end the child
        return _as_the_parent_names_it(Receipt("error", error=failure_of(error, retry=False)))
    try:
        value = function(*args, **kwargs)
        if inspect.isawaitable(value):
            value = _awaited(value)
        return _ok(function, value)
    except BaseException as error:
        return _as_the_parent_names_it(info.error(error))


def _as_the_parent_names_it(receipt: Receipt) -> Receipt:
    """An exception that the parent's script defines."""
    error = receipt.error
    if error is None or not error.type.startswith(f"{MAIN}."):
        return receipt
    named = f"__main__{error.type.removeprefix(MAIN)}"
    return msgspec.structs.replace(receipt, error=msgspec.structs.replace(error, type=named))


def _awaited(awaitable: Any) -> Any:
    import asyncio

    async def result() -> Any:
        return await awaitable

    return asyncio.run(result())


_signature = functools.lru_cache(maxsize=1024)(inspect.signature)


def arguments(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...] | list[Any], dict[str, Any]]:
    """The recorded arguments, each converted by the annotation of its parameter."""
    try:
        signature = _signature(function)
    except ValueError:  # a built-in function may have none
        return args, kwargs
    given = signature.bind(*args, **kwargs).arguments
    # Plain data has no tuples: one is what *args has collected, and its plain form is a list.
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    return Signature.of(function).call_args(plain)


def _ok(function: Callable[..., Any], value: Any) -> Receipt:
    try:
        plain = Signature.of(function).result_to_plain(value)
    except CallerError as unusable:
        return Receipt("error", error=failure_of(unusable, retry=False))
    except ValueError:  # a built-in function may have no signature
        return info.ok(value, None)
    return info.ok(plain, None)


# ---- finding functions -------------------------------------------------------------------------------------


class CannotImport(Exception):
    """The failure of a step whose function is not found by its name in a new process."""


def _function(name: str, main: list[Any] | None) -> Callable[..., Any]:
    module_name, _, qualified = name.partition(":")
    _importing.append(module_name)
    try:
        found: Any = _main(main) if module_name == "__main__" else importlib.import_module(module_name)
    except CannotImport:
        raise
    except BaseException as error:
        raise CannotImport(
            f"a process step needs {name}, but importing {module_name} failed in the new process with "
            f"{type(error).__name__}: {error}. Make the module importable there (an installed package, or a "
            "file beside the script), or run the step with executor='thread'"
        ) from error
    finally:
        _importing.pop()
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise CannotImport(
            f"a process step needs {name}, but {module_name} has no function {qualified} when it is "
            "imported. Define it at the top level of the module (not under `if __name__ == '__main__'`), or "
            "run the step with executor='thread'"
        )
    return found  # type: ignore[no-any-return]


def main_of_this_process() -> list[Any] | None:
    """How a child finds what is `__main__` here: ["module", name], ["file", path], or None for no way."""
    module = sys.modules.get("__main__")
    name = getattr(getattr(module, "__spec__", None), "name", None)
    if name is not None:
        # A package's __main__.py has no `if __name__` block, as a rule: importing it would run the program.
        return None if name.rpartition(".")[2] == "__main__" else ["module", name]
    file = getattr(module, "__file__", None)
    return ["file", os.fsencode(os.path.abspath(file))] if file and os.path.isfile(file) else None


def _main(main: list[Any] | None) -> ModuleType:
    match main:
        case ["module", name]:
            return importlib.import_module(name)
        case ["file", path]:
            return sys.modules.get(MAIN) or _load_file(os.fsdecode(path))
        case _:
            raise CannotImport(
                "a process step was defined in an interactive session, in `python -c`, or in a package's "
                "__main__.py, where a new process cannot find it. Move it into a module of its own, or run "
                "the step with executor='thread'"
            )


def _load_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_loader(MAIN, importlib.machinery.SourceFileLoader(MAIN, path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN]
        raise
    sys.modules["__main__"] = module
    return module


def refuse_while_importing() -> None:
    """A script without an `if __name__` block would open its engine again in its children, for ever."""
    if _importing:
        raise BadCall(
            f"{_importing[-1]} opens an engine when a process step imports it: put what starts the program "
            "under `if __name__ == '__main__':`"
        )
