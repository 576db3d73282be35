"""What commands share: --db, --json and --debug, one way to answer, one way to ask a database."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from .group import DEBUG, JSON, debug_wanted
from .verbs import VERBS

if TYPE_CHECKING:
    import msgspec

    from perdure.runtime.client import Client

T = TypeVar("T")
Database = Literal["required", "optional", "memory", "project", "settings", "none"]


class Console:
    def __init__(self, db: str | None, json: bool, debug: bool, db_given: bool, server: str | None = None) -> None:
        self.server = server
        self.json = json
        self.debug = debug
        self._db = db
        self._db_given = db_given

    def at(self, db: str) -> Console:
        """The same with another database."""
        return Console(db, self.json, self.debug, self._db_given, self.server)

    @property
    def has_db(self) -> bool:
        return self._db is not None

    @property
    def place(self) -> str:
        """What people call the database."""
        return self.server or self.db

    @property
    def db(self) -> str:
        if self._db is None and self.server is not None:
            from .exits import Stopped

            raise Stopped("this asks the database itself: give --db, not --server")
        assert self._db is not None, "only `check` and `doctor` do without a database"
        return self._db

    def answer(self, document: Any, text: str) -> None:
        """The result: one JSON document, or text for people. Nothing else goes to stdout."""
        from .text import shown, to_json

        if self.json:
            click.echo(to_json(document, indent=2 if sys.stdout.isatty() else None))
        elif text:
            click.echo(shown(text))

    def note(self, text: str) -> None:
        """A message beside the result."""
        from .text import shown

        click.echo(shown(text), err=True)

    def command(self, *words: str) -> str:
        """A command that can be typed as it is told, with this database. What asks no server names one as DB."""
        if self.server:
            place: tuple[str, ...] = ("--server", self.server) if asks_a_server(words) else ("--db", "DB")
        else:
            place = ("--db", self.db) if self._db_given else ()
        return " ".join([quoted(word) for word in ("perdure", *words, *place)])

    def ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        """Ask the database, whether an engine runs on it or not."""
        from perdure.app import connect, run_async

        async def main() -> T:
            async with connect(self.db) as client:
                return await question(client)

        answer: T = run_async(main)
        return answer

    def act(self, verb: Callable[[Client], Awaitable[T]], *, makes: bool = True) -> T:
        """Ask what only an engine can answer: the engine that runs, or one of our own where none does.

        `makes`: the engine makes a database that does not exist.
        """
        from contextlib import suppress

        from perdure.app import connect, run_async
        from perdure.app import open as open_engine
        from perdure.errors import CannotOpen

        async def main() -> T:
            with suppress(*([CannotOpen] if makes else [])):
                async with connect(self.db) as client:
                    if await client.queries.owner() is not None:
                        return await verb(client)
            async with open_engine(self.db) as engine:
                return await verb(engine)

        answer: T = run_async(main)
        return answer

    def call(self, verb: str, params: msgspec.Struct) -> Any:
        """Ask for a verb. What is to be said beside its answer is said."""
        from msgspec import UNSET, structs

        from perdure.verbs import table

        row = table.VERBS[verb]
        if self.server is not None:
            from .remote import call

            return call(self.server, row, params)

        async def ask(client: Client) -> Any:
            answer = await row.function(client, params)
            note = getattr(answer, "note", UNSET)
            if note is not UNSET:
                self.note(note)
                return structs.replace(answer, note=UNSET)
            if row.changes:
                await self.warn_if_nobody_runs(client)
            return answer

        return self.ask(ask)

    def request(self, name: str, /, *, once: str = "", **given: Any) -> Any:
        """Ask the server for a request of its table, by its name. `once` is the id of what it records."""
        from .remote import request

        assert self.server is not None, "a database is asked in another way"
        return request(self.server, name, given, once)

    async def warn_if_nobody_runs(self, client: Client) -> None:
        if await client.queries.owner() is None:
            self.note(f"no engine runs on {self.db} now: it is recorded, and taken up when one does")


def quoted(word: str) -> str:
    """A word for a shell. What cannot be printed is escaped as bash and zsh read it."""
    if word.isprintable():
        return shlex.quote(word)
    signs = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join([sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in signs]) + "'"


def define(name: str, *, db: Database = "required") -> Callable[[Callable[..., None]], click.Command]:
    """Make a function the command of a verb: it gets a `Console` and its own arguments."""

    def made(function: Callable[..., None]) -> click.Command:
        own = getattr(function, "__click_params__", [])[::-1]
        text = [VERBS[name].help, *filter(None, [inspect.getdoc(function)])]
        return click.Command(
            name.rpartition(" ")[2],
            params=[*own, *_shared(db, name in ASKED)],
            help="\n\n".join(text),
            epilog=f"Example:\n\n\b\n  {VERBS[name].example}",
            context_settings={"help_option_names": ["-h", "--help"]},
            callback=_with_console(function, db == "required"),
        )

    return made


def _with_console(function: Callable[..., None], needed: bool) -> Callable[..., None]:
    def call(*, db: str | None = None, json: bool, debug: bool, server: str | None = None, **own: Any) -> None:
        debug = debug or debug_wanted()
        context = click.get_current_context()
        if needed and db is None and server is None:
            raise click.MissingParameter(ctx=context, param=_named(context.command, "db"))
        source = context.get_parameter_source("db")
        given = source is click.core.ParameterSource.COMMANDLINE
        if given and context.get_parameter_source("server") is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--db and --server were both given: this asks one of them, leave out the other")
        server = None if given else server  # --db stands before PERDURE_SERVER
        if server:
            _refuse_person(context)
        function(Console(None if server else db, json, debug, given, server), **own)

    return call


PERSON: Final = ("--as", "--by")
"""Options that name who acts."""


def _refuse_person(context: click.Context) -> None:
    """Over a server, who acts is known by the key."""
    for param in context.command.params:
        is_given = context.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
        if is_given and param.opts[0] in PERSON:
            from .exits import Stopped

            raise Stopped(f"over a server the actor of the API key acts: leave out {param.opts[0]}")


ASKED: Final = (
    *("start", "send", "cancel", "wake", "pause", "resume", "retry", "rewind", "fork", "settle", "tag"),
    *("ls", "show", "history", "why", "diff", "export"),
    *("bulk start", "bulk ls", "bulk show", "bulk cancel"),
    *("tasks ls", "tasks show", "tasks claim", "tasks release", "tasks assign", "tasks complete", "tasks change"),
    *("tasks comment", "tasks escalate", "tasks cancel"),
    *("access link", "access key", "access keys", "access revoke", "access grant", "access grants", "access audit"),
    *("journal head", "journal tail", "doctor"),
    *("cells ls", "cells show", "cells tail", "cells trace", "cells send"),
    *("processes ls", "processes versions", "processes show", "processes export", "processes draw"),
    *("processes put", "processes activate", "processes migrate", "processes schema", "processes functions"),
    *("playbooks ls", "playbooks draw", "playbooks put", "playbooks activate", "playbooks patch"),
    *("playbooks simulate",),
    *("manifest propose", "manifest proposals", "manifest shadow"),
    *("manifest approve", "manifest reject", "manifest apply", "manifest migrate"),
    *("snapshot take", "snapshot ls", "snapshot gc"),
)
"""Commands that can ask a server instead of a database. The others say that they ask the database itself."""


def asks_a_server(words: tuple[str, ...]) -> bool:
    return words[0] in ASKED or " ".join(words[:2]) in ASKED


def _named(command: click.Command, name: str) -> click.Parameter:
    return next(each for each in command.params if each.name == name)


def _shared(db: Database, asks: bool = False) -> list[click.Parameter]:
    switches = [
        _switch("--json", JSON, "One JSON document on stdout."),
        _switch("--debug", DEBUG, "Show tracebacks of errors."),
    ]
    if db == "none":
        return [*([_server(None)] if asks else []), *switches]
    return [_database(db, asks), *([_server("PERDURE_SERVER")] if asks else []), *switches]


def _server(variable: str | None) -> click.Option:
    """What needs no database asks a server only if the command line says so."""
    text = "Ask this server, with the API key in PERDURE_TOKEN" + (", instead of a database." if variable else ".")
    return click.Option(["--server"], metavar="URL", envvar=variable, show_envvar=variable is not None, help=text)


def _database(db: Database, asks: bool = False) -> click.Option:
    texts = {
        "required": "The database: path of a SQLite file, or sqlite:///path.",
        "optional": "Check this database too: path of a SQLite file, or sqlite:///path.",
        "project": "The database: path of a SQLite file.  [default: .perdure/dev.db]",
        "settings": "The database: path of a SQLite file, or postgresql://….  [default: `db` of the settings]",
        "memory": "Keep the run in this SQLite file, so that it survives.  [default: nothing is kept]",
    }
    defaults = {"memory": ":memory:", "project": ".perdure/dev.db"}
    default: dict[str, Any] = {"default": defaults[db]} if db in defaults else {}  # click tells None from nothing
    return click.Option(
        ["--db"],
        metavar="URL",
        envvar="PERDURE_DB",
        show_envvar=True,
        required=db == "required" and not asks,
        help=texts[db],
        **default,
    )


def _switch(name: str, meta: str, help: str) -> click.Option:
    """Eager, because an error in any other parameter must know of it already."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        ctx.meta[meta] = value
        return value

    return click.Option([name], is_flag=True, is_eager=True, callback=note, help=help)
