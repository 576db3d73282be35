"""`perdure diff`: where two histories part, whenever and in whatever order things happened in them."""

import json
from functools import partial

import pytest

from tests.cli.world import World, eventually

SHOP = """
import asyncio
from pathlib import Path

import perdure

SOON = perdure.Backoff(base=0, max=0)


async def charge(card: str) -> str:
    attempt = perdure.step_info().attempt
    if card == "slow" and attempt == 1:
        raise TimeoutError("the bank sleeps")
    if card == "stolen":
        raise perdure.Fatal("call the police")
    return f"paid with {card}"


async def wait_for(name: str) -> str:
    with open("evidence", "a") as file:
        file.write(f"waits {name}\\n")
    while not Path(name).exists():
        await asyncio.sleep(0.01)
    return name


async def echo(value: object) -> object:
    return value


@perdure.flow
async def order(ctx: perdure.Context, card: str = "", ship: bool = True) -> str:
    try:
        paid = await ctx.step.options(backoff=SOON)("charge", charge, card)
    except perdure.StepFailed:
        return await ctx.step("apologise", echo, "sorry")
    if ship:
        await ctx.step("ship", echo, "by post")
    return paid


@perdure.flow
async def pair(ctx: perdure.Context, first: str) -> list[str]:
    async def one(name: str) -> str:
        return await ctx.step(name, wait_for, name)

    return sorted(await asyncio.gather(one(first), one("b" if first == "a" else "a")))


@perdure.flow
async def steady(ctx: perdure.Context) -> str:
    return await ctx.step("wait", wait_for, "go")


@perdure.flow
async def child(ctx: perdure.Context, number: int) -> int:
    return number % 2


@perdure.flow
async def talk(ctx: perdure.Context, number: int) -> object:
    ctx.publish("number", number)
    await ctx.child(child, number)
    bodies = [(await ctx.receive("word")).body, (await ctx.receive("word")).body]
    if ctx.version("ending", 2) == 2:
        return bodies
    return bodies


@perdure.flow
async def big(ctx: perdure.Context, last: int) -> None:
    await ctx.step("load", echo, {"rows": ["row"] * 100, "total": last})


@perdure.flow
async def fragile(ctx: perdure.Context) -> object:
    message = await ctx.receive("go")
    if not Path("mended").exists():
        await asyncio.Event().wait()
    return message.body
"""


@pytest.fixture
def shop(world: World) -> World:
    (world.directory / "shop.py").write_text(SHOP)
    return world


def run(world: World, flow: str, key: str, *given: object, timeout: str = "20") -> None:
    world.perdure("run", f"shop:{flow}", "--key", key, "--input", json.dumps(given), "--timeout", timeout)


def run_until(world: World, entries: int, flow: str, key: str, *given: object) -> None:
    """Until it waits, with so many entries."""

    def waits() -> bool:
        run(world, flow, key, *given, timeout="0.5")
        return has_entries(world, key, entries)

    eventually(waits)


def has_entries(world: World, key: str, entries: int) -> bool:
    return bool(world.json("show", key)["entries"] == entries)


def diff(world: World, a: str = "a", b: str = "b", *args: str) -> tuple[int, list[str]]:
    done = world.perdure("diff", a, b, *args)
    (world.directory / "said").write_text(done.stderr)
    return done.exit_code, done.stdout.splitlines()


def test_histories_that_say_the_same_are_the_same(shop: World) -> None:
    run(shop, "order", "a", "gold")
    run(shop, "order", "b", "gold")

    assert diff(shop) == (0, ["order/a and order/b have the same history, but for times."])


def test_it_says_where_they_part_and_what_is_different(shop: World) -> None:
    run(shop, "order", "a", "gold")
    run(shop, "order", "b", "stolen")

    code, lines = diff(shop)

    assert code == 1
    assert lines == [
        "--- order/a: 3 entries",
        "+++ order/b: 3 entries",
        "They part at input: entry 1 of order/a, entry 1 of order/b.",
        '- input: {"card": "gold", "ship": true}',
        '+ input: {"card": "stolen", "ship": true}',
        '- step charge: ok "paid with gold"',
        "+ step charge: error Fatal: call the police",
        '- step ship: ok "by post"',
        '+ step apologise: ok "sorry"',
        '- status: completed "paid with gold"',
        '+ status: completed "sorry"',
    ]


def test_attempts_are_told_apart(shop: World) -> None:
    run(shop, "order", "a", "gold")
    run(shop, "order", "b", "slow")

    _, lines = diff(shop)

    assert '- step charge: ok "paid with gold"' in lines
    assert "+ step charge: error TimeoutError: the bank sleeps" in lines
    assert '+ step charge (attempt 2): ok "paid with slow"' in lines


def test_the_order_of_what_runs_in_parallel_is_no_difference(shop: World) -> None:
    for key, first, second in (("a", "a", "b"), ("b", "b", "a")):
        for name in ("a", "b", "evidence"):
            (shop.directory / name).unlink(missing_ok=True)
        process = shop.process("run", "shop:pair", "--key", key, "--input", '["a"]', "--db", "shop.db")
        eventually(lambda: len(shop.evidence()) == 4)
        (shop.directory / first).touch()
        eventually(partial(has_entries, shop, key, 2))
        (shop.directory / second).touch()
        assert shop.ended(process)[0] == 0

    assert diff(shop) == (0, ["pair/a and pair/b have the same history, but for times."])
    orders = [[line["location"] for line in shop.json("history", key)["history"]] for key in ("a", "b")]
    assert orders[0] != orders[1]


def test_a_crash_is_no_difference(shop: World) -> None:
    process = shop.process("run", "shop:steady", "--key", "a", "--db", "shop.db")
    eventually(shop.evidence)
    process.kill()
    process.wait()
    (shop.directory / "go").touch()
    run(shop, "steady", "a")
    run(shop, "steady", "b")

    assert diff(shop)[0] == 0
    assert [len(shop.json("history", key)["history"]) for key in ("a", "b")] == [3, 2]


def test_messages_published_values_versions_and_children_are_compared(shop: World) -> None:
    for key, number, words in (("a", 1, "xy"), ("b", 3, "xz")):
        run(shop, "talk", key, number, timeout="0")
        for word in words:
            shop.perdure("send", key, "word", json.dumps(word))
        run(shop, "talk", key, number)

    _, lines = diff(shop)

    assert lines[3:-2] == [
        '- input: {"number": 1}',
        '+ input: {"number": 3}',
        '- input of child child: {"number": 1}',
        '+ input of child child: {"number": 3}',
        "- published number: 1",
        "+ published number: 3",
        '- message word#2: "y"',
        '+ message word#2: "z"',
    ]
    assert shop.json("history", "a")["history"][-1]["outcome"] == "completed"


def test_what_still_waits_differs_from_what_has_gone_on(shop: World) -> None:
    run_until(shop, 2, "talk", "a", 1)
    run_until(shop, 2, "talk", "b", 1)
    shop.perdure("send", "b", "word", "1")
    run_until(shop, 3, "talk", "b", 1)

    _, lines = diff(shop)

    assert lines[2] == "They part at wait receive:word: entry 2 of talk/a, entry 3 of talk/b."
    assert lines[3:] == [
        "- wait receive:word: open",
        "+ wait receive:word: received",
        "+ message word: 1",
        "+ wait receive:word#2: open",
    ]


def test_a_place_that_one_never_came_to_is_named(shop: World) -> None:
    run(shop, "order", "a", "gold")
    run(shop, "order", "b", "gold", False)

    document = json.loads("".join(diff(shop, "a", "b", "--json")[1]))

    assert (document["same"], document["a"]) == (False, {"id": "order/a", "status": "completed", "entries": 3})
    assert [each["what"] for each in document["differences"]] == ["input", "step"]
    assert document["differences"][1] == {
        "what": "step",
        "location": "ship",
        "attempt": 1,
        "a": {"entry": 3, "status": "ok", "value": "by post", "error": None},
        "b": None,
    }


def test_a_person_who_helped_is_a_difference_and_the_message_counts_as_received(shop: World) -> None:
    run(shop, "fragile", "a", timeout="0")
    shop.perdure("send", "a", "go", "1")
    run(shop, "fragile", "a")
    (shop.directory / "mended").touch()
    shop.perdure("retry", "a")
    run(shop, "fragile", "a")
    run(shop, "fragile", "b", timeout="0")
    shop.perdure("send", "b", "go", "1")
    run(shop, "fragile", "b")

    _, lines = diff(shop)

    assert [line.partition(":")[0] for line in lines[3:]] == ["- stuck", "- retry"]
    assert "Deadlock" in lines[3]
    assert lines[2] == "They part at stuck: entry 2 of fragile/a, fragile/b never came there."


def test_long_values_are_cut_to_where_they_differ_unless_asked(shop: World) -> None:
    run(shop, "big", "a", 17)
    run(shop, "big", "b", 18)

    _, cut = diff(shop)
    assert shop.said("said") == "long values are cut to where they differ: --values shows them whole\n"
    _, whole = diff(shop, "a", "b", "--values")

    assert cut[5].startswith("- step load: …") and cut[5].endswith('"total": 17}') and cut[6].endswith('"total": 18}')
    assert all(len(line) < 100 for line in cut)
    assert len(whole[5]) > 700 and not shop.said("said")


@pytest.mark.parametrize(
    ("other", "exit", "text"),
    [
        ("big/b", 2, "order/a and big/b are instances of two workflows"),
        ("ordre/a", 3, "did you mean order/a?"),
    ],
)
def test_bad_input_is_told_in_a_line(shop: World, other: str, exit: int, text: str) -> None:
    run(shop, "order", "a", "gold")
    run(shop, "big", "b", 1)

    result = shop.perdure("diff", "order/a", other)

    assert (result.exit_code, result.stdout) == (exit, "")
    assert text in result.stderr
