"""Bad input, typed by people: one line with what, where and what to do, the right exit code, and nothing is recorded.

The cases are those of `tests/flows/test_bad_input.py`. They are tried on a database that nobody serves, where events
would be posted, and on one with a running engine, which would take them. All share one world: nothing changes it.
"""

import json
import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import inside
from tests.cli.world import World, eventually

UNDO = """
import perdure


@perdure.step(retries=0)
async def refund(charge: str) -> None:
    raise ConnectionError("the bank is closed")


@perdure.step(undo=refund)
async def charge() -> str:
    return "charge"


@perdure.flow
async def branches(ctx: perdure.Context) -> None:
    await ctx.join("j", {name: lambda: ctx.step("s", charge) for name in ("left", "right")})
    await ctx.receive("go")


@perdure.flow
async def refunding(ctx: perdure.Context) -> None:
    await charge()
    raise KeyError("nobody wants it")
"""

TABLES = ("journal", "instances", "inbox", "open_work", "published", "snapshots", "large_bodies", "blobs")


class Case(NamedTuple):
    """What is typed, what it is called for programs, its exit code, and what the line must say."""

    args: tuple[str, ...]
    kind: str
    exit: int
    says: tuple[str, ...]
    stdin: str | None = None


def unknown_instance(*args: str) -> Case:
    return Case(args, "UnknownInstance", 3, ("there is no instance nobody", "`perdure ls` lists what exists"))


def not_json(*args: str, what: str, stdin: str | None = None) -> Case:
    return Case(args, "Usage", 2, (f"{what} is not JSON", "at line 1, column ", "; "), stdin)


def too_large(*args: str, what: str) -> Case:
    says = (f"{what} has 17,", "more than the limit of 16,777,216", "record a reference instead")
    return Case(args, "TooLarge", 2, says)


def ended(*args: str) -> Case:
    return Case(
        args,
        "InstanceEnded",
        4,
        ("order/done has completed", "takes no more", "start another instance, with a new key"),
    )


CASES = {
    "unknown workflow": Case(
        ("start", "ordr", "--input", '{"order_id": "x"}'),
        "UnknownWorkflow",
        3,
        ("no workflow is named 'ordr'", "did you mean 'order'?", "there are: approval, ", "; correct the name, "),
    ),
    "unknown flow of a module": Case(
        ("run", "flows:odrer"),
        "Usage",
        2,
        ("flows has no 'odrer'", "did you mean 'order'?", "has the workflows approval, "),
    ),
    "unknown key: send": unknown_instance("send", "nobody", "m"),
    "unknown key: cancel": unknown_instance("cancel", "nobody"),
    "unknown key: retry": unknown_instance("retry", "nobody"),
    "unknown key: wake": unknown_instance("wake", "nobody"),
    "unknown key: settle": unknown_instance("settle", "nobody", "charge", "ok"),
    "unknown key: show": unknown_instance("show", "nobody"),
    "unknown key: history": unknown_instance("history", "nobody"),
    "unknown key: why": unknown_instance("why", "nobody"),
    "unknown key: ls": unknown_instance("ls", "--parent", "nobody"),
    "nearly a key": Case(
        ("send", "approval/aa", "m"), "UnknownInstance", 3, ("there is no instance approval/aa", "mean approval/a?")
    ),
    "no key at all": Case(("cancel", ""), "Usage", 2, ("an ID is workflow/key, or the key alone", "found ''")),
    "a key of half a letter": Case(("show", "\udcff"), "Usage", 2, ("an ID is workflow/key", "found '\\udcff'")),
    "a workflow of half a letter": Case(
        ("ls", "--workflow", "\udcff"), "CallerError", 2, ("the name of a workflow is a text of valid Unicode", "udcff")
    ),
    "not JSON: start": not_json("start", "order", "--input", "{", what="--input"),
    "not JSON: run": not_json("run", "flows:order", "--input", "[1", what="--input"),
    "not JSON: send": not_json("send", "a", "decision", "yes", what="BODY"),
    "not JSON: settle": not_json("settle", "r", "charge", "ok", "{'a': 1}", what="VALUE"),
    "not JSON: a file": not_json("send", "a", "decision", "@half.json", what="BODY (half.json)"),
    "not JSON: stdin": not_json("send", "a", "decision", "-", what="BODY (stdin)", stdin='{"half": '),
    "not JSON: bytes": Case(
        ("send", "a", "decision", "@bytes.json"), "Usage", 2, ("BODY (bytes.json) is not UTF-8", "byte 0", "save it as")
    ),
    "not JSON: no file": Case(
        ("start", "order", "--input", "@none.json"),
        "Usage",
        2,
        ("--input (none.json) cannot be read: No such file", "name"),
    ),
    "JSON with a name twice": Case(
        ("send", "a", "decision", '[{"cents": 1, "cents": 2}]'),
        "Usage",
        2,
        ("BODY", "has the name 'cents' twice in one object", "remove one"),
    ),
    "not JSON: NaN": Case(
        ("send", "a", "decision", "[NaN]"), "Usage", 2, ("BODY", "NaN is not JSON", "write it as text")
    ),
    "not JSON: a number without end": Case(
        ("send", "a", "decision", "1e999"), "Usage", 2, ("BODY", "the number 1e999 is too large", "write it as text")
    ),
    "not JSON: too deep": Case(
        ("send", "a", "decision", "@deep.json"), "Usage", 2, ("BODY (deep.json) is nested too deeply", "flatten it")
    ),
    "too deep to record": Case(
        ("send", "a", "decision", "@deepish.json"),
        "NotPlain",
        2,
        ("cannot be recorded", "flatten it"),
    ),
    "too large: start": too_large("start", "order", "--input", "@input.json", "--key", "n", what="the input of order"),
    "too large: run": too_large(
        "run", "flows:order", "--input", "@input.json", "--key", "n", what="the input of order"
    ),
    "too large: send": too_large("send", "a", "decision", "@text.json", what="message 'decision'"),
    "too large: settle": too_large("settle", "r", "charge", "ok", "@text.json", what="the value for 'charge'"),
    "no such location: wake": Case(
        ("wake", "s", "elsewhere"),
        "UnknownLocation",
        3,
        ("sleepy/s does not sleep at 'elsewhere'", "but at nap", "name one, or none to wake all"),
    ),
    "nothing sleeps: wake": Case(
        ("wake", "a"), "UnknownLocation", 3, ("approval/a does not sleep", "there is nothing to wake")
    ),
    "no such location: settle": Case(
        ("settle", "r", "elsewhere", "ok"),
        "UnknownLocation",
        3,
        ("refunding/r is not stuck at 'elsewhere'", "but at 'charge'", "settle that"),
    ),
    "stuck at no location: settle": Case(
        ("settle", "x", "elsewhere", "ok"),
        "UnknownLocation",
        3,
        ("fragile/x is not stuck at 'elsewhere'", "its code stopped", "retry or cancel it"),
    ),
    "unknown key: rewind": unknown_instance("rewind", "nobody", "charge"),
    "unknown key: fork": unknown_instance("fork", "nobody", "charge"),
    "unknown key: export": unknown_instance("export", "nobody"),
    "unknown key: debug": unknown_instance("debug", "nobody", "--against", "flows"),
    "unknown key: diff": unknown_instance("diff", "order/done", "nobody"),
    "no such location: rewind": Case(
        ("rewind", "s", "elsewhere"), "UnknownLocation", 3, ("sleepy/s did nothing at 'elsewhere'", "perdure history")
    ),
    "no such location: fork": Case(
        ("fork", "done", "chrage"), "UnknownLocation", 3, ("order/done did nothing at 'chrage'", "mean 'charge'?")
    ),
    "no such location: edit": Case(
        ("fork", "done", "charge", "--edit", "refund=1"),
        "UnknownLocation",
        3,
        ("order/done had no answer at 'refund' before 'charge'", "it had: nothing"),
    ),
    "part of a location: rewind": Case(
        ("rewind", "b", "s"), "UnknownLocation", 3, ("did nothing at 's'", "did you mean 'j/left/s' or 'j/right/s'?")
    ),
    "no location at all: rewind": Case(("rewind", "s", ""), "CallerError", 2, ("a location is a text", "found ''")),
    "no such entry: debug": Case(
        ("debug", "done", "--against", "flows", "--at", "99"), "Usage", 2, ("has entries 1 to 2", "no entry 99")
    ),
    "not JSON: edit": not_json("fork", "done", "charge", "--edit", "charge={", what="--edit charge"),
    "no edit": Case(
        ("fork", "done", "charge", "--edit", "charge"), "Usage", 2, ("'charge' is no LOCATION=JSON", "write it like")
    ),
    "an edit twice": Case(
        ("fork", "b", "receive:go", "--edit", "j/left/s=1", "--edit", "j/left/s=2"),
        "Usage",
        2,
        ("--edit j/left/s is given twice", "give it once"),
    ),
    "the key of another: fork": Case(
        ("fork", "done", "charge", "--key", "done"), "KeyInUse", 4, ("order/done exists already", "a key of its own")
    ),
    "other flows: debug": Case(
        ("debug", "done", "--against", "flows:parts"),
        "UnknownWorkflow",
        3,
        ("order/done runs the flow 'order'", "the flows of flows:parts are: parts"),
    ),
    "two workflows: diff": Case(("diff", "done", "s"), "Usage", 2, ("order/done and sleepy/s", "of two workflows")),
    "no such module: debug": Case(
        ("debug", "done", "--against", "flws"), "Usage", 2, ("there is no module 'flws'", "did you mean 'flows'?")
    ),
    "no module at all: debug": Case(
        ("debug", "done", "--against", ""), "Usage", 2, ("names no module", "write MODULE")
    ),
    "rewinding one that has ended": Case(
        ("rewind", "done", "charge"), "InstanceEnded", 4, ("order/done has completed, and stays so", "fork it")
    ),
    "retrying one that has ended": Case(
        ("retry", "done"), "NotStuck", 4, ("order/done is completed, not stuck", "a retry is for", "fork goes on")
    ),
    "a message to one that has ended": ended("send", "done", "m"),
    "waking one that has ended": ended("wake", "done"),
}


@pytest.fixture
def shop(built: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with inside(built.directory, monkeypatch):
        yield built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two instances that wait, one that sleeps, one that has ended, two that are stuck. Nobody serves them now."""
    world = World(tmp_path_factory.mktemp("shop"))
    (world.directory / "undo.py").write_text(UNDO)
    (world.directory / "half.json").write_text('{"half": ')
    (world.directory / "bytes.json").write_bytes(b"\xff\xfe")
    (world.directory / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    (world.directory / "deepish.json").write_text("[" * 400 + "]" * 400)
    (world.directory / "text.json").write_text('"' + "x" * 17_000_000 + '"')
    (world.directory / "input.json").write_text('{"order_id": "' + "x" * 17_000_000 + '"}')
    with pytest.MonkeyPatch.context() as place, inside(world.directory, place):
        for exit, flow, *options in (
            (5, "flows:approval", "--key", "a", "--timeout", "0"),
            (5, "flows:sleepy", "--key", "s", "--timeout", "0"),
            (0, "flows:order", "--key", "done", "--input", '["a"]'),
            (5, "undo:branches", "--key", "b", "--timeout", "0"),
            (1, "undo:refunding", "--key", "r"),
            (1, "flows:fragile", "--key", "x"),
        ):
            assert world.perdure("run", flow, *options).exit_code == exit
    yield world
    world.close()


def recorded(world: World) -> dict[str, tuple[int, str]]:
    """Every row that a caller could have caused: how many of each table, and a hash of their bytes."""
    connection = sqlite3.connect(f"{Path(world.db).as_uri()}?mode=ro", uri=True)
    try:
        rows = {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}
        return {table: (len(found), sha256(repr(found).encode()).hexdigest()) for table, found in rows.items()}
    finally:
        connection.close()


def refuses(world: World, case: Case) -> None:
    """For people and for programs."""
    result = world.perdure(*case.args, input=case.stdin)
    as_json = world.perdure(*case.args, "--json", input=case.stdin)

    assert result.exit_code == as_json.exit_code == case.exit, result.output
    assert result.stdout == ""
    line, *more = result.stderr.splitlines()
    assert line.startswith("perdure: ") and more == []
    assert [part for part in case.says if part not in line] == []
    error = json.loads(as_json.stdout)["error"]
    assert (error["type"], error["exit"]) == (case.kind, case.exit)
    assert f"perdure: {error['message']}" == line


WITH_AN_ID = ("retry p", "rewind p x", "fork p x", "export p", "debug p --against flows", "diff p q", "why p")


@pytest.mark.parametrize("command", WITH_AN_ID)
def test_what_is_no_database_is_one_line_and_stays_what_it_is(world: World, command: str) -> None:
    (world.directory / "text.db").write_text("a text that is long enough to have a header in it" * 20)
    sqlite3.connect(world.directory / "other.db").execute("CREATE TABLE x (a)").connection.close()
    before = {path.name: path.read_bytes() for path in world.directory.iterdir() if path.is_file()}

    for db, kind, says in (
        ("none.db", "CannotOpen", "there is no database"),
        ("text.db", "NotADatabase", "is not a database; nothing was changed: name another file"),
        ("other.db", "NotADatabase", "is a SQLite database, but not one of perdure; nothing was changed"),
        (".", "CannotOpen", "is a directory; name a file in it"),
    ):
        refuses(world, Case((*command.split(), "--db", db), kind, 6, (says,)))

    assert {path.name: path.read_bytes() for path in world.directory.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_line_with_what_where_and_what_to_do_and_nothing_is_recorded(shop: World, name: str) -> None:
    before = recorded(shop)

    refuses(shop, CASES[name])

    assert recorded(shop) == before


def test_a_running_engine_makes_no_difference_and_a_second_one_is_refused(shop: World) -> None:
    engine = shop.process("run", "flows:approval", "--key", "a", "--db", "shop.db")
    eventually(lambda: shop.json("doctor")["database"]["engine"])
    before = recorded(shop)

    refuses(
        shop,
        Case(
            ("run", "flows:order", "--input", '["b"]', "--key", "second"),
            "EngineRunning",
            4,
            (
                f"another engine runs on {shop.db}",
                f"(pid {engine.pid} on ",
                "talk to it with `perdure start`, `perdure send` and the like, or stop it first",
            ),
        ),
    )
    for case in (case for case in CASES.values() if case.args[0] != "run"):
        refuses(shop, case)

    assert recorded(shop) == before
    shop.perdure("send", "a", "decision", '"well"')
    assert shop.ended(engine) == (0, '"well"\n'), "the engine is as well as before"
