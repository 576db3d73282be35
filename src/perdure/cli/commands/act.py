"""Commands that change an instance: all are one pattern. What was typed becomes the parameters of the verb, and the
answer a line of text.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import click
import msgspec

from perdure.app.ours import FILES, kind_of_file
from perdure.errors import UnknownWorkflow
from perdure.runtime.client import Client, Reuse
from perdure.verbs.act import (
    CancelParams,
    ForkParams,
    PauseParams,
    RetryParams,
    RewindParams,
    SendAnswer,
    SendParams,
    SettleParams,
    StartParams,
    TagParams,
    WakeParams,
)

from ..console import Console, define
from ..exits import Stopped
from ..given import read_json, read_tags, read_time, with_sets
from ..load import load_file
from ..text import joined


def act(name: str, text: Callable[[Any], str]) -> Callable[[Callable[..., msgspec.Struct]], click.Command]:
    """Make a command of a function that gives the parameters of a verb. `text` tells people the answer."""

    def made(given: Callable[..., msgspec.Struct]) -> click.Command:
        def call(console: Console, **typed: Any) -> None:
            where, yes = typed.pop("where", ""), typed.pop("yes", False)
            if where and typed["id"] is None:
                _of_many(console, name, where, given(**{**typed, "id": "any"}), yes)
                return
            if where or typed["id"] is None:
                raise Stopped(f"`perdure {name}` takes an ID, or --where with a filter")
            answer = console.call(name, given(**typed))
            console.answer(answer, text(answer))

        call.__doc__ = given.__doc__
        call.__click_params__ = getattr(given, "__click_params__", [])  # type: ignore[attr-defined]
        return define(name)(call)

    return made


def _of_many(console: Console, verb: Any, where: str, given: msgspec.Struct, yes: bool) -> None:
    """The verb as a bulk: for all instances that a filter finds."""
    from perdure.verbs.bulk import BulkParams, Selection
    from perdure.verbs.plans import params_of

    from .bulk import begin

    dry_run = bool(getattr(given, "dry_run", False))
    reason = str(getattr(given, "reason", ""))
    begin(console, BulkParams(verb, Selection(where), params_of(given), reason=reason, dry_run=dry_run), yes)


def one_or_many(command: Callable[..., Any]) -> Callable[..., Any]:
    """An ID, or a filter of many instances."""
    command = click.option("--yes", is_flag=True, help="With --where: do not ask, also above 10 instances.")(command)
    command = click.option("--where", default="", metavar="FILTER", help="All that match, as a bulk; no ID.")(command)
    return click.argument("id", required=False)(command)


@define("start")
@click.argument("workflow", metavar="WORKFLOW|FILE")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="An object: the arguments by name.")
@click.option("--set", "sets", metavar="PATH=VALUE", multiple=True, help="One value of the input: floor=3, a.b=text.")
@click.option("--key", help="Names the instance; the same key again starts nothing. Default: a new one.")
@click.option(
    "--reuse",
    type=click.Choice(["failed", "always"]),
    help="Start a used key again: after a failure, or always.",
)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag to find it by; any number.")
@click.option("--delay", type=click.FloatRange(0), metavar="SECONDS", help="It begins its work after so long.")
@click.option("--at", metavar="TIME", help="It begins its work then: 2026-11-16T09:00:00Z.")
@click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who starts it.")
def start(
    console: Console,
    *,
    workflow: str,
    given: str | None,
    sets: tuple[str, ...],
    key: str | None,
    reuse: Reuse | None,
    tags: tuple[str, ...],
    delay: float | None,
    at: str | None,
    person: str | None,
) -> None:
    """WORKFLOW is the name of a workflow that the last engine on this database ran. FILE is a playbook or a process,
    which is registered first. Prints the key.
    """
    value = with_sets({} if given is None else read_json(given, "--input"), sets)
    when: datetime | None = None if at is None else read_time(at, "--at")
    name = _registered(console, workflow) if workflow.endswith(FILES) else workflow
    params = StartParams(name, value, key, reuse, read_tags(tags), when, delay, person)
    try:
        answer = console.call("start", params)
    except UnknownWorkflow as error:
        try:  # a playbook may be named by its path
            answer = console.call("start", msgspec.structs.replace(params, workflow=name.replace("/", ".")))
        except UnknownWorkflow:
            raise error from None
    console.answer(answer, answer.key)


def _registered(console: Console, file: str) -> str:
    """The name of the definition in a file. The database has it after this."""
    definition, kind = load_file(file), kind_of_file(file)

    async def put(client: Client) -> str:
        return await kind.kept(client).put(definition)

    console.act(put)
    return str(definition.name)


@define("send")
@click.argument("id", metavar="[ID]", required=False)
@click.argument("name", metavar="NAME", required=False)
@click.argument("body", required=False)
@click.option("--id", "message", metavar="TEXT", help="The message's own id: the same one twice is delivered once.")
@click.option("--reference", default="", metavar="TEXT", help="To the one live instance with this reference; no ID.")
@click.option("--part", "parts", multiple=True, metavar="NAME=VALUE", help="A part of that reference; any number.")
def send(
    console: Console,
    *,
    id: str | None,
    name: str | None,
    body: str | None,
    message: str | None,
    reference: str,
    parts: tuple[str, ...],
) -> None:
    """BODY is JSON, @file or - (stdin); without it the message has none. It is durable when this returns."""
    if parts and not reference:
        raise Stopped("--part tells references apart: give --reference, too")
    words = [word for word in (id, name, body) if word is not None]
    names = ["NAME"] if reference else ["ID", "NAME"]
    if not len(names) <= len(words) <= len(names) + 1:
        raise Stopped(f"expected {' '.join(names)} [BODY], found {len(words)} words; `perdure send --help` has more")
    *to, sent = words[: len(names)]
    value = read_json(words[-1], "BODY") if len(words) > len(names) else None
    if not reference:
        answer = console.call("send", SendParams(to[0], sent, value, message))
    elif console.server is not None:
        raise Stopped("a server is asked by ID: `perdure ls --reference TEXT --server URL` tells it")
    else:
        wanted = read_tags(parts, "--part")

        async def sending(client: Client) -> SendAnswer:
            handle = await client.send_to(sent, value, reference=reference, parts=wanted, id=message)
            await console.warn_if_nobody_runs(client)
            return SendAnswer(handle.id, sent)

        answer = console.ask(sending)
    console.answer(answer, f"sent {answer.sent} to {answer.id}")


DRY_RUN = click.option("--dry-run", is_flag=True, help="Only tell what would happen.")


def planned(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """The text of an answer; of a dry run, what would happen."""

    def told(answer: Any) -> str:
        return joined(f"would {each}" for each in answer.would) if isinstance(answer.would, list) else text(answer)

    return told


@act("cancel", planned(lambda answer: f"asked {answer.id} to cancel"))
@one_or_many
@DRY_RUN
@click.option("--reason", default="", help="Recorded, and told to all that wait for the result.")
@click.option("--undo", is_flag=True, help="Undo what its completed steps did, the last one first.")
def cancel(id: str, reason: str, undo: bool, dry_run: bool) -> CancelParams:
    """It ends cancelled when its clean-up is done. Cancelling twice is harmless."""
    return CancelParams(id, reason, undo, dry_run)


@act("wake", lambda answer: f"woke {answer.id}")
@click.argument("id")
@click.argument("location", default="")
def wake(id: str, location: str) -> WakeParams:
    """LOCATION is that of one sleep (`perdure why ID` names it); without it, all of them end. Recorded as such."""
    return WakeParams(id, location)


BY = click.option("--by", metavar="NAME", help="Who says so.")
REASON = click.option("--reason", default="", help="Recorded, and told by `perdure why`.")


@act("pause", lambda answer: f"asked {answer.id} to pause")
@click.argument("id")
@BY
@REASON
def pause(id: str, by: str | None, reason: str) -> PauseParams:
    """Of a playbook: no token is admitted and no attempt begins until `perdure resume`. What runs goes on to its end,
    and deadlines hold. Pausing twice is harmless.
    """
    return PauseParams(id, reason, by)


@act("resume", lambda answer: f"asked {answer.id} to go on")
@click.argument("id")
@BY
@REASON
def resume(id: str, by: str | None, reason: str) -> PauseParams:
    """Of a playbook that was paused: what was held begins."""
    return PauseParams(id, reason, by)


@act("retry", planned(lambda answer: f"asked {answer.id} to try again"))
@one_or_many
@DRY_RUN
def retry(id: str, dry_run: bool) -> RetryParams:
    """After what was wrong has been put right. `perdure why ID` says what that is. An instance that has failed does
    again what failed, and what was undone; all else stays done.
    """
    return RetryParams(id, dry_run)


def _rewound(answer: Any) -> str:
    if isinstance(answer.drops, list):
        return f"{answer.id} would drop and do again: {', '.join(answer.drops)}"
    return f"asked {answer.id} to go back to {answer.rewind}"


@act("rewind", _rewound)
@click.argument("id")
@click.argument("location")
@click.option("--force", is_flag=True, help="Also while a step runs that is dropped: it is cancelled.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be dropped and done again.")
def rewind(id: str, location: str, force: bool, dry_run: bool) -> RewindParams:
    """The operation at LOCATION, and all that came after it, did not happen; it is done again. What came before is
    kept. `perdure history ID` shows the locations.
    """
    return RewindParams(id, location, force, dry_run)


@act("fork", planned(lambda answer: f"forked: {answer.id}"))
@click.argument("id")
@click.argument("location")
@DRY_RUN
@click.option("--edit", "edits", multiple=True, metavar="LOCATION=JSON", help="Another value for an earlier step.")
@click.option("--key", help="Names the new instance.")
def fork(id: str, location: str, edits: tuple[str, ...], key: str | None, dry_run: bool) -> ForkParams:
    """The new instance has behind it all that came before the operation at LOCATION, and goes on from there. The old
    one stays as it is. `perdure history ID` shows the locations.
    """
    edit: dict[str, Any] = {}
    for text in edits:
        place, value = _read_edit(text)
        if place in edit:
            raise Stopped(f"--edit {place} is given twice; give it once")
        edit[place] = value
    return ForkParams(id, location, edit, key, dry_run)


def _read_edit(text: str) -> tuple[str, Any]:
    location, sign, value = text.partition("=")
    if not location or not sign:
        raise Stopped(f"--edit {text!r} is no LOCATION=JSON; write it like this: --edit 'price=4200'")
    return location, read_json(value, f"--edit {location}")


@act("settle", planned(lambda answer: f"settled {answer.settled} of {answer.id}: {answer.answer}"))
@click.argument("id")
@DRY_RUN
@click.argument("location")
@click.argument("answer", type=click.Choice(["ok", "error"]))
@click.argument("value", required=False)
def settle(id: str, location: str, answer: Literal["ok", "error"], value: str | None, dry_run: bool) -> SettleParams:
    """LOCATION is where it is stuck (`perdure why ID` names it). After ok, VALUE is the step's result as JSON, @file
    or - (stdin); after error it is a text. `perdure retry ID` instead runs the step again.
    """
    result = read_json(value, "VALUE") if value is not None and answer == "ok" else value
    return SettleParams(id, location, answer, result, dry_run=dry_run)


@act(
    "tag",
    lambda answer: (
        f"untagged {answer.id}" if answer.value is None else f"tagged {answer.id}: {answer.tag}={answer.value}"
    ),
)
@click.argument("id")
@click.argument("name")
@click.argument("value", required=False)
def tag(id: str, name: str, value: str | None) -> TagParams:
    """NAME is that of a tag to find it by (`perdure ls --tag`); without VALUE, the tag is removed.

    After `NAME:=`, VALUE is JSON: a number, true or false, or a time as {"$time": "2026-11-01T09:00Z"}. Both may be one
    word, `NAME=VALUE` or `NAME:=JSON`.
    """
    if "=" in name.removesuffix("="):
        if value is not None:
            raise Stopped(f"one tag at a time: NAME VALUE, or NAME=VALUE; found {name!r} and {value!r}")
        return TagParams(id, *next(iter(read_tags([name], "tag").items())))
    if not value:
        return TagParams(id, name.removesuffix("=").removesuffix(":"))
    return TagParams(id, *next(iter(read_tags([f"{name.removesuffix('=')}={value}"], "tag").items())))
