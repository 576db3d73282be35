"""The virtual clock: time moves when it is told to, alarms keep their order, the dead call nobody."""

import random

from perdure.runtime.virtual_clock import SECOND, START, Life, ProcessClock, VirtualClock


def clock():
    return VirtualClock(random.Random(0))


def run(clock):
    while clock.step():
        pass


def test_callbacks_run_in_the_order_of_their_times():
    virtual, heard = clock(), []
    virtual.call_at(START + 2 * SECOND, lambda: heard.append("second"))
    virtual.call_at(START + SECOND, lambda: heard.append("first"))
    virtual.call_soon(lambda: heard.append("soon"))

    run(virtual)

    assert heard == ["soon", "first", "second"]
    assert virtual.now() == START + 2 * SECOND


def test_callbacks_of_one_time_run_in_the_order_in_which_they_were_set():
    virtual, heard = clock(), []
    for n in range(5):
        virtual.call_soon(lambda n=n: heard.append(n))

    run(virtual)

    assert heard == [0, 1, 2, 3, 4]


def test_a_cancelled_alarm_does_not_ring():
    virtual, heard = clock(), []
    virtual.call_at(START, lambda: heard.append(1)).cancel()

    run(virtual)

    assert heard == []


def test_the_dead_are_not_called_back():
    virtual, heard = clock(), []
    life = Life()
    process = ProcessClock(virtual, life)
    process.call_soon(lambda: heard.append("soon"))
    process.call_at(START + SECOND, lambda: heard.append("later"))
    virtual.step()

    life.alive = False
    run(virtual)

    assert heard == ["soon"]


def test_a_jump_of_the_wall_clock_moves_no_alarm():
    virtual, heard = clock(), []
    virtual.call_at(START + SECOND, lambda: heard.append(virtual.now() - START))

    virtual.jump(-10 * SECOND)
    run(virtual)

    assert heard == [-9 * SECOND]


def test_time_moves_to_the_end_of_an_empty_wait():
    virtual = clock()

    assert virtual.step(until=5 * SECOND) is False
    assert virtual.steady == 5 * SECOND


def test_the_same_seed_rolls_the_same_dice():
    assert clock().entropy(16) == clock().entropy(16)
