"""`perdure debug`: the code of a flow at an entry of its history, under pdb, in a process of its own."""

import json
import os
import pty
import shutil
import subprocess
import sys

import pytest

from tests.cli.conftest import inside
from tests.cli.world import PATIENCE_SECONDS, World, clean_environment, eventually

SHOP = """
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import perdure

PATIENT = perdure.Backoff(base=3600, max=3600)


def note(what: str) -> str:
    with open("evidence", "a") as file:
        file.write(what + "\\n")
    return what.upper()


def fail(*_: object) -> None:
    raise ValueError("no stock")


async def wait_for_file() -> str:
    note("waits")
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "went"


async def pack(ctx: perdure.Context, what: str) -> str:
    packed = await ctx.step("pack", note, what)
    label = packed + "!"
    return label


@dataclass
class Parcel:
    what: str


@perdure.flow
async def order(ctx: perdure.Context, what: str, parcel: Parcel) -> str:
    print("the flow says hello")
    breakpoint() if what == "stop" else None
    charge = await ctx.step("charge", note, what)
    label = await pack(ctx, parcel.what)
    decision = await ctx.receive("decision")
    if not decision.body:
        reason = "refused " + charge
        raise LookupError(reason)
    return await ctx.step("ship", note, label)


@perdure.flow
async def crashing(ctx: perdure.Context) -> str:
    first = await ctx.step("first", wait_for_file)
    second = first + "!"
    return second


@perdure.flow
async def unlucky(ctx: perdure.Context) -> None:
    once = 1
    await ctx.step.options(backoff=PATIENT)("buy", fail)


@perdure.flow
async def undone(ctx: perdure.Context) -> None:
    what = await ctx.step.options(undo=note)("do", note, "it")
    raise LookupError("after " + what)


@perdure.flow
async def both(ctx: perdure.Context) -> list[str]:
    async def branch(name: str) -> str:
        done = await ctx.step(name, note, name)
        return done + name

    return list(await asyncio.gather(branch("a"), branch("b")))


@perdure.flow
async def guarded(ctx: perdure.Context) -> str:
    try:
        first = await ctx.step("first", note, "first")
        second = first + "!"
    except Exception:
        print("caught by the flow")
        second = "caught"
    finally:
        await ctx.step("tidy", note, "tidy")
    return second


@perdure.flow
async def long(ctx: perdure.Context) -> int:
    async def body(ctx: perdure.Context, total: int) -> perdure.Continue[int] | perdure.Break[int]:
        text = await ctx.step("add", str, total)
        return perdure.Break(total) if total == 40 else perdure.Continue(total + 1)

    return await ctx.loop("sum", body, state=0, keep=2, prune_every=2)


@perdure.flow
async def deaf(ctx: perdure.Context) -> str:
    heard = await ctx.step("listen", note, "sound")
    await asyncio.Event().wait()
    return heard


@perdure.flow
async def leaving(ctx: perdure.Context) -> None:
    code = await ctx.step("listen", len, "abc")
    sys.exit(code)
"""


@pytest.fixture
def shop(world: World) -> World:
    (world.directory / "shop.py").write_text(SHOP)
    return world


def run(world: World, flow: str, *args: str) -> None:
    """Until it has ended or is stuck."""
    sys.modules.pop("shop", None)  # its file may have changed
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONBREAKPOINT", "0")
        world.perdure("run", f"shop:{flow}", "--key", "k", "--db", "shop.db", *args)


def run_until(world: World, entries: int, flow: str, *args: str) -> None:
    """Until it waits, with so many entries."""

    def waits() -> bool:
        run(world, flow, *args, "--timeout", "0.5")
        if "parked" not in world.perdure("history", "k").output:
            return bool(world.json("show", "k")["entries"] == entries)
        for file in [*world.directory.glob("shop.db*"), world.directory / "evidence"]:
            file.unlink(missing_ok=True)  # the time was up in the middle of a step: from the start, then
        return False

    eventually(waits)


def run_order(world: World, what: str) -> None:
    run_until(world, 3, "order", "--input", json.dumps([what, {"what": "books"}]))


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory):
    """Gives a shop an order that waits for a decision. It was run once."""
    made = World(tmp_path_factory.mktemp("ordered"))
    (made.directory / "shop.py").write_text(SHOP)
    with pytest.MonkeyPatch.context() as place, inside(made.directory, place):
        run_order(made, "book")
    return lambda shop: shutil.copytree(made.directory, shop.directory, dirs_exist_ok=True)


def line_of(text: str) -> int:
    """Where that stands in shop.py."""
    return next(number for number, line in enumerate(SHOP.splitlines(), 1) if line.strip() == text)


def debug(world: World, commands: str, *args: str, against: str = "shop") -> tuple[int, str, str]:
    return world.call("debug", "k", "--against", against, "--db", "shop.db", *args, input=commands)


def test_it_stops_at_the_first_line_that_the_entry_runs_with_the_recorded_values(shop: World, order) -> None:
    order(shop)
    before = shop.json("history", "k"), shop.evidence()

    code, out, err = debug(shop, "p charge\nn\n", "--at", "2")

    lines = out.splitlines()
    assert lines[0] == 'Entry 2: charge ok "BOOK" → step pack'
    assert lines[1].endswith(f"shop.py({line_of('label = await pack(ctx, parcel.what)')})order()")
    assert lines[2:5] == ["-> label = await pack(ctx, parcel.what)", "(Pdb) p charge", "'BOOK'"]
    assert lines[-3:] == ["recorded  step pack", "now       step pack", "The code does what it did."]
    assert (code, err) == (0, "")
    assert (shop.json("history", "k"), shop.evidence()) == before


def test_without_an_entry_it_is_the_last_one(shop: World, order) -> None:
    order(shop)

    _, out, _ = debug(shop, "p packed\nc\n")

    assert 'Entry 3: pack ok "BOOKS" → wait receive:decision' in out
    assert "(Pdb) p packed\n'BOOKS'\n" in out


def test_one_steps_through_coroutines_and_sees_nothing_but_ones_own_code(shop: World, order) -> None:
    order(shop)

    _, out, _ = debug(shop, "w\nn\nn\nn\np label\nw\n", "--at", "3")

    before, _, after = out.partition("(Pdb) n")
    stack = [line.rpartition(")")[0].rpartition(")")[2] for line in before.splitlines() if ".py(" in line]
    assert stack == ["pack(", "order(", "pack("]  # where it stopped, and where that is
    assert "pack()->'BOOKS!'" in after  # at the end of the helper...
    assert '-> decision = await ctx.receive("decision")' in after  # ...and then in the flow that awaited it
    assert "(Pdb) p label\n'BOOKS!'" in after
    assert "/perdure/" not in out and "asyncio" not in out


def test_of_what_runs_in_parallel_the_task_is_opened_that_the_entry_is_for(shop: World) -> None:
    run(shop, "both")
    names = [line["location"].rpartition("/")[2] for line in shop.json("history", "k")["history"]]
    assert sorted(names[1:]) == ["a", "b"]

    _, out, _ = debug(shop, "p name, done\nr\nc\n", "--at", "2")

    assert f"('{names[1]}', '{names[1].upper()}')" in out
    assert f"branch()->'{names[1].upper()}{names[1]}'" in out
    assert "recorded  nothing\n" in out


def test_the_first_entry_stops_in_the_flow_and_not_in_generated_code(shop: World, order) -> None:
    order(shop)

    _, out, _ = debug(shop, "p parcel\nc\n", "--at", "1")

    assert out.splitlines()[2] == '-> print("the flow says hello")'
    assert "Parcel(what='books')" in out


def test_the_flow_is_silent_while_it_is_replayed_and_heard_where_one_looks(shop: World) -> None:
    run_order(shop, "stop")  # the flow has a `breakpoint()` for that

    (_, first, _), (_, second, _) = (debug(shop, "n\nc\n", "--at", number) for number in ("1", "2"))

    assert "\nthe flow says hello\n" in first
    assert "hello" not in second and second.count("-> ") == 1


def test_an_entry_that_is_not_for_the_flow_leads_to_the_next_that_is(shop: World) -> None:
    process = shop.process("run", "shop:crashing", "--key", "k", "--db", "shop.db")
    eventually(lambda: shop.evidence() == ["waits"])
    process.kill()
    process.wait()
    (shop.directory / "go").touch()
    run(shop, "crashing")
    assert [line["event"] for line in shop.json("history", "k")["history"]] == ["started", "redelivered", "receipt"]

    _, out, _ = debug(shop, "p first\nc\n", "--at", "2")

    assert "Entry 2 runs nothing of the flow's code; entry 3 does." in out
    assert "(Pdb) p first\n'went'" in out


def test_where_nothing_comes_after_it_is_the_last_one_before(shop: World) -> None:
    run_until(shop, 2, "unlucky")

    _, out, _ = debug(shop, "c\n")

    assert "Entry 2 runs nothing of the flow's code; entry 1 does." in out
    assert "Entry 1: started" in out and "recorded  step buy" in out


def test_a_flow_that_has_not_begun_has_nothing_to_debug(shop: World) -> None:
    run_until(shop, 2, "unlucky")
    shop.perdure("start", "unlucky", "--key", "later", "--delay", "3600")
    run_until(shop, 2, "unlucky")
    eventually(lambda: shop.perdure("show", "later").exit_code == 0)

    code, _, err = shop.call("debug", "later", "--against", "shop", "--db", "shop.db", input="")

    assert code == 2
    assert "nothing of the flow's code has run yet" in err and "perdure why unlucky/later --db shop.db" in err


# ---- what raised ---------------------------------------------------------------------------------------------


def test_a_failed_flow_opens_where_it_raised_and_once_more_after_the_fact(shop: World, order) -> None:
    order(shop)
    shop.perdure("send", "k", "decision", "false")
    run(shop, "order", "--input", '["book", {"what": "books"}]')

    code, out, err = debug(shop, "c\np reason\nw\nq\n")

    session, _, after = out.partition("It raised LookupError: refused BOOK.")
    assert "Entry 4: message decision false → failed: LookupError: refused BOOK" in session
    assert "-> if not decision.body:" in session
    assert "recorded  withdraw wait receive:decision, failed: LookupError: refused BOOK" in session
    assert "The code does what it did." in session
    assert "-> raise LookupError(reason)" in after
    assert "(Pdb) p reason\n'refused BOOK'" in after
    assert (code, err) == (0, "")


def test_what_was_undone_since_does_not_hide_where_it_raised(shop: World) -> None:
    run(shop, "undone")
    assert len(shop.json("history", "k")["history"]) == 3

    _, out, _ = debug(shop, "c\np what\n")

    assert "Entry 2: do ok" in out and "→ step &undo/do" in out
    assert "(Pdb) p what\n'IT'" in out.partition("It raised LookupError")[2]


def test_an_error_of_a_step_is_shown_where_it_is_awaited(shop: World) -> None:
    (shop.directory / "shop.py").write_text(SHOP.replace("backoff=PATIENT", "retries=0"))
    run(shop, "unlucky")

    _, out, _ = debug(shop, "p once\nc\nq\n")

    first, second = out.split("It raised StepFailed")
    assert "-> await ctx.step.options(retries=0)" in first and "-> await ctx.step.options(retries=0)" in second
    assert "(Pdb) p once\n1" in first


@pytest.mark.parametrize(("flow", "error"), [("deaf", "Deadlock"), ("leaving", "BadCall")])
def test_a_stuck_flow_opens_at_the_entry_that_made_it_stuck(shop: World, flow: str, error: str) -> None:
    run(shop, flow)
    assert shop.json("show", "k")["status"] == "stuck"

    code, out, _ = debug(shop, "c\nq\n")

    assert "Entry 2: listen ok" in out
    assert f"recorded  stuck: {error}" in out and f"now       stuck: {error}" in out
    assert "The code raised then, and raises now." in out
    assert ("once more, at that line.\n" in out) == (flow == "leaving")  # nobody raised where somebody waits
    assert code == 0


def test_mended_code_is_told_to_be_so_and_what_to_do_then(shop: World) -> None:
    run(shop, "deaf")
    (shop.directory / "mended.py").write_text(SHOP.replace("    await asyncio.Event().wait()\n", ""))

    _, out, _ = debug(shop, "c\n", against="mended:deaf")

    assert 'now       completed "SOUND"' in out
    assert "The code raised then, and does not now." in out
    assert "perdure retry deaf/k --db shop.db" in out


def test_an_entry_that_was_retried_can_be_looked_at_before_and_after(shop: World) -> None:
    run(shop, "deaf")
    shop.perdure("retry", "k")
    (shop.directory / "shop.py").write_text(SHOP.replace("    await asyncio.Event().wait()\n", ""))
    run(shop, "deaf")
    assert [line["outcome"] for line in shop.json("history", "k")["history"]] == ["", "stuck", "completed"]

    (_, then, _), (_, retried, _) = (debug(shop, "p heard\nc\n", "--at", number) for number in ("2", "3"))

    assert "'SOUND'" in then and "The code raised then, and does not now." in then
    assert "perdure retry" not in then
    assert "'SOUND'" in retried and "The code does what it did." in retried


def test_the_cancel_of_a_stuck_instance_never_reached_the_flow(shop: World) -> None:
    run(shop, "deaf")
    shop.perdure("cancel", "k")
    run(shop, "deaf")
    assert shop.json("show", "k")["status"] == "cancelled"

    _, out, _ = debug(shop, "p heard\n")

    assert "Entry 3 runs nothing of the flow's code; entry 2 does." in out
    assert "'SOUND'" in out


# ---- changed code --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [(), ("--at", "2"), ("--at", "3")])
def test_changed_code_opens_where_it_parts_from_the_history(shop: World, order, at: tuple[str, ...]) -> None:
    order(shop)
    (shop.directory / "changed.py").write_text(SHOP.replace('ctx.step("pack"', 'ctx.step("wrap"'))

    code, out, _ = debug(shop, "n\ns\nc\n", *at, against="changed")

    assert ("The code parts from the history at entry 2" in out) == (at == ("--at", "3"))
    assert "changed.py" in out and "-> label = await pack(ctx, parcel.what)" in out
    assert "recorded  step pack" in out and "now       step wrap" in out
    assert "The code diverges from the history here" in out
    assert code == 0


def test_of_two_versions_in_a_module_it_is_the_one_that_the_instance_began_with(shop: World, order) -> None:
    order(shop)
    newer = SHOP.partition("@perdure.flow\nasync def order")[2].partition("@perdure.flow")[0]
    newer = "@perdure.flow(name='order', version='2')\nasync def newer" + newer.replace('"charge"', '"pay"')
    (shop.directory / "versions.py").write_text(SHOP + newer)

    _, first, _ = debug(shop, "c\n", "--at", "1", against="versions")
    _, second, _ = debug(shop, "c\n", "--at", "1", against="versions:newer")

    assert "now       step charge" in first and "now       step pay" in second


def test_a_change_that_runs_none_of_the_flow_is_told_all_the_same(shop: World) -> None:
    (shop.directory / "shop.py").write_text(SHOP.replace("backoff=PATIENT", "retries=0"))
    run(shop, "unlucky")
    (shop.directory / "changed.py").write_text(SHOP)

    _, out, _ = debug(shop, "", against="changed")

    assert "recorded  failed: StepFailed" in out and "now       timer buy/backoff#1" in out
    assert "The code diverges from the history here" in out


# ---- leaving, and other ways to be called ----------------------------------------------------------------------


@pytest.mark.parametrize("commands", ["q\n", "n\nq\n", ""])
def test_one_leaves_quietly_at_any_time_whatever_the_flow_catches(shop: World, commands: str) -> None:
    run(shop, "guarded")
    before = shop.evidence()

    code, out, err = debug(shop, commands, "--at", "2")

    assert (code, err) == (0, "")
    assert '-> second = first + "!"' in out
    assert "caught" not in out and "recorded" not in out and "Traceback" not in out
    assert shop.evidence() == before


def test_in_json_the_document_is_alone_on_stdout(shop: World, order) -> None:
    order(shop)

    code, out, err = debug(shop, "p packed\nc\n", "--json")
    left = json.loads(debug(shop, "q\n", "--json")[1])

    document = json.loads(out)
    assert document["id"] == "order/k" and document["entry"]["number"] == 3
    assert document["recorded"] == document["now"] == ["wait receive:decision"]
    assert document["diverges"] is False
    assert "(Pdb) p packed\n'BOOKS'" in err
    assert (code, left["now"], left["diverges"]) == (0, None, None)


def test_a_terminal_has_a_prompt_and_is_left_with_control_d(shop: World, order) -> None:
    order(shop)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure.cli", "debug", "k", "--against", "shop", "--db", "shop.db"],
        cwd=shop.directory,
        env=clean_environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    for keys in (b"p packed\n", b"\x04"):
        while not said.endswith(b"(Pdb) "):
            said += os.read(ours, 1024)
        os.write(ours, keys)
        said += os.read(ours, 1024)

    assert process.wait(PATIENCE_SECONDS) == 0
    os.close(ours)
    assert b"'BOOKS'" in said and b"Traceback" not in said


def test_the_engine_may_run_meanwhile(shop: World) -> None:
    process = shop.process("run", "shop:crashing", "--key", "k", "--db", "shop.db")
    eventually(lambda: shop.evidence() == ["waits"])

    code, out, _ = debug(shop, "p ctx.instance\nc\n")
    (shop.directory / "go").touch()

    assert (code, "'crashing/k'" in out, "The code does what it did." in out) == (0, True, True)
    assert shop.ended(process) == (0, '"went!"\n')


def test_a_history_with_pruned_loops_is_replayed_from_its_beginning(shop: World) -> None:
    run(shop, "long")
    assert len(shop.json("history", "k")["history"]) == 42

    _, middle, _ = debug(shop, "p total, text\nc\n", "--at", "8")
    _, end, _ = debug(shop, "p total, text\nc\n")

    assert "(6, '6')" in middle and "recorded  step sum/~7/add" in middle
    assert "(40, '40')" in end and "recorded  completed 40" in end


@pytest.mark.parametrize(
    ("args", "exit", "text"),
    [
        (("k", "--against", "shop", "--at", "4"), 2, "order/k has entries 1 to 3; there is no entry 4"),
        (("k", "--against", "shop", "--at", "0"), 2, "--at"),
        (("k", "--against", "flows:three"), 3, "order/k runs the flow 'order'; the flows of flows:three are: three"),
        (("k", "--against", "shpo"), 2, "did you mean 'shop'?"),
        (("kk", "--against", "shop"), 3, "there is no instance kk; did you mean order/k?"),
        (("k",), 2, "--against"),
    ],
)
def test_bad_input_is_told_in_a_line(shop: World, order, args: tuple[str, ...], exit: int, text: str) -> None:
    order(shop)

    result = shop.perdure("debug", *args)

    assert (result.exit_code, result.stdout) == (exit, "")
    assert text in result.stderr
