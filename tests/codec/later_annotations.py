"""Records whose annotations are text: what `from __future__ import annotations` makes of them."""

from __future__ import annotations

from typing import Any, Literal

import perdure
from perdure.codec.record import shape_of
from perdure.codec.schema import to_data


class Outer(perdure.Record, name="test/Outer@1"):
    class Inner(perdure.Record):
        word: Literal["a", "b"]

    inner: Inner
    others: list[Inner] | None = None


OUTER = Outer(Outer.Inner("a"), [Outer.Inner("b")])


def in_a_function() -> Any:
    class Local(perdure.Record):
        x: perdure.Nat

    class Holder(perdure.Record):
        inner: Local

    return to_data(shape_of(Holder).schema)
