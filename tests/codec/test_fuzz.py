"""A hundred thousand values of each type, each in two spellings; `make fuzz` runs ten times as many."""

import pytest

from tests.codec.fuzz import WORDS, fuzz


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_every_spelling_of_a_value_has_one_form_that_round_trips(word):
    fuzz(word, values=100_000)
