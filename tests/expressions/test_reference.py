"""The reference page lists every function, filter and test, with the text of the code."""

import pytest

from perdure.expressions.functions import FUNCTIONS
from perdure.expressions.jinja import CALLS, FILTERS, SPECIAL_FILTERS, TESTS
from perdure.expressions.python import LAZY, NAMES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "expressions.md").read_text()


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", " or ") for cell in cells) + " |"


@pytest.mark.parametrize("name", sorted(NAMES - set(LAZY)))
def test_every_function_of_processes_is_in_the_reference(name):
    function = FUNCTIONS[name]
    each = {True: " each?", name in ("map", "filter"): " each", not function.each: ""}[True]

    assert row(f"`{name}`", function.signature + each, function.about) in PAGE


@pytest.mark.parametrize("name", sorted(LAZY))
def test_every_word_that_is_lazy_is_in_the_reference(name):
    assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_of_playbooks_is_in_the_reference(name):
    function, arguments = FILTERS[name]

    assert row(f"`{name}`", ", ".join(arguments), FUNCTIONS[function].about) in PAGE


@pytest.mark.parametrize("name", (*SPECIAL_FILTERS, *TESTS, "defined", "undefined", *(f"{name}(" for name in CALLS)))
def test_every_other_word_of_playbooks_is_in_the_reference(name):
    assert f"`{name}" in PAGE


def test_every_function_says_what_it_does():
    assert [name for name, function in FUNCTIONS.items() if not function.about.endswith(".")] == []
