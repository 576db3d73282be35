"""Effects: what a machine may ask of the world. An admitted effect is an intent.

Every effect has a location, unique among the open effects of its instance. What the journal keeps of an effect is
exactly its fields. The live arguments of a call that stays in this process are not among them: see `Machine.work`.
"""

from typing import Final, TypeGuard

import msgspec


class Call(msgspec.Struct, frozen=True, gc=False):
    """Work done by an executor. Times are nanoseconds."""

    location: str
    attempt: int = 1
    executor: str = "inline"
    timeout: int | None = None  # of one delivery; answered by the runtime with a timeout receipt
    deliveries_max: int = 4  # counted deliveries of this very intent; then the receipt is `unknown`
    params: bytes | None = None  # recorded only when the call leaves the process
    ephemeral: bool = False  # cheap and repeatable: it may begin before this is durable
    life: int = 0  # the entry of the rewind since which this is other work than before; 0: of none
    frames: bool = False  # its frames are events of the instance; else they are seen live only


class Timer(msgspec.Struct, frozen=True, gc=False):
    """Answered with an ok receipt at `due`, or at once when that is past."""

    location: str
    due: int


PAUSED_AT: Final = "&pause"
"""What the location of a wait begins with that stands for a pause: until a person resumes the instance."""


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Stands for "waits for a message". The machine withdraws it when the message came; `due` is its deadline."""

    location: str
    names: tuple[str, ...] = ()
    due: int | None = None
    params: bytes | None = None  # for an executor outside, which answers with a receipt


TASK_WORKFLOW: Final = "perdure.task"
"""The instances of this built-in workflow are tasks."""


class Child(msgspec.Struct, frozen=True, gc=False):
    """Another instance, started in the same transaction; answered with its outcome (detached: when it has started)."""

    location: str
    workflow: str
    key: str
    input: bytes
    detached: bool = False
    version: str = ""  # of its workflow, if the parent knows one: the newest is taken where that is not registered
    reuse: str = ""  # as of a start
    tags: dict[str, str] = {}
    due: int = 0  # its work begins then; 0: at once


Effect = Call | Timer | Wait | Child

KINDS: tuple[type[Call], type[Timer], type[Wait], type[Child]] = (Call, Timer, Wait, Child)
"""The journal writes a kind as its place in this tuple: append only."""

NUMBERS: dict[type, int] = {kind: number for number, kind in enumerate(KINDS)}


OURS: Final = frozenset({"inline", "thread", "process", "effects"})
"""The executors that every engine has. Any other name is that of a queue."""


def is_queued(effect: Effect) -> TypeGuard[Call]:
    """Whether a call is for the workers of its queue. While it is open and not held, it has a row among the jobs."""
    return type(effect) is Call and effect.executor not in OURS


def attempt_of(effect: Effect) -> int:
    return effect.attempt if type(effect) is Call else 1


def due_of(effect: Effect) -> int | None:
    """When the runtime must answer an effect by itself: a timer's time, a wait's deadline."""
    return effect.due if type(effect) is Timer or type(effect) is Wait else None
