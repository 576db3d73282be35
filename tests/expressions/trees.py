"""Random trees and values for property tests."""

import base64
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from keyword import iskeyword
from uuid import UUID

from hypothesis import strategies as st

from perdure.expressions.functions import FUNCTIONS
from perdure.expressions.python import LAZY, NAMES

NAMED = st.from_regex(r"[a-z_][a-z0-9_]{0,4}", fullmatch=True).filter(lambda name: not iskeyword(name))
NAN = float("nan")
TEXTS = st.text(max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
LITERALS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-9999, max_value=9999).map(
        lambda d: ["decimal", str(d)]
    ),
    st.datetimes().map(lambda d: ["datetime", d.isoformat() + "Z"]),
    st.dates().map(lambda d: ["date", d.isoformat()]),
    st.integers(-999, 999).map(lambda n: ["duration", f"{'-' if n < 0 else ''}PT{abs(n)}S"]),
    st.uuids().map(lambda u: ["uuid", str(u)]),
    st.binary(max_size=6).map(lambda b: ["bytes", base64.b64encode(b).decode()]),
)
VALUES = st.recursive(
    SCALARS
    | st.sampled_from(
        [Decimal("1.50"), datetime(2024, 2, 29, tzinfo=UTC), timedelta(days=1), UUID(int=7), b"abc", float("nan")]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


def _gets(names):
    return st.tuples(names, st.lists(NAMED | TEXTS | st.integers(-3, 3), max_size=3)).map(
        lambda p: {"get": [p[0], *p[1]]}
    )


def _call(name, inner):
    """A call with as many arguments as the function takes."""
    if name in LAZY:
        least, most = LAZY[name]
        each = False
    else:
        function = FUNCTIONS[name]
        least, most, each = function.least, function.most, function.each
    args = st.lists(inner, min_size=least, max_size=least + 2 if most is None else most)
    plain = args.map(lambda args: {"call": [name, *args]})
    if not each:
        return plain
    body = st.tuples(NAMED, inner).map(lambda pair: {"each": list(pair)})
    bodied = st.tuples(args, body).map(lambda pair: {"call": [name, *pair[0], pair[1]]})
    return bodied if name in ("map", "filter") else plain | bodied


def trees(names=NAMED):
    leaves = SCALARS | _gets(names) | LITERALS.map(lambda pair: {"value": pair})
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda items: {"list": items}),
            st.dictionaries(TEXTS, inner, max_size=3).map(lambda pairs: {"object": pairs}),
            st.sampled_from(sorted(NAMES)).flatmap(lambda name: _call(name, inner)),
        ),
        max_leaves=12,
    )
