"""Keys, names, errors and notes with control characters, newlines and bidi marks: every face makes them visible."""

import asyncio
import io
import json
import logging
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli import cli
from perdure.cli.console import quoted
from perdure.cli.verbs import VERBS
from perdure.codec.visible import visible, visible_json
from perdure.runtime.log import log
from tests.cli.conftest import inside

TRICK = "\x1b[35;7m\x1b]0;title\x07\x9b2J\u202e\u2028\x7f\r"
KEY = f"k{TRICK}\nFORGED order/o-1 completed"
ERROR = f"e{TRICK}\nFORGED perdure: all is well"

CODE = f"""
import perdure
from perdure import Next

KEY = {KEY!r}
ERROR = {ERROR!r}


def fail(text: str) -> str:
    raise perdure.Fatal(text)


@perdure.flow
async def failing(ctx: perdure.Context, text: str) -> None:
    ctx.publish(KEY, KEY)
    await ctx.step(KEY, fail, text)


@perdure.flow
async def waiting(ctx: perdure.Context, other: str = "") -> object:
    await ctx.receive(KEY)


@perdure.flow
async def parent(ctx: perdure.Context) -> object:
    return await ctx.child(waiting, key=KEY + " child")


class Go(perdure.Record, name="test/Go@1"):
    key: str
    text: str = ""


class Kept(perdure.Record, name="test/Kept@1"):
    text: str


class Notify(perdure.Effect, name="test/notify@1", outside=KEY):
    text: str

    class Receipt(perdure.Record):
        text: str


@perdure.cell("test/desk@1", key="key", effects=[Notify])
def desk(state: Kept | None, event: Go | perdure.ReceiptOf[Notify]) -> Next:
    if isinstance(event, Go) and event.text == "raise":
        raise ValueError(ERROR)
    return Next(Kept(KEY), effects=[Notify(KEY)])
"""


async def prepared(db: Path) -> None:
    import hostile_code as code  # type: ignore[import-not-found]

    workflows = [code.failing, code.waiting, code.parent, code.desk]
    async with perdure.open(db, workflows=workflows) as engine:
        failed = await engine.start(code.failing, ERROR, key=KEY, tags={KEY: KEY})
        with pytest.raises(perdure.InstanceFailed):
            await failed.result()
        await engine.start(code.waiting, key=KEY)
        await engine.start(code.parent, key=KEY)
        gone = await engine.start(code.waiting, key=f"{KEY} gone")
        await gone.cancel(ERROR)
        with pytest.raises(perdure.InstanceCancelled):
            await gone.result()
        await engine.send(code.Go(KEY), id=KEY, correlation=KEY)
        await engine.send(code.Go(f"{KEY} stuck", "raise"))
    async with perdure.connect(db) as client:
        await client.handle("waiting", KEY).send(f"{KEY} on its way", KEY)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A database and a module full of such text."""
    directory = tmp_path_factory.mktemp("hostile")
    (directory / "hostile_code.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch, inside(directory, patch):
        patch.syspath_prepend(str(directory))
        asyncio.run(prepared(directory / "shop.db"))
        (directory / "bad.json").write_text(json.dumps({"schemas": {KEY: "text"}}))
        (directory / "lone.json").write_text('{"schemas": {"a/B@1": "\\ud800"}}')
        yield directory


FAILED, WAITING, STUCK, DESK = f"failing/{KEY}", f"waiting/{KEY}", f"test/desk/{KEY} stuck", f"test/desk/{KEY}"
CODE_OF = ("--against", "hostile_code")
COMMANDS = [
    ("run", "hostile_code:failing", "--key", f"{KEY} run", "--input", json.dumps([ERROR])),
    ("run", "hostile_code:failing", "--key", KEY, "--input", json.dumps([ERROR]), "--timeout", "0"),
    ("start", "waiting", "--key", f"{KEY} more"),
    ("start", KEY),
    ("check", "hostile_code"),
    ("ls",),
    ("ls", "--workflow", KEY),
    ("ls", "--limit", "1"),
    *(("show", each) for each in (FAILED, WAITING, STUCK, DESK, f"parent/{KEY}", f"waiting/{KEY} gone", KEY, TRICK)),
    *(("history", each) for each in (FAILED, WAITING, STUCK, DESK, f"parent/{KEY}", f"waiting/{KEY} gone")),
    ("history", FAILED, "--values"),
    *(("why", each) for each in (FAILED, WAITING, STUCK, DESK, f"parent/{KEY}", f"waiting/{KEY} gone", KEY)),
    ("send", WAITING, KEY, json.dumps(KEY), "--id", KEY),
    ("cancel", f"waiting/{KEY} child", "--reason", KEY),
    ("cancel", f"waiting/{KEY} gone"),
    ("wake", WAITING, KEY),
    *((verb, id, "--reason", KEY) for verb in ("pause", "resume") for id in (WAITING, KEY)),
    ("tag", WAITING, KEY, KEY),
    ("tag", FAILED, KEY),
    ("retry", STUCK),
    ("retry", WAITING),
    ("rewind", FAILED, KEY),
    ("fork", FAILED, KEY),
    ("settle", FAILED, KEY, "error", KEY),
    ("replay", *CODE_OF),
    ("replay", *CODE_OF, "--verify"),
    ("export", FAILED),
    ("export", DESK),
    ("debug", FAILED, *CODE_OF),
    ("debug", STUCK, *CODE_OF),
    ("diff", FAILED, WAITING),
    ("diff", FAILED, WAITING, "--values"),
    ("cells", "ls"),
    ("cells", "ls", KEY),
    ("cells", "show", "test/desk", KEY, *CODE_OF),
    ("cells", "show", "test/desk", f"{KEY} none", *CODE_OF),
    ("cells", "tail", "test/desk", KEY),
    ("cells", "trace", KEY),
    ("cells", "trace", f"{KEY} none"),
    ("cells", "send", "test/Go@1", json.dumps({"key": KEY, "text": KEY}), "--id", f"{KEY} 2"),
    ("cells", "send", KEY, "{}"),
    ("tasks", "ls", "--as", KEY, "--name", KEY),
    ("tasks", "show", KEY),
    ("tasks", "claim", KEY, "--as", KEY),
    ("tasks", "release", KEY, "--as", KEY, "--role", KEY),
    ("tasks", "assign", KEY, KEY, "--as", KEY),
    ("tasks", "complete", KEY, json.dumps(KEY), "--as", KEY),
    ("tasks", "change", KEY, "--due", KEY, "--as", KEY),
    ("tasks", "comment", KEY, KEY, "--as", KEY),
    ("tasks", "escalate", KEY, "--add-user", KEY, "--as", KEY),
    ("tasks", "cancel", KEY, "--reason", KEY, "--as", KEY),
    ("journal", "head"),
    ("journal", "tail", "-n", "50"),
    ("manifest", "build", "hostile_code"),
    ("manifest", "build", "hostile_code", "--format", "yaml"),
    ("manifest", "check", "bad.json"),
    ("manifest", "check", "lone.json"),
    ("manifest", "check", "hostile_code"),
    ("manifest", "diff", "shop.db", "hostile_code"),
    ("manifest", "proposals"),
    ("manifest", "propose", "hostile_code"),
    ("manifest", "shadow", "hostile_code"),
    ("manifest", "approve", "1"),
    ("manifest", "reject", "1", "--reason", KEY),
    ("manifest", "apply", "hostile_code"),
    ("manifest", "migrate"),
    ("playbooks", "fmt", f"{TRICK}.yaml"),
    ("playbooks", "draw", f"{TRICK}.yaml"),
    ("playbooks", "render", f"{TRICK}.yaml", KEY),
    ("playbooks", "simulate", f"{TRICK}.yaml"),
    ("playbooks", "test", f"{TRICK}.test.yaml"),
    ("playbooks", "put", f"{TRICK}.yaml"),
    ("playbooks", "activate", KEY, TRICK),
    ("playbooks", "ls"),
    ("playbooks", "patch", KEY, f"{TRICK}=1"),
    ("snapshot", "take", *CODE_OF),
    *(("processes", verb, KEY) for verb in ("show", "export", "versions", "put", "draw")),
    ("processes", "activate", KEY, KEY, "--as", KEY),
    ("processes", "migrate", KEY, KEY, "--as", KEY, "--map", f"{KEY}={KEY}"),
    *(("processes", verb) for verb in ("ls", "schema", "functions")),
    ("access", "link", "--listen", KEY),
    ("access", "key", KEY, "--grant", KEY),
    ("access", "keys"),
    ("access", "revoke", KEY),
    ("access", "grant", KEY, "--grant", KEY),
    ("access", "grants"),
    ("access", "audit"),
    *((verb, KEY, "--listen", KEY) for verb in ("serve", "dev")),
    ("bulk", "start", KEY, "--where", KEY),
    ("bulk", "ls"),
    ("bulk", "show", KEY),
    ("bulk", "cancel", KEY),
    ("config",),
    ("retention", "run"),
    ("snapshot", "ls"),
    ("snapshot", "gc"),
    ("snapshot", "restore", f"{TRICK}/x.db"),
    ("snapshot", "restore", "x" * 5000),
    ("copy", "shop.db", "shop.db"),
    ("worker", "hostile_code", "--queue", KEY),
    ("dispatch", KEY, "--dask", KEY),
    ("db", "upgrade", "shop.db"),
    ("db", "recover", "shop.db"),
    ("db", "recover", KEY),
    ("doctor",),
    (KEY,),
]


def test_each_command_is_among_those_that_are_tried():
    tried = {" ".join(words[:size]) for words in COMMANDS for size in (1, 2)}

    assert set(VERBS) <= tried


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: ascii(" ".join(words))[:60])
def test_what_a_command_quotes_is_visible_and_on_its_own_line(made, words, as_json):
    env = {"PERDURE_DB": str(made / "shop.db"), "PERDURE_DEBUG": None}
    words = (*words, "--json") if as_json and words[0] != KEY else words

    result = CliRunner().invoke(cli, words, prog_name="perdure", env=env, input="q\n", color=True)

    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    ours = re.compile(r"\x1b\[(0|1|3[0-9])m")
    for line in ours.sub("", result.output).split("\n"):
        assert line.isprintable(), ascii(line)
        assert not re.match("FORGED order", line.strip()), ascii(result.output)
        assert not line.startswith("FORGED"), ascii(result.output)


LARGE = """
import perdure


def power(digits: int) -> int:
    return 10 ** digits


@perdure.flow
async def large(ctx: perdure.Context, number: int) -> int:
    ctx.publish("number", number)
    found = await ctx.step("power", power, 6000)
    await ctx.receive("go")
    return found
"""


async def with_large_numbers(db: Path) -> None:
    import large_numbers  # type: ignore[import-not-found]

    async with perdure.open(db, workflows=[large_numbers.large]) as engine:
        await (await engine.start(large_numbers.large, 10**6000, key="a")).until("waiting")
        await (await engine.start(large_numbers.large, 7, key="b")).until("waiting")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("numbers")
    (directory / "large_numbers.py").write_text(LARGE)
    with pytest.MonkeyPatch.context() as patch, inside(directory, patch):
        patch.syspath_prepend(str(directory))
        asyncio.run(with_large_numbers(directory / "shop.db"))
        yield directory


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize(
    "words",
    [
        ("show", "large/a"),
        ("history", "large/a", "--values"),
        ("export", "large/a"),
        ("debug", "large/a", "--against", "large_numbers"),
        ("journal", "tail", "-n", "50"),
        ("diff", "large/a", "large/b", "--values"),
        ("replay", "--against", "large_numbers"),
        ("why", "large/a"),
    ],
    ids=lambda words: words[0],
)
def test_a_number_of_more_digits_than_python_writes_is_shown_in_hexadecimal(numbers, words, as_json):
    env = {"PERDURE_DB": str(numbers / "shop.db"), "PERDURE_DEBUG": None}
    words = (*words, "--json") if as_json else words

    result = CliRunner().invoke(cli, words, prog_name="perdure", env=env, input="p number\nc\nq\n")

    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1), result.output
    if words[0] == "history":
        assert hex(10**6000)[:30] in result.output


def test_a_command_with_such_a_key_can_be_typed_as_it_is_told():
    typed = subprocess.run(
        ["bash", "-c", f"printf %s {quoted(KEY)}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )

    assert typed.stdout.decode() == KEY
    assert quoted(KEY).isprintable()


@pytest.mark.parametrize("sign", ["\n", "\x1b", "\x9b", "\u202e", "\u2028", "\ud800", "\U000e0001"])
def test_json_that_is_made_visible_says_the_same(sign):
    assert visible(f"a{sign}b").isprintable()
    written = visible_json(json.dumps({f"a{sign}b": "ü😀"}, ensure_ascii=False))
    assert written.isprintable() and "ü😀" in written
    assert json.loads(written) == {f"a{sign}b": "ü😀"}


def test_the_log_of_an_engine_has_no_lines_that_data_wrote():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    log.addHandler(handler)
    try:
        asyncio.run(stuck_in_memory())
        try:
            raise ValueError(ERROR)
        except ValueError:
            log.exception("a listener failed at a frame of %s", KEY)
    finally:
        log.removeHandler(handler)

    lines = out.getvalue().splitlines()
    assert any("is stuck" in line for line in lines)
    for line in out.getvalue().split("\n"):
        assert line.isprintable(), ascii(line)
        assert not line.startswith("FORGED")


async def stuck_in_memory() -> None:
    class Went(perdure.Record, name="test/Went@1"):
        key: str

    def sour(state: Went | None, event: Went) -> perdure.Next:
        raise ValueError(ERROR)

    cell = perdure.cell("test/sour@1", key="key", effects=[])(sour)
    async with perdure.open(":memory:", workflows=[cell]) as engine:
        await engine.send(Went(KEY))
        with pytest.raises(perdure.InstanceStuck):
            await engine.handle("test/sour", KEY).result()
