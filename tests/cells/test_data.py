"""Worlds that are written as data: a manifest without Python types. Its reducers get and give plain data."""

from typing import Any

import pytest

import perdure
from perdure import Datum, Next, ReceiptOf
from perdure.cells.bound_manifest import BoundManifest
from perdure.cells.manifest import read
from perdure.testing import World

MANIFEST: dict[str, Any] = {
    "schemas": {
        "com.acme/Made@1": {"record": {"note": "text", "tags": {"set": "text"}}},
        "com.acme/Gone@1": {"record": {"note": "text"}},
        "com.acme/Change@1": {"variant": {"Made": {"ref": "com.acme/Made@1"}, "Gone": {"ref": "com.acme/Gone@1"}}},
        "com.acme/Note@1": {"record": {"heard": {"list": "text"}}},
    },
    "effects": {"com.acme/save@1": {"params": {"record": {"text": "text"}}, "receipt": {"record": {"at": "time"}}}},
    "cells": {
        "com.acme/note@1": {
            "state": {"ref": "com.acme/Note@1"},
            "event": {"ref": "com.acme/Change@1"},
            "effects": ["com.acme/save@1"],
            "impl": "tests.cells.test_data:note",
            "key": "text",
        }
    },
    "routing": [
        {"event": "com.acme/Change@1", "cell": "com.acme/note@1", "key_field": "$value.note"},
        {"event": "com.acme/Made@1", "cell": "com.acme/note@1", "key_field": "note"},
    ],
}


def note(state: Any, event: Any, ctx: perdure.CellContext) -> Next:
    """Reducers of a manifest are found by their names."""
    heard = [*(state or {"heard": []})["heard"], _said(event)]
    if isinstance(event, Datum) and event.name == "com.acme/Made@1":
        return Next({"heard": heard}, effects=[Datum("com.acme/save@1", {"text": ctx.key})])
    return Next({"heard": heard})


def _said(event: Any) -> str:
    if isinstance(event, ReceiptOf):
        return f"{event.effect} {event.status} {event.value} {event.params}"
    return f"{event.name} {event.value}"


@pytest.fixture(params=[4096, 0], ids=["hot", "evicted"])
def data_world(request):
    with World(BoundManifest(read(MANIFEST)), cache=request.param) as world:
        yield world


def test_a_key_inside_of_a_variant_and_a_reducer_with_plain_data(data_world):
    data_world.send(Datum("com.acme/Change@1", {"$tag": "Gone", "$value": {"note": "n"}}))

    said = "com.acme/Change@1 {'$tag': 'Gone', '$value': {'note': 'n'}}"
    assert data_world.state("com.acme/note@1", "n") == {"heard": [said]}


def test_an_arm_of_a_variant_is_an_event_by_itself(data_world):
    data_world.send_json("com.acme/Made@1", {"note": "n", "tags": ["b", "a", "b"]})

    assert data_world.state("com.acme/note", "n")["heard"] == ["com.acme/Made@1 {'note': 'n', 'tags': ['a', 'b']}"]


def test_effects_and_receipts_are_plain_data_too(data_world):
    data_world.send(Datum("com.acme/Made@1", {"note": "n", "tags": []}))
    (found,) = data_world.pull_effects()
    assert found.effect == Datum("com.acme/save@1", {"text": "n"})
    with pytest.raises(perdure.SchemaMismatch):
        data_world.receipt(found, ok={"at": "noon"})

    data_world.receipt(found, ok={"at": 7})

    assert data_world.state("com.acme/note@1", "n")["heard"][1] == "com.acme/save@1 ok {'at': 7} {'text': 'n'}"


async def test_the_same_in_an_engine(stage):
    bound = BoundManifest(read(MANIFEST))
    async with stage.open(bound, lenient=True) as live:
        await live.engine.send_json("com.acme/Change@1", {"$tag": "Gone", "$value": {"note": "n"}})
        await live.rest()

        assert len((await live.state(bound.cells[0], "n"))["heard"]) == 1
