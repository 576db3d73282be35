"""The expressions of processes: trees, their text, their values and their problems."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings

from perdure.errors import BadExpression, ExpressionError
from perdure.expressions import PROCESS, Meter, check, compile_tree, parse, text
from tests.expressions.trees import VALUES, trees
from tests.stages import LONG

NOW = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
ROOTS = {
    "state": {
        "amount": Decimal("9.50"),
        "count": 3,
        "name": "Ann",
        "none": None,
        "tags": ["b", "a", "b"],
        "ready": True,
    },
    "start": {"lines": [{"sku": "x", "count": 2}, {"sku": "y", "count": 5}], "at": NOW, "day": date(2024, 2, 29)},
}


def value(expression, roots=ROOTS, **given):
    return compile_tree(parse(expression) if isinstance(expression, str) else expression).evaluate(roots, **given)


CASES = [
    ("state.amount < 500", True),
    ("state.count + 2 * 3 - 1", 8),
    ("7 / 2", 3.5),
    ("-7 % 3", 2),
    ("-state.count", -3),
    ("abs(neg(4)) + floor(2.9) + ceil(2.1)", 4 + 2 + 3),
    ("round(2.5)", 2.0),
    ('round(value("decimal", "2.675"), 2)', Decimal("2.68")),
    ('state.amount + value("decimal", "0.50")', Decimal("10.00")),
    ("state.amount * 2", Decimal("19.00")),
    ('value("decimal", "-7") % 3', Decimal(2)),
    ("1 == 1.0", True),
    ("1 == True", False),
    ("'1' == 1", False),
    ('value("decimal", "0.5") == 0.5', False),
    ("[1, {'a': 2}] == [1, {'a': 2}]", True),
    ("state.missing", None),
    ("state.none.deeper.still", None),
    ("state.tags[0]", "b"),
    ("state.tags[-1]", "b"),
    ("state.tags[9]", None),
    ("at(state.tags, state.count - 2)", "a"),
    ("first(start.lines).sku", "x"),
    ("start.lines[state.count - 2]['sku']", "y"),
    ("coalesce(state.none, state.missing, 'x')", "x"),
    ("'yes' if state.ready else 1 / 0", "yes"),
    ("False and 1 / 0 == 1", False),
    ("True or state.none", True),
    ("state.ready & ~(state.count > 5) | False", True),
    ("not state.ready", False),
    ("concat('a', state.name, '!')", "aAnn!"),
    ("concat([1], [2], [])", [1, 2]),
    ("upper(state.name) == 'ANN' and lower('Ä') == 'ä' and trim('  a ') == 'a'", True),
    ("length(state.tags) + length('abc') + length({'a': 1})", 7),
    ("contains('haystack', 'st') and contains([1, [2]], [2]) and contains({'k': 1}, 'k')", True),
    ("'a' in state.tags and 'z' not in state.tags", True),
    ("starts('abc', 'ab') and ends('abc', 'bc')", True),
    ("replace('a-b-c', '-', '+')", "a+b+c"),
    ("split('a,b,', ',')", ["a", "b", ""]),
    ("split(' a  b ')", ["a", "b"]),
    ("join(state.tags, '-')", "b-a-b"),
    ("is_blank(' ') and is_blank(None) and is_blank([]) and not is_blank(0)", True),
    ("last(state.tags)", "b"),
    ("first([])", None),
    ("slice([1, 2, 3, 4], 1, 3)", [2, 3]),
    ("slice('abcd', -2)", "cd"),
    ("map(start.lines, lambda x: x.count * 2)", [4, 10]),
    ("map(start.lines, lambda x: map(range(2), lambda y: y + x.count))", [[2, 3], [5, 6]]),
    ("filter(start.lines, lambda x: x.count > 2)", [{"sku": "y", "count": 5}]),
    ("any(start.lines, lambda x: x.count > 4)", True),
    ("all([True, False])", False),
    ("sort(state.tags)", ["a", "b", "b"]),
    ("map(sort(start.lines, lambda x: -x.count), lambda x: x.sku)", ["y", "x"]),
    ("unique([1, 1.0, 'a', [1], [1], True])", [1, "a", [1], True]),
    ("range(3)", [0, 1, 2]),
    ("range(5, 0, -2)", [5, 3, 1]),
    ("sum([1, 2.5])", 3.5),
    ("min(3, 1, 2) + max([1, 4])", 5),
    ("min([])", None),
    ("keys({'b': 1, 'a': 2})", ["a", "b"]),
    ("values({'b': 1, 'a': 2})", [2, 1]),
    ("pick({'b': 1, 'a': 2}, 'a')", {"a": 2}),
    ("omit({'b': 1, 'a': 2}, ['a'])", {"b": 1}),
    ("merge({'a': 1}, {'a': 2, 'b': 3})", {"a": 2, "b": 3}),
    ("text(1.5)", "1.5"),
    ("text({'b': [None, True], 'a': 'x'})", '{"a": "x", "b": [null, true]}'),
    ("number(' 12 ') + number('1e2')", 112.0),
    ("decimal('1.10')", Decimal("1.10")),
    ("decimal(0.1)", Decimal("0.1")),
    ('date_add(start.at, value("duration", "P1D"))', NOW + timedelta(days=1)),
    ("date_add(start.day, 1, 'days')", date(2024, 3, 1)),
    ("date_diff(date_add(start.at, 90, 'minutes'), start.at)", timedelta(minutes=90)),
    ("date_diff(date_add(start.at, 36, 'hours'), start.at, 'days')", 1),
    ("format_date(start.at, '%d.%m.%Y %H:%M:%S %%')", "29.02.2024 12:30:00 %"),
    ("now() == start.at", True),
    ("sha256('abc')", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ('value("uuid", "00000000-0000-0000-0000-000000000007")', UUID(int=7)),
    ('value("bytes", "YWJj")', b"abc"),
    ('text(value("duration", "PT90S"))', "PT90S"),
]


@pytest.mark.parametrize(("expression", "expected"), CASES, ids=[case[0] for case in CASES])
def test_an_expression_has_its_value(expression, expected):
    found = value(expression, now=NOW)

    assert found == expected
    assert type(found) is type(expected)


FAILURES = [
    ("state.name + 1", "takes number"),
    ("state.ready + 1", "takes number"),
    ("state.none + 1", "takes number"),
    ("state.amount + 0.5", "do not mix"),
    ("state.amount < 0.5", "do not mix"),
    ("sort([state.amount, 1, 0.5])", "do not mix"),
    ("state.name < 1", "no order"),
    ("state.none < 1", "no order"),
    ("state.ready < True", "no order"),
    ("state.count.deeper", "no member"),
    ("state.tags.sku", "no member"),
    ("state.none and True", "boolean"),
    ("not state.count", "boolean"),
    ("1 if state.name else 2", "boolean"),
    ("filter([1], lambda x: x)", "boolean"),
    ("1 / 0", "divides by zero"),
    ('value("decimal", "1") / 0', "divides by zero"),
    ("1e308 * 10", "too large"),
    ("concat('a', state.count)", "takes list or text"),
    ("join([1], ',')", "only texts"),
    ("number('x')", "spells no number"),
    ("number('1_000')", "spells no number"),
    ("number('١')", "spells no number"),
    ("replace('a', '', 'b')", "empty"),
    ("split('a', '')", "empty"),
    ("range(1, 2, 0)", "step"),
    ("format_date(now(), '%100d')", "knows only"),
    ("date_add(start.day, 1, 'hours')", "whole days"),
    ("date_add(now(), 10000000000, 'days')", "cannot be computed"),
    ("sum([1, 'a'])", "has a text"),
]


@pytest.mark.parametrize(("expression", "reason"), FAILURES, ids=[case[0] for case in FAILURES])
def test_nothing_is_converted_and_a_failure_says_why(expression, reason):
    with pytest.raises(ExpressionError, match=reason) as caught:
        value(expression, now=NOW)

    assert caught.value.path


def test_a_failure_carries_text_operands_and_path():
    with pytest.raises(ExpressionError) as caught:
        value("state.ready and state.count < state.name")

    error = caught.value
    assert (error.text, error.operands, error.path) == ("state.count < state.name", ("3", "'Ann'"), "/call/2")
    assert str(error) == "/call/2: state.count < state.name: a number and a text have no order; found 3, 'Ann'"


def test_dice_are_recorded_and_each_place_has_its_own():
    first = [value("random()", entropy=b"e", location="a") for _ in range(2)]

    assert first[0] == first[1]
    assert 0 <= first[0] < 1
    assert value("random()", entropy=b"e", location="b") != first[0]
    assert len(set(value("[uuid(), uuid()]", entropy=b"e"))) == 2
    assert compile_tree(parse("random()")).volatile
    assert not compile_tree(parse("state.x")).volatile


def test_what_an_expression_reads_is_known_before_it_runs():
    found = compile_tree(parse("map(start.lines, lambda x: x.count * state.factor) if meta.now else None")).reads

    assert found == {("start", "lines"), ("state", "factor"), ("meta", "now")}


def test_a_variable_hides_a_root_of_its_name():
    assert value("map([1, 2], lambda state: state + 1)") == [2, 3]


# ---- functions of users ----------------------------------------------------------------------------------------


def test_a_function_of_users_is_called_with_copies():
    def spoil(lines: list[int]) -> int:
        lines.clear()
        return 7

    roots = {"start": {"lines": [1, 2]}}
    expression = compile_tree({"call": ["shop.spoil", {"get": ["start", "lines"]}]}, {"shop.spoil": spoil})

    assert expression.evaluate(roots) == 7
    assert roots == {"start": {"lines": [1, 2]}}
    assert text({"call": ["shop.spoil", 1]}) == "shop.spoil(1)"
    assert parse("shop.spoil(1)") == {"call": ["shop.spoil", 1]}


@pytest.mark.parametrize(
    ("function", "reason"),
    [(lambda: 1 / 0, "raised ZeroDivisionError"), (object, "no plain data"), (lambda: "a" * 2**21, "bytes")],
)
def test_a_function_that_raises_or_returns_no_plain_data_is_an_expression_error(function, reason):
    with pytest.raises(ExpressionError, match=reason):
        compile_tree({"call": ["f"]}, {"f": function}).evaluate({})


# ---- text ------------------------------------------------------------------------------------------------------


@given(trees())
@settings(max_examples=500 if LONG else 250, deadline=None)
def test_text_and_tree_round_trip(tree):
    written = text(tree)

    assert repr(parse(written)) == repr(tree)  # repr tells 1 from 1.0 and True
    assert text(parse(written)) == written


@pytest.mark.parametrize(
    "refused",
    [
        "a < b < c",
        "f'{a}'",
        "[x for x in a]",
        "a.b()[0]()",
        "lambda x: x",
        "map(lambda x: x, a)",
        "a[1:2]",
        "a // b",
        "a ** b",
        "a is None",
        "(a := 1)",
        "f(x=1)",
        "f(*a)",
        "{**a}",
        "{1: 2}",
        "{'a': 1, 'a': 2}",
        "b'x'",
        "1j",
        "...",
        "a, b",
        "{a}",
        "await a",
        "1e999",
        "",
        "a b",
        "a\x00",
        "value('decimal')",
        "value(a, b)",
        "map(a, lambda x, y: x)",
        "map(a, lambda x=1: x)",
        "+a",
        "import os",
        "__import__('os').system('x')[0](1)",
    ],
)
def test_text_that_is_no_part_of_the_language_is_refused(refused):
    with pytest.raises(BadExpression) as caught:
        parse(refused)

    assert caught.value.problems[0].code in ("PD003", "PD017")


def test_a_problem_of_a_text_has_line_and_column():
    with pytest.raises(BadExpression) as caught:
        parse("state.a +\\\n  (b < c < d)")

    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (2, 4)
    assert str(problem) == ":2:4: PD003: comparisons are chained; write a < b and b < c"


@pytest.mark.parametrize(
    "hostile",
    [
        "(" * 5000,
        "-" * 60000 + "1",
        "not " * 15000 + "a",
        "a" + ".b" * 30000,
        "a+" * 30000 + "a",
        "[" * 150 + "]" * 150,
        "9" * 5000,
        "f(" * 90 + ")" * 90,
        "a" + ".b" * 20000 + "()",
        "a" * 70000,
    ],
    ids=lambda text: text[:8],
)
def test_hostile_text_is_refused(hostile):
    try:
        tree = parse(hostile)
    except BadExpression:
        return
    assert {problem.code for problem in check(tree, ["a"])} & {"PD017", "PD014", "PD003"}


# ---- checking --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "code", "path"),
    [
        ({"call": ["uper", "a"]}, "PD014", ("call",)),
        ({"call": ["tojson", 1]}, "PD014", ("call",)),
        ({"call": ["lt", 1]}, "PD015", ("call",)),
        ({"call": ["and", True]}, "PD015", ("call",)),
        ({"list": [[]]}, "PD003", ("list", 0)),
        ({"call": ["map", {"list": []}]}, "PD015", ("call",)),
        ({"call": ["f", 1, 2, 3]}, "PD015", ("call",)),
        ({"get": ["result", "x"]}, "PD012", ("get",)),
        ({"call": ["upper", 1]}, "PD016", ("call", 1)),
        ({"call": ["add", 1, {"call": ["concat", "a"]}]}, None, ()),
        ({"call": ["add", 1, {"call": ["upper", "a"]}]}, "PD016", ("call", 2)),
        ({"call": ["and", True, 1]}, "PD016", ("call", 2)),
        ({"call": ["lt", 1, "a"]}, "PD016", ("call",)),
        ({"call": ["if", None, 1, 2]}, "PD016", ("call", 1)),
        ({"get": ["x y"]}, "PD003", ("get",)),
        ({"got": ["x"]}, "PD003", ("got",)),
        ({"get": ["state"], "call": ["now"]}, "PD003", ()),
        ({"value": ["decimal", "x"]}, "PD003", ("value",)),
        ({"value": ["datetime", "2024-01-01T00:00:00"]}, "PD003", ("value",)),
        ({"each": ["x", 1]}, "PD003", ("each",)),
        (float("nan"), "PD003", ()),
        (2**1025, "PD003", ()),
        ("\ud800", "PD003", ()),
        (b"x", "PD003", ()),
    ],
)
def test_a_problem_has_its_code_and_path(tree, code, path):
    found = check(tree, ["state", "start"], {"f": lambda a, b=1: a})

    assert [(problem.code, problem.path) for problem in found] == ([(code, path)] if code else [])
    if code:
        with pytest.raises(BadExpression):
            compile_tree(tree, {"f": lambda a, b=1: a}, ["state", "start"])


def test_all_problems_are_found_at_once_with_near_names():
    found = check(parse("uper(stat.x) + lenght('a')"), ["state"])

    assert [str(problem) for problem in found] == [
        "/call/1/call/1/get: PD012: there is no root stat here; did you mean state?",
        "/call/1/call: PD014: there is no function uper; did you mean upper?",
        "/call/2/call: PD014: there is no function lenght; did you mean length?",
    ]


def test_a_tree_too_deep_or_too_large_is_one_problem():
    deep: object = 1
    for _ in range(5000):
        deep = {"list": [deep]}

    assert [problem.code for problem in check(deep, [])] == ["PD017"]
    assert [problem.code for problem in check({"list": [1] * 5000}, [])] == ["PD017"]
    assert [problem.code for problem in check({"get": ["a", *["b"] * 100]}, ["a"])] == ["PD017"]


# ---- evaluation is total ---------------------------------------------------------------------------------------


@given(trees(), VALUES, VALUES)
@settings(max_examples=1000 if LONG else 500, deadline=None)
def test_an_evaluation_ends_with_a_value_or_an_expression_error(tree, one, two):
    class Anything(dict[str, object]):
        def get(self, key, default=None):
            return one if len(key) % 2 else two

    with suppress(ExpressionError, BadExpression):
        compile_tree(tree).evaluate(Anything(), now=NOW)


def test_evaluations_share_the_nodes_of_a_meter():
    meter = Meter(PROCESS)
    expression = compile_tree(parse("sum(range(1000))"))

    with pytest.raises(ExpressionError, match="100,000 steps") as caught:
        for _ in range(200):
            expression.evaluate({}, meter)

    assert caught.value.code == "budget"
