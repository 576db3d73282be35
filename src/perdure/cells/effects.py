"""Effects that every world has: named `sys/...`, without a definition in a manifest, declared by cells like others."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.codec import Signature, decode, encode, from_plain, to_plain
from perdure.codec.jsonschema import schema_of
from perdure.codec.record import Duration, Hash, Nat, Record, Time
from perdure.errors import BadCall
from perdure.ports.secrets import Secret
from perdure.tasks.model import Escalation, Quorum

from .author import Effect, impl_of

TIMER: Final = "sys/timer@1"
CHILD: Final = "sys/child@1"
PUBLISH: Final = "sys/publish@1"
HTTP: Final = "sys/http@1"
BLOB_PUT: Final = "sys/blob-put@1"
BLOB_GET: Final = "sys/blob-get@1"
STEP: Final = "sys/step@1"
OLD_TASK: Final = "sys/task@1"
TASK: Final = "sys/task@2"

CANONICAL: Final = {PUBLISH: "value", CHILD: "input", STEP: "arguments", TASK: "question"}
"""Effects with a field that holds any value, as canonical bytes."""


class Alarm(Effect, name=TIMER):
    """Answered at a time, or after a while. `at` and `after` are nanoseconds; one of them."""

    at: Time | None = None
    after: Duration | None = None


class Result(Record):
    """What code returned. `result` is canonical bytes; `value` is what they say, as plain data."""

    result: bytes

    @property
    def value(self) -> Any:
        return decode(self.result)


class Spawn(Effect, name=CHILD):
    """Another workflow, of any dialect: started with this, answered with its result.

    A child that fails is a receipt of status `error`, one that is cancelled of status `cancelled`, each with the error
    that the child recorded. A detached child is answered when it has started, with its key.
    """

    workflow: str
    key: str
    input: bytes
    detached: bool = False

    class Receipt(Result):
        """What it returned."""

    @classmethod
    def of(cls, workflow: Any, *args: Any, key: str, detached: bool = False, **kwargs: Any) -> Spawn:
        """By the workflow itself and its arguments, or by its name and keyword arguments."""
        if isinstance(workflow, str):
            if args:
                text = "a workflow that is known here by its name only takes keyword arguments; or pass the workflow"
                raise BadCall(f"Spawn.of({workflow!r}, ...): {text}")
            return cls(workflow, key, encode(to_plain(kwargs)), detached)
        if not hasattr(workflow, "encode_input"):
            raise BadCall(f"Spawn.of(workflow, ..., key=...): {workflow!r} is no workflow")
        return cls(workflow.name, key, workflow.encode_input(args, kwargs), detached)


class Publish(Effect, name=PUBLISH):
    """A value that others may read. It has no receipt: it is there when the entry is."""

    name: str
    value: bytes

    @classmethod
    def of(cls, name: str, value: Any) -> Publish:
        return cls(name, encode(to_plain(value)))


class Header(Record, name="sys/Header@1"):
    name: str
    value: str


class SecretHeader(Record, name="sys/SecretHeader@1"):
    """A header whose value is a secret: `SecretHeader("authorization", Secret("stripe-key", prefix="Bearer "))`."""

    name: str
    value: Secret


class Http(Effect, name=HTTP):
    """An HTTP request. Any answer is a receipt that is ok, whatever its status; no answer is an error.

    It goes to public addresses, and to what the operator allows: `perdure.open(..., allow=[...])`. When the process
    dies under it, it is made again: if the other side must not act twice, send it an idempotency key, or declare an
    effect of your own with once=True.
    """

    method: str
    url: str
    headers: list[Header | SecretHeader] = []  # noqa: RUF012  # a struct copies it
    body: bytes = b""

    class Receipt(Record):
        status: Nat
        headers: list[Header]
        body: bytes


class BlobPut(Effect, name=BLOB_PUT):
    """Bytes into the store, by their hash."""

    data: bytes

    class Receipt(Record):
        hash: Hash
        size: Nat


class BlobGet(Effect, name=BLOB_GET):
    """Bytes from the store, verified against their hash."""

    hash: Hash

    class Receipt(Record):
        data: bytes


class Step(Effect, name=STEP):
    """A Python function with `@perdure.step`, by its place: `module:function`. Others are refused.

    Its arguments are canonical bytes, by the names of the parameters. It is tried once: what to do about an error is
    the reducer's to say.
    """

    function: str
    arguments: bytes

    class Receipt(Result):
        """What it returned."""

    @classmethod
    def of(cls, function: Any, *args: Any, **kwargs: Any) -> Step:
        """By the function itself and its arguments."""
        plain = getattr(function, "function", function)
        return cls(impl_of(plain), encode(Signature.of(plain).bind(args, kwargs)))


class Task(Effect, name=TASK):
    """A task for people, in the one list of all tasks: see the reference of tasks. Made by `Task.of(...)`.

    A task that expires is a receipt of status `timeout`, one that a person cancels of status `cancelled`.
    """

    name: str
    question: bytes

    class Receipt(Record):
        """`answer` is canonical bytes; `value` is what they say, as plain data."""

        outcome: str
        answer: bytes
        by: str
        at: Time

        @property
        def value(self) -> Any:
            return decode(self.answer)

    @classmethod
    def of(cls, name: str, *, answer: Any = None, **fields: Any) -> Task:
        """With the arguments of `ctx.task` in a flow."""
        known = None if answer is None else msgspec.json.encode(schema_of(answer)).decode()
        plain = {field: to_plain(value) for field, value in fields.items()}
        return cls(name, encode({"answer": known, **plain}))

    @staticmethod
    def asked(name: str, question: Any) -> dict[str, Any]:
        """The arguments of a question that was asked with `of`."""
        if not isinstance(question, dict):
            raise BadCall(f"the question of a task has fields by name, found {question!r:.80}")
        fields = dict(question)
        form = fields.pop("answer", None)
        escalate = [from_plain(each, Escalation) for each in fields.pop("escalate", None) or ()]
        quorum = from_plain(fields.pop("quorum", None), Quorum | None)
        answer = None if form is None else msgspec.json.decode(form)
        return {"answer": answer, "escalate": escalate, "quorum": quorum, **fields}


class PersonAsked(Effect, name=OLD_TASK, outside="person"):
    """A question to a person, of older worlds: the holder of the intent answers it. New ones ask with `Task`."""

    title: str
    details: str = ""

    class Receipt(Record):
        answer: str
