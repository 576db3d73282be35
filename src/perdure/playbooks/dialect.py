"""What `app` knows of playbooks."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.ports.dialect import Gathered
from perdure.ports.seen import Words

from .workflow import NOUN, PlaybookWorkflow


class PlaybookDialect:
    name = NOUN
    catalog = None
    words: Final[Mapping[str, Words]] = {}

    def gather(self, given: Sequence[Any]) -> Gathered:
        playbooks = [each for each in given if isinstance(each, PlaybookWorkflow)]
        rest = [each for each in given if not isinstance(each, PlaybookWorkflow)]
        return Gathered(playbooks, rest)


DIALECT: Final = PlaybookDialect()
