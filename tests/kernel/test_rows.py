"""The rows of a batch: heads, open work, published values, snapshots."""

from perdure.codec import decode
from perdure.kernel import snapshot
from perdure.kernel.batch import Batch
from perdure.kernel.rows import decode_outcome
from tests.kernel.machines import World

WAIT = ("wait", "w", None)


def test_a_head_is_written_at_the_start_and_when_the_status_changes_only():
    world = World()
    world.start("a", ("call", "x"), ("then", "x", [("call", "y")]), ("then", "y", [WAIT]))
    assert [head.status for head in world.commit(world.build()).heads.values()] == ["running"]

    world.answer("a", "x")
    assert not world.commit(world.build()).heads
    world.answer("a", "y")
    assert [head.status for head in world.commit(world.build()).heads.values()] == ["waiting"]
    world.tell("a", ("note",))
    assert not world.commit(world.build()).heads


def test_a_run_of_n_steps_costs_n_plus_one_entries_and_two_heads():
    world = World()
    orders = [("then", f"s{n}", [("call", f"s{n + 1}")]) for n in range(5)]
    world.start("a", *orders, ("then", "s5", [("complete", 1)]), ("call", "s0"))
    heads = 0
    heads += len(world.commit(world.build()).heads)
    for n in range(6):
        world.answer("a", f"s{n}")
        heads += len(world.commit(world.build()).heads)

    assert (len(world.journal), heads) == (7, 2)
    assert not world.work and not world.inbox


def test_a_head_says_who_when_and_how_it_ended():
    world = World()
    world.start("a", WAIT)
    world.run()
    world.now = 5_000
    world.tell("a", ("complete", {"n": 1}))
    world.run()

    head = world.heads[world.id("a")]

    assert (head.workflow, head.key, head.generation, head.version) == ("told", "a", 1, "1")
    assert (head.status, head.started_at, head.changed_at, head.parent) == ("completed", 1_000, 5_000, 0)
    assert head.outcome is not None
    outcome = decode_outcome(head.outcome)
    assert outcome.value is not None and decode(outcome.value) == {"n": 1}


def test_timers_and_deadlines_are_rows_and_calls_are_not():
    world = World()
    world.start("a", ("timer", "t", 5), ("wait", "w", 7), ("wait", "v", None), ("call", "x"))
    world.run()

    rows = {(row.kind, row.due, row.instance) for row in world.work.values()}

    assert rows == {("timer", 5, world.id("a")), ("deadline", 7, world.id("a"))}


def test_a_timer_that_is_opened_and_closed_in_one_batch_leaves_no_row():
    world = World()
    world.start("a", ("timer", "t", 5_000), WAIT)
    world.tell("a", ("withdraw", "t"))

    batch = world.build()

    assert not batch.work_opened and not batch.work_closed


def test_a_timer_that_is_opened_by_the_last_entry_leaves_no_row():
    world = World()
    world.start("a", ("timer", "t", 5_000), ("call", "x"), ("complete", 1))

    batch = world.build()

    assert not batch.work_opened and not batch.work_closed
    assert not batch.publications and not batch.stops


def test_a_timer_is_deleted_by_its_receipt_by_a_withdrawal_and_by_the_end():
    world = World()
    world.start("a", ("timer", "t", 2_000), ("timer", "u", 9_000), ("timer", "v", 9_000))
    world.run()
    world.now = 3_000
    world.fire().run()
    assert len(world.work) == 2
    world.tell("a", ("withdraw", "u"))
    world.run()
    assert len(world.work) == 1
    world.tell("a", ("complete", 1))
    world.run()

    assert not world.work


def test_a_location_that_is_closed_and_opened_again_in_one_batch_is_one_new_row():
    world = World()
    world.start("a", ("timer", "t", 5_000))
    world.run()
    world.tell("a", ("withdraw", "t"), ("timer", "t", 8_000))

    batch = world.commit(world.build())

    assert [row.due for row in batch.work_opened.values()] == [8_000]
    assert [row.due for row in world.work.values()] == [8_000]


def test_a_location_that_is_opened_closed_and_opened_again_in_one_batch_is_one_row():
    world = World()
    world.start("a", ("timer", "t", 5_000))
    world.tell("a", ("withdraw", "t"), ("timer", "t", 8_000))
    world.tell("a", ("withdraw", "t"), ("timer", "t", 9_000))

    world.commit(world.build())

    assert [row.due for row in world.work.values()] == [9_000]


def test_a_call_that_is_opened_and_withdrawn_in_one_batch_is_neither_started_nor_stopped():
    world = World()
    world.start("a", ("call", "x"), WAIT)
    world.tell("a", ("withdraw", "x"))

    batch = world.build()

    assert not batch.publications and not batch.stops


def test_a_withdrawn_call_is_stopped_and_an_answered_one_is_not():
    world = World()
    for location in ("x", "y", "z"):
        world.start(location, ("call", location), WAIT)
    world.run()
    world.tell("x", ("withdraw", "x"))
    world.answer("y", "y")
    world.answer("z", "z", "timeout")

    batch = world.build()

    assert batch.stops == [world.intent("x", "x"), world.intent("z", "z")]


def test_the_last_published_value_of_a_batch_is_written():
    world = World()
    world.start("a", ("publish", "p", 1), WAIT)
    world.tell("a", ("publish", "p", 2), ("publish", "q", 3))
    world.run()

    values = {name: decode(value) for (_, name), value in world.published.items()}

    assert values == {"p": 2, "q": 3}
    assert {name: decode(value) for name, value in world.instance("a").published.items()} == values


def test_snapshots_are_taken_when_the_tail_outgrows_them_and_shorten_the_load(monkeypatch):
    monkeypatch.setattr("perdure.kernel.snapshot.SIZE_MIN", 2_000)
    world = World(checked=False)
    world.start("a", WAIT)
    taken = 0
    for n in range(200):
        world.tell("a", ("publish", "p", f"{n:0100}"))
        taken += len(world.commit(world.build()).snapshots)
    record = world.record(world.id("a"))
    assert record is not None and record.snapshot is not None
    assert len(record.rows) < 200 and 3 < taken < 40

    world.restart()
    world.tell("a", ("note",))
    world.run()

    assert world.heard("a") == ["Started"] + ["Message m"] * 201
    assert world.kernel.instances()[world.id("a")].state() == world.folded(world.id("a")).state()


def test_a_batch_knows_whether_it_has_something_to_write_or_to_say():
    batch = Batch()
    assert not batch and not batch.writes

    batch.answers.append(("ticket", None))  # type: ignore[arg-type]
    assert batch and not batch.writes

    batch.inbox_removed.append(b"x")
    assert batch.writes


def test_a_snapshot_remembers_everything_that_apply_folds():
    world = World()
    undo = ("then", "cancel", [("withdraw", "x"), ("publish", "p", 1)])
    world.start("a", ("call", "x"), ("call", "y"), undo)
    world.tell("a", ("note",), id="seen")
    world.run()
    world.cancel("a")
    world.run()
    live = world.instance("a")

    row = snapshot.take(live)

    assert row is not None and live.cancelled and live.seen and live.published and live.open
    assert snapshot.restore(row).state() == live.state()
