"""The state of an instance: a value. A snapshot is this value as canonical bytes, with references beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from perdure.codec import decode, encode
from perdure.expressions import SecretText

from .net import Marking
from .values import Beside, Kept, Stored, kept_of, part, rejoin, secret_text, shown

K = TypeVar("K")
Phase = Literal["begin", "open", "after", "backoff"]


class Open(msgspec.Struct):
    """An intent of this instance that has no receipt yet."""

    kind: str  # call timer wait child read put gate go limit
    location: str
    token: int = 0
    pipe: int = -1
    attempt: int = 1
    detail: Any = None
    effect: list[Any] = []  # the number of its kind, and its fields: a retry opens it again


class OpenEffects(dict[bytes, Open]):
    """What is open, by its intent; and by its token and its kind, so that no event goes through all of it."""

    def __init__(self, known: Mapping[bytes, Open]) -> None:
        super().__init__()
        self._by_token: dict[int, dict[bytes, Open]] = {}
        self._by_kind: dict[str, dict[bytes, Open]] = {}
        for id, opened in known.items():
            self[id] = opened

    def __setitem__(self, id: bytes, opened: Open) -> None:
        super().__setitem__(id, opened)
        self._by_token.setdefault(opened.token, {})[id] = opened
        self._by_kind.setdefault(opened.kind, {})[id] = opened

    def take(self, id: bytes) -> Open:
        opened = super().pop(id)
        _leave(self._by_token, opened.token, id)
        _leave(self._by_kind, opened.kind, id)
        return opened

    def of_token(self, token: int) -> Mapping[bytes, Open]:
        return self._by_token.get(token, {})

    def of_kind(self, kind: str) -> Mapping[bytes, Open]:
        return self._by_kind.get(kind, {})


def _leave(index: dict[K, dict[bytes, Open]], key: K, id: bytes) -> None:
    del index[key][id]
    if not index[key]:
        del index[key]


class Frame(msgspec.Struct):
    """A pipeline that runs: the step's own, or an entry of the workbook."""

    entry: str = ""  # of the workbook; empty: the step's
    args: Any = None  # of a workbook entry
    at: int = 0
    visit: int = 0
    attempt: int = 0
    jumps: int = 0
    phase: Phase = "begin"
    began: int = 0
    visits: dict[str, int] = {}
    results: dict[str, Any] = {}
    prev: Any = None
    result: Any = None
    outcome: Any = None  # of the last attempt, until its rules have decided


class Pipe(msgspec.Struct):
    """One way through the pipeline of a run: of the run itself, or of an iteration."""

    index: int = -1
    frames: list[Frame] = []
    args: Any = None
    iter: dict[str, Any] = {}
    writes: dict[str, Any] = {}  # to ctx, of a parallel iteration
    extra: dict[str, Any] = {}  # what the last tool told besides its result


class Turns(msgspec.Struct):
    """A loop that runs."""

    items: Any
    total: int
    parallel: bool
    slots: int
    started: int = 0
    ended: int = 0
    results: list[Any] = []
    errors: list[Any] = []
    failed: int = 0
    cancelled: int = 0
    slice: list[Any] = []  # of a stored list: the items from `slice_at` on
    slice_at: int = 0
    writes: dict[int, dict[str, Any]] = {}  # of parallel iterations, by index
    last: int = -1  # the iteration whose result `collect: last` has


class Run(msgspec.Struct):
    token: int
    step: str
    number: int
    args: Any = None
    began: int = 0
    phase: Literal["begin", "running", "end"] = "begin"
    pipes: dict[int, Pipe] = {}
    turns: Turns | None = None
    status: str = ""  # done, partial or failed
    result: Any = None
    error: Any = None
    failed_at: str = ""  # the location of the action whose error ended it
    extra: dict[str, Any] = {}
    kind: str = ""  # of its last action
    results: dict[str, Any] = {}  # v10: by label, of a pipeline that has ended


class Failed(msgspec.Struct):
    location: str
    kind: str
    message: str
    handled: bool
    again: list[str] = []  # the locations that a retry does again
    details: Any = None  # of an expression: where it stands in the model


class Counts(msgspec.Struct):
    runs: int = 0
    actions: int = 0
    attempts: int = 0
    branches: int = 0
    iterations: int = 0
    denied: int = 0
    skipped: int = 0


class State(msgspec.Struct):
    key: str = ""
    generation: int = 1
    seed: bytes = b""
    life: int = 0  # the rewind since which intents have other ids
    started_at: int = 0
    id: int = 0
    workload: Any = None
    ctx: dict[str, Any] = {}
    ctx_version: int = 0
    marking: Marking = msgspec.field(default_factory=Marking)
    queue: list[int] = []  # tokens that are ready, in their order
    runs: dict[int, Run] = {}  # by token
    fired: dict[str, int] = {}
    firings: int = 0
    recent: list[str] = []  # steps that fired last, for a livelock
    steps: dict[str, Any] = {}  # the last ended run of each step, as expressions see it
    results: dict[str, Any] = {}  # its result
    open: dict[bytes, Open] = {}  # always `OpenEffects`
    mail: list[list[Any]] = []  # messages that nothing has taken yet: name, body
    reads: dict[int, list[list[Any]]] = {}  # parts of stored values, by the token that read them: digest, path, value
    todo: list[list[Any]] = []  # work in hand: what, token, iteration
    asked: int = 0  # reads and puts so far: each has a location of its own
    finals: list[str] = []  # where the final step opened something: a retry does that again
    leaves: dict[str, Any] = {}  # results of runs that ended a branch, by step
    leaf_runs: int = 0
    leaf_ok: bool = False
    counts: Counts = msgspec.field(default_factory=Counts)
    failures: list[Failed] = []
    verdict: str = ""  # set when all but the final step is over
    final: Literal["", "running", "done"] = ""
    cancelled: bool = False
    reason: str = ""
    ended: bool = False

    def __post_init__(self) -> None:
        self.open = OpenEffects(self.open)

    @property
    def effects(self) -> OpenEffects:
        assert isinstance(self.open, OpenEffects)
        return self.open

    @property
    def family(self) -> str:
        """What the keys of children begin with: another generation, and a retried instance, has other children."""
        if self.life:
            return f"{self.key}~{self.generation}.{self.life}"
        return self.key if self.generation == 1 else f"{self.key}~{self.generation}"


def _tree(value: Any) -> Any:
    """Structs as lists of their fields, containers copied; all else as it is."""
    if isinstance(value, msgspec.Struct) and not isinstance(value, SecretText):
        return [_tree(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return {key: _tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tree(item) for item in value]
    return value


def dump(state: State) -> bytes:
    beside = Beside()
    tree = part(_tree(state), beside)
    made = [tree, [list(each) for each in beside.refs]]
    if beside.secrets:  # args of a workbook entry: their names
        made.append([list(each) for each in beside.secrets])
    return encode(made)


def restore(data: bytes, cache: dict[Any, Any]) -> State:
    tree, refs, *more = decode(data)
    made = rejoin(tree, refs, lambda kept: Stored(kept_of(kept), cache))
    for secrets in more:
        made = rejoin(made, secrets, secret_text)
    return _convert(made, State)


def _convert(tree: Any, kind: type[State]) -> State:
    return msgspec.convert(_named(tree, kind), kind)


def _named(tree: Any, kind: Any) -> Any:
    """Lists of fields become maps again where the type is a struct."""
    struct = _struct(kind)
    if struct is not None and isinstance(tree, list):
        hints = _hints(struct)
        return {name: _named(item, hints[name]) for name, item in zip(struct.__struct_fields__, tree, strict=False)}
    inner: tuple[Any, ...] = getattr(kind, "__args__", ())
    if isinstance(tree, dict) and len(inner) == 2 and _struct(inner[1]) is not None:
        return {key: _named(item, inner[1]) for key, item in tree.items()}
    if isinstance(tree, list) and len(inner) == 1 and _struct(inner[0]) is not None:
        return [_named(item, inner[0]) for item in tree]
    return tree


def _struct(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    options = [
        each for each in getattr(kind, "__args__", ()) if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    is_union = type(kind).__name__ == "UnionType"
    return options[0] if is_union and options else None


_known: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return found


def state_of(state: State) -> dict[str, Any]:
    """What people see of an instance: ctx, tokens and the last runs."""
    tokens = [
        {"id": token.id, "step": token.step, "state": token.state, "args": shown(token.args)}
        for _, token in sorted(state.marking.tokens.items())
    ]
    ended = {step: found["status"] for step, found in sorted(state.steps.items()) if found is not None}
    return {
        "ctx": shown(state.ctx),
        "ctx_version": state.ctx_version,
        "tokens": tokens,
        "steps": ended,
        "counts": msgspec.to_builtins(state.counts),
    }


__all__ = ["Counts", "Failed", "Frame", "Kept", "Open", "Pipe", "Run", "State", "Turns", "dump", "restore", "state_of"]
