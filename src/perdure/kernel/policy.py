"""Policies: what kernel and runtime may do with the instances of a workflow. A plain value that the workflow has.

Nothing below the dialects asks which dialect a workflow is of: what differs between them stands here, and is kept with
the workflow's row, so that clients without code know it too.
"""

from typing import Final, Literal

import msgspec

from .retention import Retention

Verb = Literal["start", "send", "cancel", "retry", "rewind", "fork", "wake", "pause", "resume"]


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What may be done, and how. A verb whose field is False is refused; `why` says it in the dialect's words."""

    noun: str = "workflow"
    """What people call an instance of it."""

    created: Literal["start", "message", "engine"] = "start"
    """What creates an instance: a start, its first message, or the engine itself when it is opened."""

    place: Literal["root", "fixed"] = "root"
    """Where an instance lives: with its root, or on the first shard, so that all of them have one order."""

    exact: bool = False
    """An instance runs on its own version or waits until an engine has that. Else on its own or a newer one."""

    only: str = ""
    """The key of the only instance that there may be; empty: any key, any number."""

    send: bool = True
    """Whether a message from outside may be addressed to an instance."""

    cancel: bool = True
    retry: bool = True
    """Of a failure. An instance that is stuck can always be retried."""

    rewind: bool = True
    fork: bool = True
    wake: bool = True

    verbs: tuple[str, ...] = ()
    """Verbs that its live instances answer, beside those of all instances."""

    counted: str = ""
    """The name of a message to which the runtime adds how many instances there are when it is taken; empty: none."""

    retention: Retention | None = None
    """How long ended instances are kept; None: the workflow does not say."""

    why: dict[str, str] = {}
    """By verb, why it is refused, in words that go on after "NAME is": a noun, and what to do instead."""

    def refuses(self, verb: Verb) -> str:
        """Why a verb is refused; empty: it is not."""
        if (self.created == "start") if verb == "start" else getattr(self, verb, verb in self.verbs):
            return ""
        return self.why.get(verb, f"a {self.noun}, which takes no {verb}")

    def encode(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()


ANY: Final = Policy()
"""Of a workflow that nothing is known of: the kernel decides when it is there."""

_decoder = msgspec.json.Decoder(Policy)


def decode_policy(text: str) -> Policy:
    return _decoder.decode(text) if text else ANY
