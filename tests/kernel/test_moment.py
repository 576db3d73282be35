"""Recorded nanoseconds and times: to the microsecond, never a later one."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from perdure.kernel.moment import at_of, when


@given(st.integers(0, 2**63 - 1))
def test_a_time_is_the_microsecond_in_which_its_nanoseconds_lie(at: int) -> None:
    assert at_of(when(at)) <= at < at_of(when(at) + timedelta(microseconds=1))


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_from_its_record(time: datetime) -> None:
    assert when(at_of(time)) == time
