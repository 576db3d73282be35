"""What an engine measures of its own work."""

import random

import pytest

from perdure.runtime.meter import MINUTE, Meter
from perdure.runtime.virtual_clock import VirtualClock


def test_the_times_of_the_last_commits_are_told_by_their_quantiles():
    meter = Meter(VirtualClock(random.Random(1)))
    assert (meter.figures().p50, meter.figures().p95) == (None, None)

    for milliseconds in range(1, 101):
        meter.committed(milliseconds * 1_000_000, [])

    assert meter.figures().p50 == pytest.approx(0.051)
    assert meter.figures().p95 == pytest.approx(0.096)


def test_the_jobs_of_a_queue_that_ended_in_the_last_minute_are_counted():
    clock = VirtualClock(random.Random(1))
    clock.skip(MINUTE - clock.now() % MINUTE)
    meter = Meter(clock)

    def told(queue="images"):
        return meter.figures().per_minute(queue, clock.now() / 1e9)

    meter.committed(1, ["images"] * 30)
    assert (told(), told("other")) == (30, 0)

    clock.skip(clock.steady + MINUTE // 2)
    meter.committed(1, ["images"] * 6)
    assert told() == 36

    clock.skip(clock.steady + MINUTE)  # half of those of the minute before are of the last 60 seconds
    assert told() == pytest.approx(18)
    meter.committed(1, ["images"])
    assert told() == pytest.approx(19)

    clock.skip(clock.steady + 2 * MINUTE)
    assert told() == 0 and meter.figures().ended == {}
