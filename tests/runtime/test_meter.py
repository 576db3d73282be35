"""What an engine measures of its own work."""

import pytest

from perdure.runtime.meter import MINUTE, Meter


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time = 100 * MINUTE

    def now(self) -> int:
        return self.time


def test_the_times_of_the_last_commits_are_told_by_their_quantiles():
    meter = Meter(Clock())
    assert (meter.figures().p50, meter.figures().p95) == (None, None)

    for milliseconds in range(1, 101):
        meter.committed(milliseconds * 1_000_000, [])

    assert meter.figures().p50 == pytest.approx(0.051)
    assert meter.figures().p95 == pytest.approx(0.096)


def test_the_jobs_of_a_queue_that_ended_in_the_last_minute_are_counted():
    clock = Clock()
    meter = Meter(clock)

    meter.committed(1, ["images"] * 30)

    def told(queue="images"):
        return meter.figures().per_minute(queue, clock.time / 1e9)

    assert (told(), told("other")) == (30, 0)
    clock.time += MINUTE // 2
    meter.committed(1, ["images"] * 6)
    assert told() == 36
    clock.time += MINUTE  # the middle of the next minute: half of those before are of the last 60 seconds
    assert told() == pytest.approx(18)
    meter.committed(1, ["images"])
    assert told() == pytest.approx(19)
    clock.time += 2 * MINUTE
    assert told() == 0 and meter.figures().ended == {}
