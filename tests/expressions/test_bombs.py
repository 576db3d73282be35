"""Hostile expressions end at the budget: with an error, in bounded memory, in bounded steps."""

import random
import tracemalloc
from collections import Counter
from datetime import UTC, datetime

import pytest

from perdure.errors import BadExpression, ExpressionError
from perdure.expressions import PLAYBOOK, PROCESS, Meter, compile_tree, parse
from perdure.expressions.functions import FUNCTIONS
from perdure.expressions.jinja import FILTERS, Scope, compile_guard, compile_value
from perdure.expressions.python import NAMES

MEMORY_MAX = 32 * 1024 * 1024
TEXT = "ab," * 100_000
ROOTS = {
    "ctx": {
        "text": TEXT,
        "list": list(range(20_000)),
        "texts": ["x" * 1000 + str(n) for n in range(1000)],
        "tree": [[[n] * 10] * 10 for n in range(100)],
        "huge": 2**100_000,
        "unicode": "ΐ" * 100_000,
    }
}
SCOPE = Scope(bind=lambda name: (name,) if name == "ctx" else None)


def nested(template: str, depth: int, seed: str) -> str:
    for _ in range(depth):
        seed = template.format(seed)
    return seed


PROCESS_BOMBS = [
    "range(1000000000)",
    "range(0, 1000000000000000000, 1)",
    "map(range(20000), lambda x: range(20000))",
    "map(range(2000), lambda x: map(range(2000), lambda y: x * y))",
    "sum(map(range(1000), lambda x: sum(map(range(1000), lambda y: 1))))",
    nested("concat({0}, {0})", 10, "ctx.text"),
    nested("map({0}, lambda x: [x, x])", 40, "[1]"),
    nested("join([{0}, {0}, {0}], ',')", 6, "ctx.text"),
    nested("replace({0}, 'a', 'aaaaaaaaaaaaaaaa')", 20, "ctx.text"),
    nested("map([1, 2], lambda x: {0})", 28, "x"),
    nested("({0} * {0})", 6, "1000000000000000000000000000000"),
    "join(map(range(20000), lambda x: ctx.text))",
    "map(ctx.list, lambda x: contains(ctx.list, -1))",
    "map(ctx.list, lambda x: contains(ctx.text, 'abab'))",
    "map(ctx.list, lambda x: ctx.text == concat(ctx.text))",
    "map(ctx.list, lambda x: ctx.tree == ctx.tree)",
    "map(ctx.list, lambda x: sort(ctx.list))",
    "map(ctx.list, lambda x: unique(ctx.tree))",
    "map(ctx.list, lambda x: sha256(ctx.text))",
    "map(ctx.list, lambda x: upper(ctx.text))",
    "upper(upper(ctx.unicode))",
    "map(ctx.list, lambda x: text(ctx.tree))",
    "map(ctx.list, lambda x: split(ctx.text, ','))",
    "split(ctx.text, ',')",
    "map(ctx.list, lambda x: is_blank(ctx.text))",
    "map(ctx.texts, lambda x: sort(ctx.texts))",
    "map(ctx.list, lambda x: slice(ctx.text, 1))",
    "map(ctx.list, lambda x: text(merge({'a': ctx.text}, {'b': x})))",
    "ctx.huge * ctx.huge",
    "ctx.huge + 1",
    "text(ctx.huge)",
    "floor(decimal('1e6000'))",
    "decimal('1e6000') * decimal('1e6000')",
    "round(1.5, 1000000000)",
    "format_date(now(), concat(ctx.text, '%Y'))",
]


@pytest.mark.parametrize("bomb", PROCESS_BOMBS, ids=lambda bomb: bomb[:60])
def test_a_bomb_in_a_process_stops_at_the_budget(bomb):
    stops(compile_tree(parse(bomb)), Meter(PROCESS))


PLAYBOOK_BOMBS = [
    "{{ 'a' * 10 ** 10 }}",
    "{{ [0] * 10 ** 10 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 2 ** 1025 }}",
    "{{ 2.0 ** 5000 }}",
    "{{ range(10 ** 9) }}",
    "{{ ctx.list | sum(start=ctx.text) }}",
    "{{ ctx.texts | sum(start='') | length ~ ctx.text ~ ctx.text ~ ctx.text ~ ctx.text }}",
    "{{ " + nested("({0} ~ {0})", 12, "ctx.text") + " }}",
    "{{ " + nested("{0} | tojson", 60, "ctx.text") + " }}",
    "{{ " + nested("({0} | replace('a', 'aaaaaaaaaaaaaaaa'))", 15, "ctx.text") + " }}",
    "{{ " + nested("({0} | b64encode)", 40, "ctx.text") + " }}",
    "{% for a in range(20000) %}{% for b in range(20000) %}{% endfor %}{% endfor %}",
    "{% for a in range(300) %}{% for b in range(300) %}{{ a * b }}{% endfor %}{% endfor %}",
    "{% for a in range(10000) %}{{ ctx.text }}{% endfor %}",
    "{% for a in range(10000) %}{{ ctx.tree }}{% endfor %}",
    "{% for a in ctx.list %}{% if a in ctx.list %}{% endif %}{% endfor %}",
    "{% for a in ctx.list %}{% if 'zz' in ctx.text %}{% endif %}{% endfor %}",
    "{{ ctx.huge ~ '' }}",
    "{{ ctx.huge % 7 }}",
    "{{ ('[' ~ (ctx.text | replace('ab,', '[],')) ~ '1]') | fromjson }}",
    "{{ (ctx.text | replace('ab,', '[')) | fromjson }}",
    "{{ ('9' ~ (ctx.text | replace('ab,', '9'))) | fromjson }}",
    "{{ ('9' ~ (ctx.text | replace('ab,', '9'))) | int }}",
]


@pytest.mark.parametrize("bomb", PLAYBOOK_BOMBS, ids=lambda bomb: bomb[:60])
def test_a_bomb_in_a_playbook_stops_at_the_budget(bomb):
    stops(compile_value(bomb, SCOPE), Meter(PLAYBOOK))


def test_a_text_with_secrets_does_not_grow_by_the_square():
    body = "{% if loop.first %}{{ keychain.a }}{% endif %}" + "a" * 60
    scope = Scope(bind=lambda name: (name,), secret=lambda path: "s")

    stops(compile_value("{% for x in range(8000) %}" + body + "{% endfor %}", scope), Meter(PLAYBOOK))


def stops(expression, meter):
    tracemalloc.start()
    try:
        with pytest.raises(ExpressionError):
            expression.evaluate(ROOTS, meter)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_MAX


# ---- ten thousand at random --------------------------------------------------------------------------------------

ATOMS = ["ctx.text", "ctx.list", "ctx.texts", "ctx.tree", "ctx.huge", "ctx.gone", "ctx", "0", "-1", "7", "1000000000"]
ATOMS += ["1e308", "0.1", "'a'", "''", "'%Y'", "[]", "['a', 'b']", "{}", "{'k': 1}", "x", "ctx.unicode"]
OPERATORS = ["+", "-", "*", "/", "%", "==", "<", ">=", " and ", " or ", " in "]


def in_process(dice, depth):
    if depth == 4 or dice.random() < 0.2:
        return dice.choice([*ATOMS, "True", "None", 'value("decimal", "1.5")', "now()"])
    inner = [in_process(dice, depth + 1) for _ in range(3)]
    if dice.random() < 0.3:
        return f"({inner[0]} {dice.choice(OPERATORS)} {inner[1]})"
    name = dice.choice([name for name in sorted(NAMES) if name in FUNCTIONS])
    args = inner[: dice.randint(FUNCTIONS[name].least, min(FUNCTIONS[name].most or 3, 3))]
    if FUNCTIONS[name].each and dice.random() < 0.8:
        args.append(f"lambda x: {in_process(dice, depth + 1)}")
    return f"{name}({', '.join(args)})"


def in_playbook(dice, depth):
    if depth == 4 or dice.random() < 0.2:
        return dice.choice([*ATOMS, "true", "none", "now()"])
    inner = [in_playbook(dice, depth + 1) for _ in range(3)]
    if dice.random() < 0.4:
        return f"({inner[0]} {dice.choice([*OPERATORS, '~', '**', '//'])} {inner[1]})"
    name = dice.choice([*FILTERS, "default", "map", "selectattr"])
    if name in ("map", "selectattr"):
        used = dice.choice(["map(attribute=1)", "selectattr(0)", "selectattr(0, 'lt', 9)"])
        return f"({inner[0]} | {used})"
    words = FILTERS[name][1] if name in FILTERS else ("value",)
    args = inner[1 : 1 + dice.randint(0, len(words))]
    return f"({inner[0]} | {name}{'(' + ', '.join(args) + ')' if args else ''})"


def in_template(dice):
    inner = in_playbook(dice, 0)
    forms = ["{{{{ {0} }}}}", "a{{{{ {0} }}}}b", "{{% for x in {0} %}}{{{{ x }}}}{{{{ {0} }}}}{{% endfor %}}"]
    return dice.choice(forms).format(inner)


def test_ten_thousand_hostile_expressions_end_with_a_value_or_an_expression_error():
    dice = random.Random(17)
    ends: Counter[str] = Counter()
    scope = Scope(bind=lambda name: ("ctx", "list") if name == "x" else (name,))
    for number in range(10_000):
        try:
            if number % 2:
                expression = compile_tree(parse(in_process(dice, 0)))
            elif number % 4:
                expression = compile_guard(in_playbook(dice, 0), scope)
            else:
                expression = compile_value(in_template(dice), scope)
            expression.evaluate(ROOTS, now=datetime(2024, 2, 29, tzinfo=UTC))
            ends["value"] += 1
        except ExpressionError:
            ends["error"] += 1
        except BadExpression:
            ends["refused"] += 1

    assert min(ends.values()) > 300
    assert len(ends) == 3
