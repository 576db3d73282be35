"""What `app` knows of playbooks."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.ports.dialect import Gathered, Stored
from perdure.ports.seen import Words

from .model import from_bytes
from .words import PlaybookWords
from .workflow import NOUN, PlaybookWorkflow


class PlaybookDialect:
    name = NOUN
    catalog = None
    words: Final[Mapping[str, Words]] = {NOUN: PlaybookWords()}

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
    return PlaybookWorkflow(from_bytes(stored.definition, stored.version))


DIALECT: Final = PlaybookDialect()
