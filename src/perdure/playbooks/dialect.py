"""What `app` knows of playbooks."""

from collections.abc import Sequence
from typing import Any, Final

from perdure.ports.dialect import Gathered

from .workflow import NOUN, PlaybookWorkflow


class PlaybookDialect:
    name = NOUN
    catalog = None

    def gather(self, given: Sequence[Any]) -> Gathered:
        playbooks = [each for each in given if isinstance(each, PlaybookWorkflow)]
        rest = [each for each in given if not isinstance(each, PlaybookWorkflow)]
        return Gathered(playbooks, rest)


DIALECT: Final = PlaybookDialect()
