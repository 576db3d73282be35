"""The top level: finds a command when it is asked for; turns errors into one clear line and an exit code."""

import os
import traceback
from importlib import import_module
from typing import Any

import click

from perdure.errors import PerdureError

from .exits import MEANING, Exit, Stopped, exit_of, in_options, kind_of
from .verbs import GROUPS, VERBS, place_of

JSON = "perdure.json"
DEBUG = "perdure.debug"


class Verbs(click.Group):
    """The commands are known by name only until one of them is used, so that help is quick."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        _meant(self, ctx, args)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys(name.partition(" ")[0] for name in VERBS))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in GROUPS:
            return Group(cmd_name)
        return _command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb.name, verb.help) for verb in VERBS.values()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANING.items()])
        with formatter.section("Environment"):
            formatter.write_dl(
                [
                    ("PERDURE_DB", "the database, where --db is not given"),
                    ("PERDURE_DEBUG", "1: tracebacks, as with --debug"),
                    ("NO_COLOR", "any text: no colours"),
                ]
            )
        with formatter.section("Example"):
            formatter.write(f"{'':>{formatter.current_indent}}{VERBS['run'].example}\n")

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        ctx = super().make_context(*args, **kwargs)
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Stopped as stopped:
            raise _told(ctx, stopped) from stopped
        except click.UsageError as wrong:
            error = _with_choice(_asks_no_server(wrong))
            if ctx.meta.get(JSON):
                _told(ctx, Stopped(error.format_message()))
            from perdure.codec.visible import visible  # here: help is quick without it

            error.message = visible(error.message)  # type: ignore[misc]  # final for others, and ours to tell
            raise error from None
        except PerdureError as error:
            raise _told(ctx, Stopped(_text(error), exit_of(error), kind=kind_of(type(error)))) from error
        except (KeyboardInterrupt, click.Abort) as error:
            raise _told(ctx, Stopped("interrupted", Exit.INTERRUPTED, kind="Interrupted")) from error


def _asks_no_server(error: click.UsageError) -> click.UsageError:
    """The error of a command without --server that was asked for a server; others as they are."""
    names = {each.name for each in error.ctx.command.params} if error.ctx is not None else set()
    if "db" not in names or "server" in names:
        return error
    missing = isinstance(error, click.MissingParameter) and error.param is not None and error.param.name == "db"
    if missing and os.environ.get("PERDURE_SERVER"):
        text = "Missing option '--db': PERDURE_SERVER is set, but this command asks the database itself, no server."
    elif isinstance(error, click.NoSuchOption) and error.option_name == "--server":
        text = "No such option '--server': this command asks the database itself, no server; give --db."
    else:
        return error
    return click.UsageError(text, error.ctx)


def _with_choice(error: click.UsageError) -> click.UsageError:
    """The same, with the word that was perhaps meant where there is a choice of words."""
    words = getattr(getattr(getattr(error, "param", None), "type", None), "choices", ())
    given = error.message.partition("'")[2].partition("'")[0]
    if words and given:
        from difflib import get_close_matches

        near = get_close_matches(given, words, 1, 0.6)
        error.message += f" Did you mean {near[0]}?" if near else ""  # type: ignore[misc]
    return error


def _meant(group: click.Group, ctx: click.Context, args: list[str]) -> None:
    """Refuse a word that is no command, with the one that was meant."""
    name = args[0] if args else ""
    known = group.list_commands(ctx)
    if name and not name.startswith("-") and group.get_command(ctx, name) is None:
        from difflib import get_close_matches  # here: help is quick without it

        near = [f"perdure {verb}" for verb in VERBS if verb.rpartition(" ")[2] == name]  # of another group, or of none
        near = near or get_close_matches(name, known, 1, 0.6)
        ctx.fail(f"No such command {name!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""))


class Group(click.Group):
    """The verbs of two words that begin with the same one."""

    def __init__(self, name: str) -> None:
        help_names = {"help_option_names": ["-h", "--help"]}
        super().__init__(name, help=GROUPS[name], context_settings=help_names, no_args_is_help=True)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        _meant(self, ctx, args)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name.partition(" ")[2] for name in VERBS if name.startswith(f"{self.name} ")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(f"{self.name} {cmd_name}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, VERBS[f"{self.name} {name}"].help) for name in self.list_commands(ctx)])


def _command(name: str) -> click.Command | None:
    if name not in VERBS:
        return None
    module, function = place_of(VERBS[name])
    found: click.Command = getattr(import_module(module), function)
    return found


def _told(ctx: click.Context, stopped: Stopped) -> Stopped:
    if ctx.meta.get(DEBUG) or debug_wanted():
        from .text import noted, shown

        click.echo(shown(noted(traceback.format_exc().rstrip())), err=True)
    if ctx.meta.get(JSON):
        from .text import to_json

        click.echo(to_json(stopped.document))
    return stopped


def debug_wanted() -> bool:
    return os.environ.get("PERDURE_DEBUG", "") not in ("", "0")


def _text(error: PerdureError) -> str:
    text = in_options(str(error))
    if not error.advises:
        return text
    from .text import noted

    return noted(text)


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="perdure", message="perdure %(version)s")
def cli() -> None:
    """Run durable workflows, and look after them.

    An ID is `workflow/key`, or the key alone where that is clear. Every command takes --json. Only the
    result goes to stdout; progress and messages go to stderr.
    """


def main() -> None:
    cli(prog_name="perdure")
