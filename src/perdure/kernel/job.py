"""Jobs: open calls of a queue, as workers find them, and who may answer them.

The row of a job is a pure function of the open intent, so it can be rebuilt from the journal. Who has claimed it is
known to the table alone: that is lost with it, and then the job is free.
"""

import msgspec

from perdure.codec import decode, seal, unseal

from .batch import JobRow, Publication
from .effects import Call
from .events import Address
from .identity import Identity
from .instance import Instance, Intent
from .outside import Outside


class Job(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a worker needs besides the columns of the row. `params` are canonical bytes; times are nanoseconds."""

    address: Address
    location: str
    attempt: int
    idempotency_key: str
    params: bytes
    timeout: int | None = None
    once: bool = False  # it may be delivered once only
    resources: dict[str, float] = {}  # what the step asks of a cluster


_decoder = msgspec.msgpack.Decoder(Job)


def job_row(instance: Instance, intent: Intent, call: Call, at: int) -> JobRow:
    params = call.params or b""
    key = instance.identity.idempotency_key(call.location, call.life)
    asked = decode(params) if params else {}
    function, resources = asked.get("call", ""), asked.get("resources", {})
    once = call.deliveries_max == 1
    job = Job(instance.address, call.location, call.attempt, key, params, call.timeout, once, resources)
    body = seal(msgspec.msgpack.encode(job))
    named = function if isinstance(function, str) else ""
    return JobRow(intent.id, instance.id, call.executor, named, intent.delivery, at, body)


def job_of(row: JobRow) -> Job:
    return _decoder.decode(unseal(row.body))


def publication(row: JobRow) -> Publication:
    """A job as its executor takes it."""
    job = job_of(row)
    allowed = 1 if job.once else 2
    call = Call(job.location, job.attempt, row.queue, job.timeout, allowed, job.params)
    return Publication(row.intent, row.instance, job.address, call, row.delivery, None, _Known(job))


class _Known(Identity):
    """The identity of an instance, as far as a worker knows it: the key of this very job."""

    __slots__ = ("_key",)

    def __init__(self, job: Job) -> None:
        super().__init__(job.address, 0)
        self._key = job.idempotency_key

    def idempotency_key(self, location: str, life: int = 0) -> str:
        return self._key


def asked(call: Call, delivery: int) -> Outside:
    """A job as an executor outside sees it: what a signed receipt is an answer to."""
    params = decode(call.params) if call.params else {}
    return Outside(params.get("call", ""), call.executor, params, entry=delivery)
