"""The register of a definition: versions, the active one, conflicts. Driven without a runtime."""

import asyncio
from typing import Any

import pytest

from perdure.codec import decode, digest, encode
from perdure.definitions import load, model
from perdure.definitions.machine import DefinitionMachine
from perdure.errors import Corrupt, DefinitionConflict
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Message, Ref, Started
from perdure.kernel.moment import Moment
from perdure.ports.dialect import Stored

ONE, TWO = encode({"steps": ["a"]}), encode({"steps": ["b"]})


class Book:
    """A machine, and what it published: enough of a store for `load.py`."""

    def __init__(self, rule: model.Rule = "highest") -> None:
        self.machine = DefinitionMachine(None)
        self.values: dict[str, bytes] = {}
        self.entries = 0
        self.deliver(Started("perdure.definition", "shop", model.first_input("process", rule), b""))

    def deliver(self, event: Any) -> Any:
        self.entries += 1
        decision = self.machine.deliver(event, Moment(self.entries, b"", self.entries))
        self.values.update(decision.publish)
        self.machine = DefinitionMachine(self.machine.snapshot())
        return decode(decision.respond[0][1]) if decision.respond else None

    def put(self, version: str, definition: bytes, *, activate: bool = False) -> Any:
        id = model.put_id(version, digest(definition), activate=activate)
        return self.deliver(Message("put", model.put_body(version, definition, activate=activate), id))

    def activate(self, version: str) -> Any:
        return self.deliver(Message("activate", model.activate_body(version), "a"))

    async def head(self, ref: Ref) -> HeadRow | None:
        known = ref == model.address("shop")
        return (
            HeadRow(7, "perdure.definition", "shop", 1, "1", "waiting", 0, 0, 0, b"", "{}", None, 7, 0, "")
            if known
            else None
        )

    async def published(self, instance: int, name: str) -> bytes | None:
        return self.values.get(name)

    def register(self) -> model.Register:
        return model.Register.read(self.values["register"])


def test_the_highest_version_is_active_whatever_the_order_of_registration():
    book = Book()

    for version in ("1.9.0", "1.10.0", "1.2.0"):
        book.put(version, encode(version))

    assert book.register().active == "1.10.0"


def test_the_version_registered_last_is_active_where_the_dialect_says_so():
    book = Book("last")

    book.put("ffff", ONE)
    book.put("0000", TWO)

    assert book.register().active == "0000"


def test_a_version_that_a_person_activated_stays_active():
    book = Book()
    book.put("1.0.0", ONE)
    book.put("2.0.0", TWO)

    assert book.activate("1.0.0")["active"] == "1.0.0"
    book.put("3.0.0", encode(3))

    assert book.register().active == "1.0.0"
    assert book.put("4.0.0", encode(4), activate=True)["active"] == "4.0.0"


def test_an_unknown_version_is_not_activated():
    book = Book()
    book.put("1.0.0", ONE)

    answer = book.activate("1.0.1")

    assert answer == {"refused": "unknown-version", "version": "1.0.1", "known": ["1.0.0"]}
    assert book.register().active == "1.0.0"


def test_the_same_bytes_again_publish_nothing():
    book = Book()
    book.put("1.0.0", ONE)
    book.values.clear()

    answer = book.put("1.0.0", ONE)

    assert answer["digest"] == digest(ONE)
    assert not book.values


def test_other_bytes_under_a_version_are_refused_by_the_machine():
    book = Book()
    book.put("1.0.0", ONE)

    answer = book.put("1.0.0", TWO)

    assert answer == {"refused": "conflict", "version": "1.0.0", "digest": digest(ONE)}
    assert book.values["version 1.0.0"] == ONE


@pytest.mark.parametrize("body", [b"", encode(1), encode({}), encode({"version": "", "definition": b""})])
def test_a_message_that_is_no_request_changes_nothing(body: bytes):
    book = Book()

    assert book.deliver(Message("put", body, "x"))["refused"] == "bad-request"
    assert book.deliver(Message("other", body, "y"))["refused"] == "bad-request"
    assert book.register() == model.Register("process")


def test_a_stored_version_is_read_back_by_name():
    book = Book()
    book.put("1.0.0", ONE)
    book.put("2.0.0", TWO)

    async def read() -> None:
        assert (await load.stored(book, "shop", "1.0.0")) == Stored("shop", "1.0.0", "process", ONE, digest(ONE))
        active = await load.stored(book, "shop")
        assert active is not None and active.version == "2.0.0"
        assert await load.stored(book, "shop", "9.0.0") is None
        assert await load.stored(book, "other") is None

    asyncio.run(read())


def test_damaged_bytes_are_not_handed_out():
    book = Book()
    book.put("1.0.0", ONE)
    book.values["version 1.0.0"] = TWO

    with pytest.raises(Corrupt, match=r"shop 1\.0\.0 does not match"):
        asyncio.run(load.stored(book, "shop"))


def test_a_conflict_names_the_first_difference_and_the_next_free_version():
    book = Book()
    book.put("1.0.0", ONE)
    book.put("1.0.1", TWO)
    register = book.register()
    before = Stored("shop", "1.0.0", "process", ONE, digest(ONE))
    given = Stored("shop", "1.0.0", "process", TWO, digest(TWO))

    with pytest.raises(DefinitionConflict) as raised:
        load.is_new(register, before, given, decode)

    assert raised.value.difference == "steps[0]: 'a' is stored, found 'b'"
    assert raised.value.free == "1.0.2"
    assert not load.is_new(register, before, before, decode)
    assert load.is_new(None, None, given, decode)


def test_a_name_belongs_to_one_dialect():
    given = Stored("shop", "1.0.0", "playbook", ONE, digest(ONE))

    with pytest.raises(DefinitionConflict, match="belongs to a process, found a playbook"):
        load.is_new(Book().register(), None, given, decode)
