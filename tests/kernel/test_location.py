"""Locations: names that cannot look like paths, and a compact form that gives back exactly the text."""

import string

from hypothesis import given
from hypothesis import strategies as st

from perdure.kernel.location import Patterns, escape, unescape

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
SIGNED = st.tuples(st.sampled_from("~&"), st.integers(0, 10**17)).map(lambda pair: f"{pair[0]}{pair[1]}")
NAMED = st.tuples(NAMES.map(escape), st.none() | st.integers(0, 10**17)).map(
    lambda pair: pair[0] if pair[1] is None else f"{pair[0]}#{pair[1]}"
)
LOCATIONS = st.lists(SIGNED | NAMED, min_size=1, max_size=5).map("/".join)
ODD = st.text(st.sampled_from("~&#/%019a٣" + string.ascii_letters), max_size=10)


@given(NAMES)
def test_an_escaped_name_has_no_sign_with_a_meaning_and_comes_back(name):
    escaped = escape(name)

    assert not set(escaped) & set("/~&#\n\x00")
    assert unescape(escaped) == name


@given(NAMES, NAMES)
def test_two_names_never_become_one(one, other):
    assert (escape(one) == escape(other)) == (one == other)


@given(st.lists(LOCATIONS | ODD, max_size=20))
def test_compact_forms_give_back_the_text(locations):
    writer, reader = Patterns(), Patterns()

    for location in locations:
        fresh: dict[str, int] = {}
        compact = writer.compact(location, fresh)
        writer.learn(fresh)
        reader.learn(fresh)

        assert reader.text(compact) == location

    assert writer.texts() == reader.texts()


@given(st.lists(LOCATIONS | ODD, max_size=20))
def test_compact_forms_of_one_entry_do_not_depend_on_each_other(locations):
    writer, fresh = Patterns(["a", "b#"]), dict[str, int]()

    compacts = [writer.compact(location, fresh) for location in locations]

    reader = Patterns(["a", "b#", *fresh])
    assert [reader.text(compact) for compact in compacts] == locations


def test_iterations_share_one_pattern():
    patterns = Patterns()

    for n in range(100):
        fresh: dict[str, int] = {}
        patterns.compact(f"loop/~{n}/charge#{n + 1}", fresh)
        patterns.learn(fresh)

    assert patterns.texts() == ["loop/~/charge#"]
