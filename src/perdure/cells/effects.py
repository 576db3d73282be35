"""Effects that every world has: named `sys/...`, without a definition in a manifest, declared by cells like others."""

from __future__ import annotations

from typing import Any, Final

from perdure.codec import encode, to_plain
from perdure.codec.record import Duration, Hash, Nat, Record, Time

from .author import Effect

TIMER: Final = "sys/timer@1"
CHILD: Final = "sys/child@1"
PUBLISH: Final = "sys/publish@1"
HTTP: Final = "sys/http@1"
BLOB_PUT: Final = "sys/blob-put@1"
BLOB_GET: Final = "sys/blob-get@1"
STEP: Final = "sys/step@1"
TASK: Final = "sys/task@1"


class Alarm(Effect, name=TIMER):
    """Answered at a time, or after a while. `at` and `after` are nanoseconds; one of them."""

    at: Time | None = None
    after: Duration | None = None


class Spawn(Effect, name=CHILD):
    """Another workflow, of any dialect: started with this, answered with its result."""

    workflow: str
    key: str
    input: bytes
    detached: bool = False

    class Receipt(Record):
        result: bytes

    @classmethod
    def of(cls, workflow: Any, *args: Any, key: str, detached: bool = False, **kwargs: Any) -> Spawn:
        """By the workflow itself and its arguments."""
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


class Http(Effect, name=HTTP):
    """An HTTP request. Any answer is a receipt that is ok, whatever its status; no answer is an error."""

    method: str
    url: str
    headers: list[Header] = []  # noqa: RUF012  # a struct copies it
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
    """A Python step, by the place where it is defined: `module:function`. Its arguments are canonical bytes."""

    function: str
    arguments: bytes

    class Receipt(Record):
        result: bytes


class Task(Effect, name=TASK, outside="person"):
    """A question to a person. Until there are tasks, whoever holds the intent answers it."""

    title: str
    details: str = ""

    class Receipt(Record):
        answer: str
