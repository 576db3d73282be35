"""The expressions of playbooks: Jinja's syntax, values that keep their type, guards, secrets, references."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from perdure.errors import BadExpression, ExpressionError
from perdure.expressions import NeedsRead, Ref, Secret, SecretText
from perdure.expressions.jinja import Scope, compile_guard, compile_value

NOW = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
ROOTS: dict[str, Any] = {
    "ctx": {
        "name": "Ann",
        "rows": [{"a": 2, "s": "y"}, {"a": 1, "s": "x"}],
        "n": 3,
        "null": None,
        "empty": [],
        "map": {"b": 1, "a": 2},
        "braces": "{{ ctx.n }}",
    },
    "steps": {"scan": None},
    "_prev": 7,
}
PATHS = {**{name: (name,) for name in (*ROOTS, "keychain")}, "short": ("ctx", "name")}


def secret(path):
    return "depot-token" if path == ("keychain", "depot", "token") else None


SCOPE = Scope(bind=PATHS.get, secret=secret)
V10 = Scope(bind=PATHS.get, secret=secret, v10=True)


def value(field, roots=ROOTS, scope=SCOPE, **given):
    return compile_value(field, scope).evaluate(roots, **given)


def guard(text, roots=ROOTS, scope=SCOPE):
    return compile_guard(text, scope).evaluate(roots)


CASES = [
    ("plain", "plain"),
    (17, 17),
    ("{{ ctx.n }}", 3),
    ("{{ ctx.rows }}", ROOTS["ctx"]["rows"]),
    (" {{ ctx.n }}", " 3"),
    ("{{ ctx.n }}\n", "3\n"),
    ("n={{ ctx.n }}, map={{ ctx.map }}, {{ ctx.null }}, {{ ctx.name }}", 'n=3, map={"a": 2, "b": 1}, null, Ann'),
    ({"a": ["{{ ctx.n }}", {"b": "x{{ ctx.n }}"}], "c": 1}, {"a": [3, {"b": "x3"}], "c": 1}),
    ("{{ ctx.braces }}", "{{ ctx.n }}"),
    ("<{{ ctx.braces }}>", "<{{ ctx.n }}>"),
    ("{{ short }}", "Ann"),
    ("{{ short | list }}", ["A", "n", "n"]),
    ("{{ " + "(" * 90 + "7" + ")" * 90 + " }}", 7),
    ("{{ _prev }}", 7),
    ("a{# a note #}b", "ab"),
    ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
    ("{{ ctx.rows[1].a }}", 1),
    ("{{ ctx.rows.0['a'] }}", 2),
    ("{{ ctx.rows[ctx.n - 2].s }}", "x"),
    ("{{ (ctx.rows | first).s }}", "y"),
    ("{{ 1 + 2 * 3 - 4 / 2 }}", 5.0),
    ("{{ 7 // 2 }}", 3),
    ("{{ -7 % 3 }}", 2),
    ("{{ 2 ** 10 }}", 1024),
    ("{{ 'a' + 'b' }}", "ab"),
    ("{{ [1] + [2] }}", [1, 2]),
    ("{{ ctx.name ~ ctx.n ~ none }}", "Ann3null"),
    ("{{ [1, 'a', true, {'k': ctx.n}] }}", [1, "a", True, {"k": 3}]),
    ("{{ 1 < ctx.n <= 3 }}", True),
    ("{{ 'nn' in ctx.name and 9 not in [1, 2] }}", True),
    ("{{ ctx.null or 'x' }}", "x"),
    ("{{ ctx.name and 5 }}", 5),
    ("{{ not ctx.empty }}", True),
    ("{{ 'a' if ctx.n > 2 else 'b' }}", "a"),
    ("{{ 'a' if ctx.n > 9 }}", None),
    ("{{ ctx.gone | default('d') }}", "d"),
    ("{{ ctx.gone.deeper[0].still | default(none) }}", None),
    ("{{ ctx.null | default('d') }}", None),
    ("{{ ctx.null | default('d', true) }}", "d"),
    ("{{ (ctx.gone if true else 1) | default(2) }}", 2),
    ("{{ steps.scan }}", None),
    ("{{ steps.scan.result | default(0) }}", 0),
    ("{{ ctx.gone is defined }}", False),
    ("{{ ctx.gone.deeper is not defined }}", True),
    ("{{ ctx.null is defined and ctx.null is none }}", True),
    ("{{ ctx.gone is undefined }}", True),
    ("{{ ctx.name is string and ctx.n is number and ctx.map is mapping and ctx.rows is sequence }}", True),
    ("{{ '12' | int + '1.5' | float + '3.9' | int }}", 16.5),
    ("{{ 'x' | int(0) }}", 0),
    ("{{ 'x' | float(default=0.5) }}", 0.5),
    ("{{ ctx.map | string }}", '{"a": 2, "b": 1}'),
    ("{{ ' A-b ' | trim | lower | upper | replace('-', '+') }}", "A+B"),
    ("{{ 'a,b' | split(',') | join('|') }}", "a|b"),
    ("{{ [1, none, 'x'] | join('-') }}", "1-null-x"),
    ("{{ ctx.rows | join(',', attribute='s') }}", "y,x"),
    ("{{ ctx.rows | length }}", 2),
    ("{{ [3, 1] | min ~ [3, 1] | max ~ [3, 1] | first ~ [3, 1] | last }}", "1331"),
    ("{{ [[1], [2]] | sum(start=[]) }}", [1, 2]),
    ("{{ ctx.rows | sum(attribute='a') }}", 3),
    ("{{ [2, 1, 2] | unique | sort | reverse }}", [2, 1]),
    ("{{ [2, 3, 1] | sort(reverse=true) }}", [3, 2, 1]),
    ("{{ ctx.rows | sort(attribute='a') | map(attribute='s') | list }}", ["x", "y"]),
    ("{{ ctx.rows | map(attribute='gone', default=0) }}", [0, 0]),
    ("{{ ctx.rows | selectattr('a', 'gt', 1) | map(attribute='s') }}", ["y"]),
    ("{{ ctx.rows | rejectattr('s', 'in', ['x']) | length }}", 1),
    ("{{ ctx.rows | selectattr('gone', 'defined') }}", []),
    ("{{ ctx.rows | selectattr('a') | length }}", 2),
    ("{{ 2.567 | round(1) ~ -3 | abs }}", "2.63"),
    (
        "{{ ctx.map | keys ~ ctx.map | values ~ ctx.map | items ~ ctx.map | list }}",
        '["a", "b"][2, 1][["a", 2], ["b", 1]]["a", "b"]',
    ),
    ("{{ 'ä\"' | tojson }}", '"ä\\""'),
    ("{{ '[1, {\"a\": null}]' | fromjson }}", [1, {"a": None}]),
    ("{{ 'abc' | b64encode }}", "YWJj"),
    ("{{ 'YWJj' | b64decode }}", "abc"),
    ("{{ 'abc' | sha256 }}", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ("{{ range(3) }}", [0, 1, 2]),
    ("{{ now() }}", "2024-02-29T12:30:00Z"),
    ("{% if ctx.n > 5 %}a{% elif ctx.n > 2 %}b{% else %}c{% endif %}", "b"),
    ("{% for r in ctx.rows %}{{ r.s }}{% if not loop.last %}, {% endif %}{% endfor %}", "y, x"),
    ("{% for k in ctx.map %}{{ loop.index }}{{ k }}{% endfor %}", "1a2b"),
    ("{% for k, v in ctx.map | items %}{{ k }}={{ v }};{% endfor %}", "a=2;b=1;"),
    ("{% for x in ctx.empty %}{{ x }}{% else %}none{% endfor %}", "none"),
    ("{% for x in range(6) if x % 2 %}{{ x }}/{{ loop.length }} {% endfor %}", "1/3 3/3 5/3 "),
    ("{% for x in [1, 2] %}{% for y in [1, 2] %}{{ x * y }}{% endfor %};{% endfor %}", "12;24;"),
    ("a {%- if true %} b {%- endif %} c", "a b c"),
]


@pytest.mark.parametrize(("field", "expected"), CASES, ids=[str(case[0]) for case in CASES])
def test_a_field_has_its_value(field, expected):
    found = value(field, now=NOW)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ctx.n == 3", True),
        ("{{ ctx.n == 3 }}", True),
        ("  {{ ctx.n > 3 }}  ", False),
        ("ctx.null", False),
        ("ctx.n - 3", False),
        ("ctx.rows", True),
        ("ctx.empty", False),
        ("{}", False),
        ("ctx.name == '}}'", False),
        (True, True),
    ],
)
def test_a_guard_is_read_with_or_without_braces(text, expected):
    assert guard(text) is expected


@pytest.mark.parametrize("text", ["ctx.name", "'false'", "''", "{{ ctx.name }}", "ctx.n and ctx.name"])
def test_a_guard_that_is_a_text_is_an_error(text):
    with pytest.raises(ExpressionError, match="compare it") as caught:
        guard(text)

    assert caught.value.code == "guard_type"


@pytest.mark.parametrize("text", ["ctx.gone", "not ctx.gone", "ctx.gone == 1", "ctx.gone or true", "ctx.n.deeper"])
def test_a_missing_member_is_never_false(text):
    with pytest.raises(ExpressionError, match="is missing"):
        guard(text)


# ---- v10 mode --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["", "false", "0", "no", "none", "null", "off", " Off "])
def test_in_v10_a_text_guard_is_read_as_a_word(word):
    assert guard("ctx.word", {"ctx": {"word": word}}, V10) is False
    assert guard("ctx.word", {"ctx": {"word": f"x{word}"}}, V10) is True


def test_in_v10_what_is_missing_is_null():
    assert value("{{ ctx.gone.deeper }}", scope=V10) is None
    assert value("{{ unknown }}", scope=V10) is None
    assert value("{{ unknown.deeper | default(1) }}", scope=V10) == 1
    assert value("{{ ctx.gone is defined }}", scope=V10) is False
    assert guard("ctx.gone", scope=V10) is False


# ---- problems --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{{ ctx.name.upper() }}",
        "{{ ctx.map.items() }}",
        "{% set x = 1 %}",
        "{% macro m() %}{% endmacro %}",
        "{% include 'x' %}",
        "{{ foo() }}",
        "{{ _secret }}",
        "{{ ctx.rows[1:] }}",
        "{{ ctx.name | regex_search('a') }}",
        "{{ ctx.name is odd }}",
        "{{ ctx.rows | map('upper') }}",
        "{{ 1 + }}",
        "{{ 'a }}",
        "{{ ctx.n",
        "{% for x in [1] %}",
        "{{ {ctx.n: 1} }}",
        "{{ +ctx.n }}",
        "{{ range() }}",
        "{{ ctx.n | lower(1) }}",
        "{{ ctx.n | replace('a') }}",
        "{{ range(*ctx.rows) }}",
        "{{ ''.__class__.__mro__() }}",
        "{{ " + "(" * 150 + "1" + ")" * 150 + " }}",
        "{{ " + "not " * 5000 + "1 }}",
        "{{ " + "-" * 5000 + "1 }}",
        "{{ ctx" + ".a" * 5000 + " }}",
        "{{ " + "9" * 5000 + " }}",
        "{{ 0x" + "f" * 5000 + " }}",
        "{{ 1e999 }}",
        "{{ '\\ud800' }}",
        "{{ ctx.n | default(1, 2, 3) }}",
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_part_of_the_language_is_a_bad_expression(text):
    with pytest.raises(BadExpression) as caught:
        compile_value(text, SCOPE)

    (problem,) = caught.value.problems
    assert problem.code == "bad-expression"
    assert problem.line == 1


@pytest.mark.parametrize(
    "text", ["{{ a }}{{ b }}", "{% if true %}x{% endif %}", "ctx.n }} {{ ctx.n", "  ", "x {{ ctx.n }}"]
)
def test_a_guard_is_one_expression(text):
    with pytest.raises(BadExpression):
        compile_guard(text, SCOPE)


def test_all_problems_of_a_field_are_found_with_path_line_and_column():
    with pytest.raises(BadExpression) as caught:
        compile_value({"a": ["ok", "one\ntwo {{ nme }}"], "b": "{{ ctx.n | lowr }}"}, SCOPE)

    assert [str(problem) for problem in caught.value.problems] == [
        "/a/1:2:8: unknown-name: the name nme is not known here",
        "/b:1:12: bad-expression: there is no filter lowr; did you mean lower?",
    ]


def test_a_failure_has_path_line_and_column():
    with pytest.raises(ExpressionError) as caught:
        value({"a": "{{ ctx.n }}", "b": ["x\n  {{ ctx.gone }}"]})

    assert (caught.value.path, caught.value.line, caught.value.column) == ("/b/0", 2, 9)


def test_a_problem_of_a_guard_without_braces_has_its_column():
    with pytest.raises(BadExpression) as caught:
        compile_guard("ctx.n == nme", SCOPE)

    assert (caught.value.problems[0].line, caught.value.problems[0].column) == (1, 10)


def test_a_loop_needs_something_to_walk_over():
    with pytest.raises(ExpressionError) as caught:
        value("{% for x in ctx.n %}{% endfor %}")

    assert caught.value.code == "not_iterable"


# ---- secrets ---------------------------------------------------------------------------------------------------


def test_a_secret_is_the_whole_value_or_a_part_of_a_text():
    token = Secret("depot-token")

    assert value("{{ keychain.depot.token }}") == SecretText((token,))
    assert value({"h": "Bearer {{ keychain.depot['token'] }}!"}) == {"h": SecretText(("Bearer ", token, "!"))}
    assert value("{% if true %}a{{ ctx.n }}{{ keychain.depot.token }}{% endif %}b") == SecretText(("a3", token, "b"))
    assert value("{% if false %}{{ keychain.depot.token }}{% endif %}b") == "b"


@pytest.mark.parametrize(
    "text",
    [
        "{{ keychain.depot.token | upper }}",
        "{{ keychain.depot.token ~ 'x' }}",
        "{{ keychain }}",
        "{{ keychain.depot }}",
        "{{ keychain.depot.other }}",
        "{{ keychain.depot.token == 'a' }}",
        "{{ [keychain.depot.token] }}",
        "{{ keychain[ctx.name] }}",
        "{{ keychain.depot.token is defined }}",
        "{% if keychain.depot.token %}{% endif %}",
        "{% for x in keychain %}{% endfor %}",
        "{{ keychain.depot.token if true }}",
    ],
)
def test_any_other_use_of_a_secret_is_a_problem(text):
    with pytest.raises(BadExpression) as caught:
        compile_value(text, SCOPE)

    assert caught.value.problems[0].code == "secret-use"


def test_a_guard_or_a_place_without_secrets_has_none():
    for compile_it in (
        lambda: compile_guard("keychain.depot.token", SCOPE),
        lambda: compile_value("{{ keychain.depot.token }}", Scope(PATHS.get)),
    ):
        with pytest.raises(BadExpression) as caught:
            compile_it()
        assert caught.value.problems[0].code == "secret-use"


# ---- references ------------------------------------------------------------------------------------------------


def test_a_reference_is_passed_whole_and_knows_its_length():
    ref = Ref(length=7)
    roots = {"ctx": {"big": ref}}

    assert value("{{ ctx.big }}", roots) is ref
    assert value({"a": ["{{ ctx.big }}"]}, roots) == {"a": [ref]}
    assert value("{{ ctx.big | length }}", roots) == 7
    assert value("{{ ctx.big is defined }}", roots) is True


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{{ ctx.big.rows[0].name }}", ("rows", 0, "name")),
        ("{{ ctx.big[ctx.key] }}", ("k",)),
        ("{{ ctx.big | sum }}", ()),
        ("{{ ctx.big == 1 }}", ()),
        ("n: {{ ctx.big }}", ()),
        ("{{ [ctx.big] | tojson }}", ()),
        ("{% for x in ctx.big %}{% endfor %}", ()),
        ("{{ 1 if ctx.big else 2 }}", ()),
        ("{{ ctx.big is mapping }}", ()),
        ("{{ ctx.big | map(attribute='x') }}", ()),
    ],
)
def test_looking_into_a_reference_asks_for_a_read(text, path):
    ref = Ref()

    with pytest.raises(NeedsRead) as caught:
        value(text, {"ctx": {"big": ref, "key": "k"}})

    assert (caught.value.ref, caught.value.path) == (ref, path)


def test_a_reference_that_was_read_answers():
    class Known(Ref):
        def read(self, path):
            return {("rows",): [1, 2], (): {"rows": [1, 2]}}[path]

    roots = {"ctx": {"big": Known()}}

    assert value("{{ ctx.big.rows | sum }}", roots) == 3
    assert value("{{ ctx.big == {'rows': [1, 2]} }}", roots) is True
    assert value("<{{ ctx.big }}>", roots) == '<{"rows": [1, 2]}>'


# ---- the same everywhere ---------------------------------------------------------------------------------------


def test_dice_come_from_entropy_and_location():
    one = value("{{ uuid() }}", entropy=b"e", location="a")

    assert one == value("{{ uuid() }}", entropy=b"e", location="a") == str(UUID(one))
    assert one != value("{{ uuid() }}", entropy=b"e", location="b")
    assert 0 <= value("{{ random() }}", entropy=b"e") < 1
    assert compile_guard("random() < 0.5", SCOPE).volatile


def test_maps_are_walked_in_key_order_however_they_were_made():
    text = "{{ ctx | tojson }}{{ ctx | keys }}{% for k in ctx %}{{ k }}{% endfor %}"

    assert value(text, {"ctx": {"b": 1, "a": 2}}) == value(text, {"ctx": {"a": 2, "b": 1}})


def test_what_a_guard_reads_is_known():
    found = compile_guard("short == 'x' and ctx.rows | selectattr('a') | length > ctx.n", SCOPE).reads

    assert found == {("ctx", "name"), ("ctx", "rows"), ("ctx", "n")}


def test_how_many_levels_an_expression_has_does_not_depend_on_the_caller():
    nested = "{{ " + "[" * 90 + "7" + "]" * 90 + " }}"

    def below(calls):
        return below(calls - 1) if calls else compile_value(nested, SCOPE)

    assert below(0).node == below(300).node
    with pytest.raises(BadExpression, match="nested too deeply"):
        value("{{ " + "[" * 101 + "7" + "]" * 101 + " }}")
