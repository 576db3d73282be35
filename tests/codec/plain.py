"""Plain data for property tests."""

from datetime import UTC
from decimal import Decimal

from hypothesis import strategies as st

decimals = st.builds(
    lambda digits, exponent: Decimal((digits < 0, tuple(map(int, str(abs(digits)))), exponent)),
    st.integers(-(10**40), 10**40),
    st.integers(-50, 50),
)
aware_datetimes = st.datetimes(timezones=st.just(UTC))
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
keys = st.one_of(text, st.integers(-(2**64), 2**64 - 1), st.binary(max_size=30))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    text,
    st.binary(max_size=40),
    aware_datetimes,
    st.dates(),
    st.timedeltas(),
    decimals,
    st.uuids(),
)
plain_data = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=20,
)
