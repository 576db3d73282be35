"""Calls as recorded data."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from perdure.codec import Signature, decode, encode
from perdure.errors import NotConvertible, NotPlain


@dataclass
class Item:
    name: str
    price: Decimal


async def order(ctx: Any, order_id: str, cents: int, note: str | None = None, *, day: date = date(2024, 1, 1)) -> Item:
    raise NotImplementedError


def total(*items: Item, factor: int = 1, **named: int) -> None: ...


ORDER = Signature.of(order, skip_first=True)
TOTAL = Signature.of(total)


def test_two_spellings_of_a_call_are_one_call():
    spelled = [
        ORDER.bind(("o-17", 4200), {}),
        ORDER.bind(("o-17",), {"cents": 4200}),
        ORDER.bind((), {"cents": 4200, "order_id": "o-17", "note": None}),
        ORDER.bind(("o-17", 4200, None), {"day": date(2024, 1, 1)}),
        ORDER.bind_plain({"order_id": "o-17", "cents": 4200}),
        ORDER.bind_plain(["o-17", 4200]),
        ORDER.bind_plain({"order_id": "o-17", "cents": 4200, "day": "2024-01-01"}),
    ]

    assert {encode(call) for call in spelled} == {encode(spelled[0])}
    assert ORDER.call_args(decode(encode(spelled[0]))) == (("o-17", 4200, None), {"day": date(2024, 1, 1)})


def test_a_signature_is_worked_out_once():
    assert Signature.of(order, skip_first=True) is ORDER
    assert Signature.of(order) is not ORDER


def test_an_argument_of_the_wrong_type_is_refused_with_flow_and_path():
    with pytest.raises(NotConvertible) as refusal:
        ORDER.bind(("o-17", "x"), {})

    assert refusal.value.path == "$.cents"
    assert str(refusal.value) == "order: $.cents: expected int, found str 'x'"


@pytest.mark.parametrize(
    ("args", "kwargs", "path", "message"),
    [
        (("o-17",), {}, "$.cents", "found no argument 'cents'"),
        (("o-17", 1, None, 4), {}, "$", "found 4 arguments by position"),
        (("o-17", 1), {"cents": 2}, "$.cents", "found two values for 'cents'"),
        (
            ("o-17", 1),
            {"note_": "x"},
            "$.note_",
            "found an argument 'note_' that it does not take; did you mean 'note'",
        ),
        (("o-17",), {"cent": 1}, "$.cent", "found an argument 'cent' that it does not take; did you mean 'cents'"),
        (("o-17", 1), {"ctx": "x"}, "$.ctx", "found an argument 'ctx' that it does not take"),
    ],
)
def test_a_wrong_call_names_the_parameter(args, kwargs, path, message):
    with pytest.raises(NotConvertible, match=message) as refusal:
        ORDER.bind(args, kwargs)

    assert refusal.value.path == path
    assert refusal.value.where == "order"


def test_rest_arguments_are_recorded_and_given_back():
    items = (Item("a", Decimal("1.10")), Item("b", Decimal(2)))

    plain = decode(encode(TOTAL.bind(items, {"factor": 2, "x": 1, "y": 2})))

    assert TOTAL.call_args(plain) == (items, {"factor": 2, "x": 1, "y": 2})
    assert TOTAL.bind_plain([{"name": "a", "price": "1.10"}, {"name": "b", "price": 2}]) == TOTAL.bind(items, {})
    with pytest.raises(NotConvertible, match=r"\$\.items\[1\]"):
        TOTAL.bind((items[0], 3), {})
    with pytest.raises(NotConvertible, match=r"\$\.named\.z"):
        TOTAL.bind((), {"z": "x"})


def test_positional_only_parameters_work():
    def power(base: int, exponent: int = 2, /) -> int:
        return int(base**exponent)

    signature = Signature.of(power)
    args, kwargs = signature.call_args(signature.bind((3,), {}))

    assert power(*args, **kwargs) == 9


def test_results_are_converted_by_the_return_annotation():
    item = Item("a", Decimal("1.10"))

    assert ORDER.result_to_plain(item) == {"name": "a", "price": Decimal("1.10")}
    assert ORDER.result_from_plain(decode(encode(ORDER.result_to_plain(item)))) == item
    with pytest.raises(NotConvertible, match="the result of order"):
        ORDER.result_to_plain("item")


def test_classes_of_the_enclosing_function_are_found_or_left_alone():
    @dataclass
    class Local:
        x: int

    def seen(value: Local) -> int:
        return Local(value.x).x

    def unseen(value: Local, count: int) -> None: ...

    value = Local(1)
    assert Signature.of(seen).call_args({"value": {"x": 1}}) == ((value,), {})
    assert Signature.of(unseen).call_args({"value": {"x": 1}, "count": 2}) == (({"x": 1}, 2), {})
    with pytest.raises(NotConvertible, match=r"\$\.count"):
        Signature.of(unseen).bind((value, "x"), {})


def test_a_default_of_none_makes_a_parameter_optional():
    def old_style(x: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert Signature.of(old_style).bind((), {}) == {"x": None}


def test_parameters_may_come_and_go_between_versions():
    def newer(order_id: str, priority: int = 5) -> None: ...

    def stricter(order_id: str, priority: int) -> None: ...

    recorded = {"order_id": "o-17", "cents": 4200}
    assert Signature.of(newer).call_args(recorded) == (("o-17",), {})
    with pytest.raises(NotConvertible, match=r"stricter: \$\.priority: expected int, found nothing"):
        Signature.of(stricter).call_args(recorded)


def test_partials_methods_and_callable_objects_have_signatures():
    class Shop:
        def buy(self, cents: int) -> int:
            return cents

        def __call__(self, cents: int) -> int:
            return cents

    for fn in (Shop().buy, Shop(), functools.partial(order, None, "o-17", note=None)):
        with pytest.raises(NotConvertible, match=r"\$\.cents: expected int"):
            Signature.of(fn).bind_plain({"cents": "x"})


@pytest.mark.parametrize(
    ("value", "bound"),
    [({"x": 1}, {"x": 1}), ([1], {"x": 1}), (1, {"x": 1}), ("a", {"x": "a"}), (None, {"x": None})],
)
def test_json_input_is_named_positional_or_the_only_argument(value, bound):
    def single(x: Any) -> None: ...

    assert Signature.of(single).bind_plain(value) == bound


def test_no_json_input_is_no_argument():
    def nothing() -> None: ...

    assert Signature.of(nothing).bind_plain(None) == {}


def test_what_has_no_plain_form_is_refused_with_its_path():
    def anything(value: Any) -> None: ...

    with pytest.raises(NotPlain) as refusal:
        Signature.of(anything).bind(({"a": [object()]},), {})

    assert refusal.value.path == "$.value.a[0]"


def test_defaults_that_cannot_be_recorded_are_left_out():
    def call(text: str = "\udc00", thing: object = open, count: int = 2) -> None: ...

    assert Signature.of(call).defaults() == {"count": 2}
