"""What `app` knows of playbooks."""

from collections.abc import Sequence
from typing import Any, Final

from perdure.ports.dialect import Gathered, Stored

from .model import from_bytes
from .workflow import NOUN, PlaybookWorkflow


class PlaybookDialect:
    name = NOUN
    catalog = None

    def gather(self, given: Sequence[Any]) -> Gathered:
        playbooks = [each for each in given if isinstance(each, PlaybookWorkflow)]
        rest = [each for each in given if not isinstance(each, PlaybookWorkflow)]
        return Gathered(
            playbooks,
            rest,
            dialect=NOUN,
            definitions=[each.stored for each in playbooks],
            restore=restore,
        )


def restore(stored: Stored) -> PlaybookWorkflow:
    """A definition that the database has, as a playbook of this engine."""
    return PlaybookWorkflow(from_bytes(stored.definition))


DIALECT: Final = PlaybookDialect()
