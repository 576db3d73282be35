"""The workers' side of the jobs: claims, beats and answers, each one statement, by the clock of the database."""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.kernel.batch import InboxRow, JobRow
from perdure.ports.frame import Frame
from perdure.ports.jobs import CLAIM, Claim, OpenJob

from . import reads

if TYPE_CHECKING:
    from .database import PostgresDatabase

QUEUE: Final = "queue "
"""A hint that begins so has the name of a queue, in which there is a free job."""

FRAME: Final = "frame "
"""What begins so is no hint but a frame of a worker, in Base64."""

FRAME_MAX: Final = 7000
"""Characters of a frame that fits into a notification."""

LASTS: Final = CLAIM / 1e9

_decoder = msgspec.msgpack.Decoder(tuple[int, bytes, int, Frame])


class PostgresJobs:
    """Made by `PostgresDatabase.jobs`."""

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._sql = database.sql

    async def claim(self, worker: str, queues: Sequence[str], functions: Sequence[str], limit: int) -> list[Claim]:
        rows = await self._rows(self._sql.claim, worker, LASTS, list(queues), list(functions), limit)
        return [Claim(JobRow(*row), worker, taken) for *row, taken in rows]

    async def take(self, worker: str, intents: Sequence[bytes]) -> list[Claim]:
        rows = await self._rows(self._sql.take, worker, LASTS, list(intents))
        return [Claim(JobRow(*row), worker, taken) for *row, taken in rows]

    async def beat(self, worker: str, claims: Sequence[Claim]) -> list[Claim]:
        return _void(claims, await self._rows(self._sql.beat, worker, LASTS, *_names(claims)))

    async def answer(self, answers: Sequence[tuple[Claim, InboxRow]]) -> list[Claim]:
        answers = sorted(answers, key=lambda answer: answer[0].id)
        claims = [claim for claim, _ in answers]
        rows = reads.columns(((row.id, row.instance, row.at, row.body) for _, row in answers), 4)
        worker = claims[0].worker
        void = _void(claims, await self._rows(self._sql.answer, worker, LASTS, *_names(claims), *rows))
        shards = {self._database.shard_of(row.instance) for claim, row in answers if claim not in void}
        self._database.tell_shards(shards)
        return void

    async def give_back(self, claims: Sequence[Claim]) -> None:
        claims = sorted(claims, key=lambda claim: claim.id)
        await self._rows(self._sql.give_back, claims[0].worker, *_names(claims))
        self._database.hint(*{QUEUE + claim.job.queue for claim in claims})

    async def tell(self, frames: Sequence[tuple[Claim, Frame]]) -> None:
        for claim, frame in frames:
            packed = msgspec.msgpack.encode((claim.job.instance, claim.job.intent, claim.taken, frame))
            word = FRAME + base64.b64encode(packed).decode()
            if len(word) <= FRAME_MAX:
                await self._database.notify(word)

    async def open_jobs(
        self, queue: str, limit: int, without: Sequence[bytes], without_functions: Sequence[str]
    ) -> list[OpenJob]:
        rows = await self._rows(self._sql.open_jobs, queue, limit, list(without), list(without_functions))
        return [OpenJob(JobRow(*row), taken) for *row, taken in rows]

    async def waiting(self, intents: Sequence[bytes]) -> dict[bytes, int | None]:
        return dict(await self._rows(self._sql.waiting_jobs, list(intents)))

    async def note(self, queue: str, function: str, text: str) -> None:
        await self._rows(self._sql.note_jobs, queue, function, text.replace("\0", ""))

    def listen(self, hint: Callable[[], None]) -> None:
        self._database.listen(lambda word: hint() if word.startswith(QUEUE) else None)

    async def _rows(self, sql: str, *arguments: Any) -> list[Any]:
        found: list[Any] = await self._database.engine.ask(lambda connection: connection.fetch(sql, *arguments))
        return found


def heard_frame(word: str) -> tuple[int, bytes, int, Frame]:
    return _decoder.decode(base64.b64decode(word.removeprefix(FRAME)))


def _names(claims: Iterable[Claim]) -> tuple[list[bytes], list[int]]:
    """In one order everywhere, so that transactions never wait for each other in a circle."""
    ordered = sorted((claim.job.intent, claim.taken) for claim in claims)
    return [intent for intent, _ in ordered], [taken for _, taken in ordered]


def _void(claims: Iterable[Claim], kept: Iterable[tuple[bytes, int]]) -> list[Claim]:
    own = {(intent, taken) for intent, taken in kept}
    return [claim for claim in claims if (claim.job.intent, claim.taken) not in own]
