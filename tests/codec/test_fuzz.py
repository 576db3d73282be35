"""Twenty thousand values of each type, each in two spellings; `make test-long` has 100,000, `make fuzz` a million."""

import pytest

from tests.codec.fuzz import WORDS, fuzz
from tests.stages import LONG


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_every_spelling_of_a_value_has_one_form_that_round_trips(word):
    fuzz(word, values=100_000 if LONG else 20_000)
