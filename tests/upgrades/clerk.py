"""A cell of an old version that asks a person by `sys/task@1`, and the database that it left (`README.md`)."""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from pathlib import Path

import perdure
from perdure.cells import effects

if not hasattr(effects, "PersonAsked"):  # in the old version it had the name of today's `sys/task@2`
    effects.PersonAsked = effects.Task  # type: ignore[misc, assignment]
from perdure.cells.effects import PersonAsked


class Wish(perdure.Record, name="old/Wish@1"):
    person: str
    what: str


class Wished(perdure.Record, name="old/Wished@1"):
    what: str
    answer: str = ""


@perdure.cell("old/clerk@1", key="person", effects=[PersonAsked])
def clerk(state: Wished | None, event: Wish | perdure.ReceiptOf[PersonAsked]) -> perdure.Next:
    if isinstance(event, Wish):
        return perdure.Next(Wished(event.what), effects=[PersonAsked(f"May {event.person}?", event.what)])
    assert state is not None
    return perdure.Next(Wished(state.what, event.value.answer if event.value else event.status))


async def live(url: str) -> None:
    async with perdure.open(url, workflows=[clerk]) as engine:
        await engine.send(Wish("ann", "a desk"), id="wish-1")
        (asked,) = await engine.open_effects("person")
        await engine.answer(asked, ok={"answer": "yes"}, executor="person")
        await engine.send(Wish("bob", "a chair"), id="wish-2")  # is answered by today's version
        while await engine.state(clerk, "ann") != Wished("a desk", "yes"):  # noqa: ASYNC110  # it is in the database
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    from tests.upgrades.clerk import live as living  # the manifest names the module of its reducers

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "clerk.db"
        asyncio.run(living(str(database)))
        Path(__file__).with_name("clerk.db.gz").write_bytes(gzip.compress(database.read_bytes(), mtime=0))
