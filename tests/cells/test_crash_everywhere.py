"""One small world of cells for each thing that cells do, with a crash before and after everything that is durable.

Each runs hot, and evicted after every commit, in memory and on a SQLite file; and with another owner that comes at any
commit, while the one before still writes. The auditor holds every cell in memory against its replay after every commit,
and sees that each event reaches each cell once and each effect gets one receipt. In the end states, outcomes, published
values, all that each cell heard, and what handlers did outside are those of a run without a crash; and `verify` finds
no difference, from the first entry and from every snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import pytest

import perdure
from perdure import CellContext, Next, ReceiptOf, Rejected
from perdure.cells.bound_manifest import BoundManifest
from perdure.cells.effects import Alarm, BlobGet, BlobPut, Publish, Spawn
from perdure.codec import encode
from perdure.errors import NotStuck, ReceiptRefused, UnknownIntent
from perdure.executors.builtin import BlobEffects
from perdure.kernel.events import Message, ReceiptArrived
from perdure.kernel.rules import RULER, RULING
from perdure.testing import World
from perdure.testing.crashes import CALM, Schedule, Search, points_of
from perdure.testing.disks import at_once
from perdure.testing.simulation import quiet_log
from tests.cells.trial import WorldTrial
from tests.disks import OnBoth, take_overs_of
from tests.entries import entries_of
from tests.stages import LONG

MINUTE = 60_000_000_000
OUTSIDE: dict[str, str] = {}
KEY = perdure.Key.hmac("bank-1", bytes(range(32)))
KEYS = perdure.Keyring({"bank": [KEY]})


class Lamp:
    broken = True


def reset() -> None:
    OUTSIDE.clear()
    Lamp.broken = True


def done(call: perdure.Call, text: str) -> None:
    """An idempotent side effect."""
    OUTSIDE[f"{call.cell} {call.key} {call.idempotency_key}"] = text


# ---- events, effects and cells -----------------------------------------------------------------------------------


class Placed(perdure.Record, name="c/Placed@1"):
    id: str
    cents: perdure.Nat = 5


class Dropped(perdure.Record, name="c/Dropped@1"):
    id: str


class Paid(perdure.Record, name="c/Paid@1"):
    id: str
    day: str
    cents: perdure.Nat


class Order(perdure.Record, name="c/Order@1"):
    pc: Literal["charging", "pausing", "paid"]
    cents: perdure.Nat
    attempt: perdure.Nat = 1
    auth: str = ""


class Charge(perdure.Effect, name="c/charge@1"):
    cents: perdure.Nat
    attempt: perdure.Nat = 1

    class Receipt(perdure.Record):
        auth: str


@perdure.cell("c/order@1", key="id", effects=[Charge, Alarm])
def order(state: Order | None, event: Placed | Dropped | ReceiptOf[Charge | Alarm], ctx: CellContext) -> Next:
    """Pays; tries again after 1, 2, 4... minutes. 7 cents are refused twice."""
    match event:
        case Placed(cents=cents):
            return Next(Order("charging", cents), effects=[Charge(cents)])
        case Dropped():
            return Next(None)
        case _ if state is None:
            raise AssertionError("a receipt is for whoever asked")
        case ReceiptOf(params=Charge(), ok=True):
            paid = Order("paid", state.cents, state.attempt, event.value.auth)
            return Next(paid, events=[Paid(ctx.key, "monday" if state.cents % 2 else "tuesday", state.cents)])
        case ReceiptOf(params=Charge()):
            pausing = Order("pausing", state.cents, state.attempt + 1)
            return Next(pausing, effects=[Alarm(after=MINUTE * 2 ** (state.attempt - 1))])
        case _:
            charging = Order("charging", state.cents, state.attempt)
            return Next(charging, effects=[Charge(state.cents, state.attempt)])


@perdure.effect_handler(Charge)
async def charge(params: Charge, call: perdure.Call) -> Charge.Receipt:
    if params.cents == 7 and params.attempt < 3:
        raise ConnectionError("the bank is closed")
    if params.cents == 2:
        await asyncio.sleep(60)
    done(call, f"charged {params.cents}")
    return Charge.Receipt(f"auth-{call.key}")


class Sum(perdure.Record, name="c/Sum@1"):
    cents: perdure.Nat = 0
    heard: list[str] = []  # noqa: RUF012  # a struct copies it


@perdure.cell("c/total@1", effects=[])
def total(state: Sum | None, event: Paid | Placed) -> Next:
    """There is one. It hears two kinds of events."""
    before = state or Sum()
    kind = type(event).__name__
    cents = before.cents + (event.cents if kind == "Paid" else 0)
    return Next(Sum(cents, sorted([*before.heard, f"{kind} {event.id}"])))


@perdure.cell("c/day@1", key="day", effects=[])
def day(state: Sum | None, event: Paid) -> Next:
    before = state or Sum()
    return Next(Sum(before.cents + event.cents, sorted([*before.heard, event.id])))


@perdure.cell("c/mirror@1", key="id", effects=[])
def mirror(state: Sum | None, event: Paid | Dropped) -> Next:
    """Has the key of its order."""
    return Next(Sum((state or Sum()).cents + 1))


# ---- what people do ----------------------------------------------------------------------------------------------


def orders(world: World) -> None:
    """A payment is told to who asked for it, and a fact of it to the sum of all."""
    for n, cents in enumerate((4, 5)):
        world.send(Placed(f"o{n}", cents), id=f"e{n}")
    world.run()


def retries(world: World) -> None:
    world.send(Placed("o", 7), id="e")
    world.run()


def duplicates(world: World) -> None:
    """The same event twice, and the same receipt twice: of an effect that is open, and of one that no longer is."""
    for _ in range(2):
        world.send(Placed("o", 5), id="once")
    world.run()
    for id, rows in list(world._simulation.database.histories.items()):
        for entry in entries_of(rows):
            if type(entry.event) is ReceiptArrived:
                world._simulation.request(id, entry.event, "the same receipt")
    world.send(Placed("o", 6), id="twice")
    world.send(Placed("o", 5), id="once")
    world.run()


def fans(world: World) -> None:
    """One fact to the arms of several cells, with keys and without."""
    for n, cents in enumerate((3, 4, 5)):
        world.send(Placed(f"o{n}", cents), id=f"e{n}")
    world.run()


def deletes(world: World) -> None:
    """Gone with an alarm open, there again, gone again: what was open is answered to nobody."""
    world.send(Placed("o", 7), id="first")
    world.advance(0.5)
    world.send(Dropped("o"), id="drop")
    world.send(Placed("o", 8), id="second")
    world.run()
    world.send(Dropped("o"), id="drop again")
    world.run()


class Begun(perdure.Record, name="c/Begun@1"):
    id: str


class Known(perdure.Record, name="c/Known@1"):
    found: list[str] = []  # noqa: RUF012  # a struct copies it


@perdure.flow(name="c-bakes")
async def bakes(ctx: perdure.Context, text: str) -> str:
    if text == "stone":
        raise ValueError("a stone is no bread")
    return await ctx.step("bake", bake, text)


async def bake(text: str) -> str:
    about = perdure.step_info()
    OUTSIDE[f"{about.instance} {about.idempotency_key}"] = f"baked {text}"
    return text.upper()


@perdure.cell("c/parent@1", key="id", effects=[Spawn])
def parent(state: Known | None, event: Begun | ReceiptOf[Spawn], ctx: CellContext) -> Next:
    if isinstance(event, Begun):
        asked = [Spawn.of(bakes, text, key=f"{ctx.key}-{text}") for text in ("bread", "stone")]
        return Next(Known(), effects=[*asked, Spawn.of(bakes, "cake", key="cake", detached=True)])
    assert state is not None
    return Next(Known(sorted([*state.found, f"{event.status} {event.value.value if event.value else ''}"])))


def children(world: World) -> None:
    world.send(Begun("p"), id="e")
    world.run()


@perdure.cell("c/herald@1", key="id", effects=[Publish, Charge])
def herald(state: Known | None, event: Begun | ReceiptOf[Charge]) -> Next:
    if isinstance(event, Begun):
        return Next(Known(), effects=[Publish.of("news", "begun"), Charge(1)])
    if not event.ok:  # two processes died with it, and nobody knows
        return Next(state, effects=[Charge(1)])
    return Next(Known(["told"]), effects=[Publish.of("news", event.value.auth), Publish.of("more", [1, 2])])


def publishes(world: World) -> None:
    world.send(Begun("h"), id="e")
    world.run()


@perdure.cell("c/archive@1", key="id", effects=[BlobPut, BlobGet])
def archive(state: Known | None, event: Begun | ReceiptOf[BlobPut | BlobGet]) -> Next:
    match event:
        case Begun() | ReceiptOf(params=BlobPut(), ok=False):  # processes that die one after the other use it up
            return Next(Known(), effects=[BlobPut(b"page one")])
        case ReceiptOf(params=BlobPut()):
            return Next(state, effects=[BlobGet(event.value.hash)])
        case _:
            assert state is not None
            found = [*state.found, event.value.data.decode() if event.ok else "lost"]
            return Next(Known(found), effects=[BlobGet("sha256:" + "0" * 64)] if event.ok else [])


def blobs(world: World) -> None:
    """Bytes go into the store of the world, past its journal, and come back by their hash."""
    disk = world._simulation.disk

    @perdure.effect_handler(BlobPut)
    async def put(params: BlobPut, call: perdure.Call) -> dict[str, Any]:
        with disk.queries() as queries:
            return await BlobEffects(queries, lambda: 1).put(params, call)

    @perdure.effect_handler(BlobGet)
    async def get(params: BlobGet, call: perdure.Call) -> dict[str, Any]:
        with disk.queries() as queries:
            return await BlobEffects(queries, lambda: 1).get(params, call)

    world._simulation.handlers.update({handler.effect: handler for handler in (put, get)})
    world.send(Begun("a"), id="e")
    world.run()


class Ask(perdure.Effect, name="c/ask@1", outside="bank", timeout=10 * MINUTE):
    text: str

    class Receipt(perdure.Record):
        answer: str


@perdure.cell("c/asker@1", key="id", effects=[Ask])
def asker(state: Known | None, event: Begun | ReceiptOf[Ask] | Rejected) -> Next:
    if isinstance(event, Begun):
        return Next(Known(), effects=[Ask("soon"), Ask("late")])
    assert state is not None
    if isinstance(event, Rejected):
        return Next(Known([*state.found, event.code]), effects=[Ask("again")])
    heard = event.value.answer if event.value is not None else event.status
    return Next(Known([*state.found, f"{event.params.text}: {heard}"]))


def open_outside(world: World) -> dict[str, perdure.OpenEffect]:
    return {each.params["text"]: each for each in at_once(world._client.open_effects())}


def asked(world: World, text: str) -> perdure.OpenEffect:
    """What waits for an answer, as soon as it does."""
    stage = world._simulation
    while text not in (found := open_outside(world)) and stage.next_at() is not None:
        stage.pass_until(stage.next_at())
    return found[text]


def answer(world: World, effect: perdure.OpenEffect, ok: Any, *, key: perdure.Key = KEY, by: str = "bank") -> None:
    """A crash may take the word that it was heard: who asks again is told that it is answered."""
    signature = perdure.sign(effect, key, ok=ok)
    with suppress(UnknownIntent):
        at_once(world._client.answer(effect, executor=by, ok=ok, signature=signature))


def outside(world: World) -> None:
    """One answer is forged twice, given, and given again; the other comes after its deadline."""
    world.send(Begun("a"), id="e")
    soon, late = asked(world, "soon"), asked(world, "late")
    forger = perdure.Key.hmac("bank-1", bytes(32))
    for lie in ({"key": forger}, {"by": "mallory"}):
        with pytest.raises(ReceiptRefused):
            answer(world, soon, {"answer": "forged"}, **lie)
    assert open_outside(world) == {"soon": soon, "late": late}
    answer(world, soon, {"answer": "yes"})
    answer(world, soon, {"answer": "no"})
    world.run()
    answer(world, late, {"answer": "too late"})
    assert open_outside(world) == {}
    world.run()


def rejected(world: World) -> None:
    """What is signed, and is no receipt, is told to who asked."""
    world.send(Begun("a"), id="e")
    answer(world, asked(world, "soon"), {"answer": 7})
    answer(world, asked(world, "again"), {"answer": "better"})
    answer(world, asked(world, "late"), {"answer": "in time"})
    world.run()


@perdure.cell("c/lamp@1", key="id", effects=[Charge])
def lamp(state: Known | None, event: Begun | Dropped | ReceiptOf[Charge], ctx: CellContext) -> Next:
    """Its second event is poison as long as the code is broken."""
    before = state or Known()
    if isinstance(event, Dropped) and Lamp.broken:
        raise ZeroDivisionError("the code is broken")
    found = sorted([*before.found, type(event).__name__])
    return Next(Known(found), effects=[Charge(2)] if isinstance(event, Begun) else [])


def stuck(world: World) -> None:
    """Events that come while it is stuck, a receipt among them, are heard when it goes on."""
    world.send(Begun("l"), id="begin")
    world.send(Dropped("l"), id="poison")
    world.send(Begun("l"), id="behind it")
    world.run()
    assert world.handle(lamp, "l").status == "stuck"
    Lamp.broken = False
    with suppress(NotStuck):  # the word that it goes on was lost
        world.handle(lamp, "l").retry()
    world.run()


class Tell(perdure.Effect, name="c/tell@1"):
    words: list[str]

    class Frame(perdure.Record):
        word: str

    class Receipt(perdure.Record):
        count: perdure.Nat


@perdure.effect_handler(Tell)
async def tell(params: Tell, call: perdure.Call) -> Tell.Receipt:
    for word in params.words:
        perdure.progress(call.delivery)  # a frame that is no event: as many as there were deliveries
        perdure.emit(Tell.Frame(word))
        if word != "and":
            await asyncio.sleep(1)
    done(call, "told")
    return Tell.Receipt(len(params.words))


@perdure.cell("c/listener@1", key="id", effects=[Tell])
def listener(state: Known | None, event: Begun | perdure.FrameOf[Tell] | ReceiptOf[Tell]) -> Next:
    match event:
        case Begun() | ReceiptOf(ok=False):  # processes that die one after the other use it up
            return Next(Known(), effects=[Tell(["one", "and", "two", "three"])])
        case perdure.FrameOf():
            assert state is not None
            return Next(Known([*state.found, f"{event.number} {event.value.word}"]))
        case _:
            assert state is not None
            return Next(Known([*state.found, f"all {event.value.count}"]))


def streams(world: World) -> None:
    """Frames are heard once each, in order, and before the receipt."""
    for id in ("a", "b"):
        world.send(Begun(id), id=id)
    world.run()


class Score(perdure.Record, name="c/Score@1"):
    sum: perdure.Nat
    since: str


@perdure.cell("c/points@1", key="id", effects=[Charge])
def points(state: Sum | None, event: Placed | Dropped | ReceiptOf[Charge]) -> Next:
    before = (state or Sum()).cents
    if isinstance(event, Dropped):
        return Next(None)
    if isinstance(event, ReceiptOf):
        return Next(Sum(before + 100))
    return Next(Sum(before + event.cents), effects=[Charge(event.cents)])


def scored(old: Sum) -> Score:
    return Score(old.cents, f"migrated at {old.cents}")


@perdure.cell("c/points@2", key="id", effects=[Charge], migrate=scored)
def points_2(state: Score | None, event: Placed | Dropped | ReceiptOf[Charge]) -> Next:
    before = state or Score(0, "new")
    if isinstance(event, Dropped):
        return Next(None)
    if isinstance(event, ReceiptOf):
        return Next(Score(before.sum + 1000, before.since))
    return Next(Score(before.sum + event.cents, before.since), effects=[Charge(event.cents)])


def only_small(old: Sum) -> Score:
    if old.cents > 200:
        raise OverflowError("too much to be carried over")
    return scored(old)


@perdure.cell("c/points@3", key="id", effects=[Charge], migrate=only_small)
def points_3(state: Score | None, event: Placed | Dropped | ReceiptOf[Charge]) -> Next:
    return points_2.function(state, event)  # type: ignore[no-any-return]


def of_either(old: Sum | Score) -> Score:
    return scored(old) if isinstance(old, Sum) else Score(old.sum, f"twice {old.since}")


@perdure.cell("c/points@4", key="id", effects=[Charge], migrate=of_either)
def points_4(state: Score | None, event: Placed | Dropped | ReceiptOf[Charge]) -> Next:
    return points_2.function(state, event)  # type: ignore[no-any-return]


FIRST, THEN = perdure.manifest(points), perdure.manifest(points_2)
FRAIL, MENDED = perdure.manifest(points_3), perdure.manifest(points_4)
FIRST.earlier += [*THEN.cells, *FRAIL.cells, *MENDED.cells]


def apply(world: World, mode: str, id: str, bound: BoundManifest = THEN) -> None:
    stage = world._simulation
    while stage.database.inbox:  # what comes before it shall be heard before it
        stage.pass_until(stage.next_at())
    apply_now(world, mode, id, bound)


def apply_now(world: World, mode: str, id: str, bound: BoundManifest) -> None:
    body = encode({"manifest": bound.manifest.bytes, "mode": mode})
    at_once(world._connection.put(RULER, Message(f"{RULING}apply", body, id)))


def pinned(world: World) -> None:
    """Who lives stays what it is; who comes later is of the new kind."""
    world.send(Placed("a", 1), id="a1")
    apply(world, "pinned", "apply")
    world.send(Placed("a", 2), id="a2")
    world.send(Placed("b", 3), id="b1")
    world.run()


def migrate(world: World) -> None:
    """One goes over when it hears its receipt, one when it is next told something, one is new."""
    world.send(Placed("a", 1), id="a1")
    world.run()
    world.send(Placed("b", 2), id="b1")
    apply(world, "migrate", "apply")
    world.run()
    world.send(Placed("a", 4), id="a2")
    world.send(Placed("c", 8), id="c1")
    world.run()


def mended(world: World) -> None:
    """One cannot go over. It goes over to the next definition, with all that waited, and so do the others."""
    world.send(Placed("a", 1), id="a1")
    world.send(Placed("b", 150), id="b1")
    world.run()
    apply(world, "migrate", "apply", FRAIL)
    world.send(Placed("a", 2), id="a2")
    world.send(Placed("b", 4), id="b2")
    world.run()
    assert world.handle("c/points", "b").status == "stuck"
    apply_now(world, "migrate", "apply again", MENDED)
    world.advance(0.1)
    with suppress(NotStuck):  # the word that it goes on was lost
        world.handle("c/points", "b").retry()
    world.send(Placed("a", 8), id="a3")
    world.run()


def strict(world: World) -> None:
    """Refused as long as anything lives, and then not."""
    world.send(Placed("a", 1), id="a1")
    world.run()
    apply(world, "strict", "too early")
    world.send(Dropped("a"), id="a2")
    world.run()
    apply(world, "strict", "now")
    world.send(Placed("a", 2), id="a3")
    world.run()


def snapshots(world: World) -> None:
    """Two of the world: one with an effect open and one with a cell gone."""
    world.send(Placed("a", 2), id="a1")
    world.snapshot()
    world.run()
    world.send(Dropped("a"), id="a2")
    world.snapshot()
    world.send(Placed("a", 3), id="a3")
    world.run()


class Scene(NamedTuple):
    """`ends`: the states in the end, by cell and key; a cell that is gone is not there."""

    story: Callable[[World], None]
    workflows: Sequence[Any]
    ends: dict[str, Any]
    may_break: Sequence[str] = ()


def paid(cents: int, id: str, attempt: int = 1) -> Order:
    return Order("paid", cents, attempt, f"auth-{id}")


SCENES = [
    Scene(
        orders,
        [order, total],
        {
            "c/order/o0": paid(4, "o0"),
            "c/order/o1": paid(5, "o1"),
            "c/total/": Sum(9, ["Paid o0", "Paid o1", "Placed o0", "Placed o1"]),
        },
    ),
    Scene(retries, [order, total], {"c/order/o": paid(7, "o", 3), "c/total/": Sum(7, ["Paid o", "Placed o"])}),
    Scene(
        duplicates,
        [order, total],
        {"c/order/o": paid(6, "o"), "c/total/": Sum(11, ["Paid o", "Paid o", "Placed o", "Placed o"])},
    ),
    Scene(
        fans,
        [order, total, day, mirror],
        {
            **{f"c/order/o{n}": paid(3 + n, f"o{n}") for n in range(3)},
            **{f"c/mirror/o{n}": Sum(1) for n in range(3)},
            "c/total/": Sum(12, [f"{kind} o{n}" for kind in ("Paid", "Placed") for n in range(3)]),
            "c/day/monday": Sum(8, ["o0", "o2"]),
            "c/day/tuesday": Sum(4, ["o1"]),
        },
    ),
    Scene(deletes, [order, mirror], {"c/mirror/o": Sum(3)}),
    Scene(children, [parent, bakes], {"c/parent/p": Known(["error ", "ok BREAD", "ok cake"])}),
    Scene(
        streams,
        [listener],
        {f"c/listener/{id}": Known(["1 one", "2 and", "3 two", "4 three", "all 4"]) for id in "ab"},
    ),
    Scene(publishes, [herald], {"c/herald/h": Known(["told"])}),
    Scene(blobs, [archive], {"c/archive/a": Known(["page one", "lost"])}),
    Scene(outside, [asker], {"c/asker/a": Known(["soon: yes", "late: timeout"])}),
    Scene(rejected, [asker], {"c/asker/a": Known(["SchemaMismatch", "again: better", "late: in time"])}),
    Scene(stuck, [lamp], {"c/lamp/l": Known(["Begun", "Begun", "Dropped", "ReceiptOf", "ReceiptOf"])}, ["c/lamp"]),
    Scene(pinned, [FIRST], {"c/points/a": Sum(203), "c/points/b": Score(1003, "new")}),
    Scene(
        migrate,
        [FIRST],
        {
            "c/points/a": Score(1105, "migrated at 101"),
            "c/points/b": Score(1002, "migrated at 2"),
            "c/points/c": Score(1008, "new"),
        },
    ),
    Scene(
        mended,
        [FIRST],
        {"c/points/a": Score(2111, "twice migrated at 101"), "c/points/b": Score(1254, "migrated at 250")},
        ["c/points"],
    ),
    Scene(strict, [FIRST], {"c/points/a": Score(1002, "new")}),
    Scene(
        snapshots,
        [order, day],
        {"c/order/a": paid(3, "a"), "c/day/monday": Sum(3, ["a"]), "c/day/tuesday": Sum(2, ["a"])},
    ),
]


def trial(scene: Scene, cache: int, *, thorough: bool = True) -> WorldTrial:
    return WorldTrial(
        scene.story,
        scene.workflows,
        handlers=[charge, tell],
        verify=KEYS.judge,
        may_break=scene.may_break,
        thorough=thorough,
        cache=cache,
        reset=reset,
        observe=lambda: sorted(OUTSIDE.values()),
    )


every_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.story.__name__)
evicted = pytest.mark.parametrize("cache", [0, 4096][: 1 + LONG], ids=["evicted", "hot"][: 1 + LONG])
"""In memory. A hot world is in a file too, where its rows are looked at; `make test-long` has both on both."""
hot = pytest.mark.parametrize("cache", [4096, 0][: 1 + LONG], ids=["hot", "evicted"][: 1 + LONG])


@every_scene
def test_without_a_crash_it_ends_as_it_should(scene: Scene) -> None:
    """Else two wrong ends would be equal."""
    with quiet_log():
        ending = trial(scene, 4096).run(CALM)

    assert ending.problem == ""
    states = {name: each["state"] for name, each in ending.instances.items() if each["state"] is not None}
    assert {name.partition(",")[0]: state for name, state in states.items()} == scene.ends


@evicted
@every_scene
def test_a_crash_anywhere_makes_no_difference(scene: Scene, cache: int) -> None:
    with quiet_log():
        report = Search(trial(scene, cache), scene.story.__name__).all(None, pairs=4, random=4, seed=0)

    assert report.singles >= 4


@evicted
@every_scene
def test_another_owner_at_any_commit_makes_no_difference(scene: Scene, cache: int) -> None:
    """The one before does not know, and tries to write what it has decided: it is refused, and writes nothing."""
    with quiet_log():
        search = Search(trial(scene, cache), scene.story.__name__)
        endings = [search.check(Schedule((point,))) for point in take_overs_of(search.calm)]

    assert len(endings) >= 3 and all(ending.deaths for ending in endings)


@hot
@every_scene
def test_a_crash_or_another_owner_anywhere_makes_no_difference_and_leaves_the_same_rows_in_a_file_as_in_memory(
    scene: Scene, cache: int
) -> None:
    with quiet_log():
        both = OnBoth(trial(scene, cache), trial(scene, cache, thorough=False))
        search = Search(both, scene.story.__name__)
        points = [*points_of(search.calm), *take_overs_of(search.calm)]
        deaths = [search.check(Schedule((point,))).deaths for point in points]
        search.check(Schedule(random=cache))

    assert len(points) >= 7 and all(deaths)
