"""Manifest files: the same world in Python, JSON and YAML is one manifest, and cells without Python types run."""

import asyncio
import json
import re

import pytest

import perdure
from perdure.cells.load import from_json, from_yaml, to_json, to_yaml
from perdure.kernel.limits import Limits
from perdure.ports.seen import Line
from tests.cells import till as shop

WORLD = """
schemas:
  com.acme/OrderCreated@1: {record: {order_id: text, cents: nat}}
  com.acme/OrderCancelled@1: {record: {order_id: text}}
  com.acme/OrderPaid@1: {record: {order_id: text, cents: nat}}
  com.acme/Order@1:
    record:
      pc: {variant: {charging: unit, paid: unit, failed: unit}}
      auth: {option: text}
  com.acme/Total@1: {record: {cents: nat}}
effects:
  payment/charge@1:
    params: {record: {order_id: text, cents: nat}}
    receipt: {record: {auth: text}}
cells:
  com.acme/order@1:
    state: {ref: com.acme/Order@1}
    event:
      variant:
        OrderCreated: {ref: com.acme/OrderCreated@1}
        OrderCancelled: {ref: com.acme/OrderCancelled@1}
    key: text
    effects: [payment/charge@1]
    impl: tests.cells.till:order
  com.acme/total@1:
    state: {ref: com.acme/Total@1}
    event: {ref: com.acme/OrderPaid@1}
    effects: []
    context: false
    impl: tests.cells.till:total
routing:
  - {event: com.acme/OrderCreated@1, cell: com.acme/order@1, key_field: order_id}
  - {event: com.acme/OrderCancelled@1, cell: com.acme/order@1, key_field: order_id}
  - {event: com.acme/OrderPaid@1, cell: com.acme/total@1}
"""
PLAIN = WORLD.replace("till:order", "till:plain_order").replace("till:total", "till:plain_total")


def test_one_world_in_python_json_and_yaml_is_one_manifest(tmp_path):
    written = perdure.manifest(shop.order, shop.total).manifest
    (tmp_path / "world.yaml").write_text(WORLD)
    (tmp_path / "world.json").write_text(to_json(from_yaml(WORLD)))

    of_yaml = perdure.load_manifest(tmp_path / "world.yaml").manifest
    of_json = perdure.load_manifest(tmp_path / "world.json").manifest

    assert of_yaml.bytes == of_json.bytes == written.bytes
    assert of_yaml.hash == of_json.hash == written.hash
    assert of_yaml.cell_hash("com.acme/order@1") == written.cell_hash("com.acme/order@1")


def test_what_is_exported_is_read_again_as_the_same_world():
    manifest = perdure.manifest(shop.order, shop.total).manifest

    assert from_json(to_json(manifest)).bytes == manifest.bytes
    assert from_yaml(to_yaml(manifest)).bytes == manifest.bytes
    assert list(json.loads(to_json(manifest))) == ["schemas", "effects", "cells", "routing"]
    assert to_yaml(manifest).startswith("schemas:\n  com.acme/Order@1:\n    record:\n")


HASHED = """
schemas:
  a/Part@1: {record: {STATE: text}}
  a/Heard@1: {record: {EVENT: text}}
  a/Told@1: {record: {NOTE: text}}
  a/Asked@1: {record: {PARAMS: text}}
  a/Given@1: {record: {RECEIPT: text}}
  a/Event@1: {record: {inner: {ref: a/Heard@1}}}
effects:
  a/ask@1: {params: {record: {inner: {ref: a/Asked@1}}}, receipt: {list: {ref: a/Given@1}}}
  a/beg@1: {params: text}
cells:
  a/cell@1:
    state: {list: {ref: a/Part@1}}
    event: {ref: a/Event@1}
    annotations: {list: {ref: a/Told@1}}
    effects: [a/ask@1, a/beg@1]
    impl: nowhere:cell
"""


@pytest.mark.parametrize("part", ["STATE", "EVENT", "NOTE", "PARAMS", "RECEIPT"])
def test_the_hash_of_a_cell_covers_all_that_it_refers_to(part):
    before, after = from_yaml(HASHED), from_yaml(HASHED.replace(part, "other"))

    assert before.cell_hash("a/cell@1") != after.cell_hash("a/cell@1")
    assert before.hash != after.hash


def test_the_order_in_which_effects_are_declared_makes_no_other_manifest():
    turned = HASHED.replace("[a/ask@1, a/beg@1]", "[a/beg@1, a/ask@1]")

    assert turned != HASHED
    assert from_yaml(turned).hash == from_yaml(HASHED).hash


@pytest.mark.parametrize("name", ["no", "on", "yes", "null_", "y"])
def test_yaml_is_that_of_version_1_2(name):
    schema = from_yaml(f"schemas: {{a/B@1: {{record: {{{name}: text}}}}}}").schemas["a/B@1"]

    assert list(schema.fields) == [name]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("schemas:\n  a/B@1: text\n  a/B@1: nat\n", "w.yaml:3:3", "duplicate key"),
        ("schemas:\n  a/B@1: [text\n", "w.yaml:3:1", "expected ',' or ']'"),
        ("schemas:\n  a/B@1: &b text\n  a/C@1: *b\n", "w.yaml:3:10", "no aliases"),
        ("schemas:\n  a/B@1: {record: {x: text, <<: {x: nat}}}\n", "w.yaml:2:29", "<<, of YAML 1.1"),
        ("schemas:\n  a/B@1: {ref: a/C@1}\n  a/C@1: {list: {ref: a/B@1}}\n", "w.yaml:2:3", "a/C@1 -> a/B@1 -> a/C@1"),
        ("schemas:\n  a/B@1: txt\n", "w.yaml:2:3", "txt"),
        ("cells:\n  a/b@1:\n    state: text\n", "w.yaml:2:3", "$.cells.a/b@1.event"),
        ("schemas:\n  a/B@1: {record: {x: {ref: a/C@1}}}\n", "w.yaml:2:24", "missing-reference"),
        ("routing:\n  - {event: a/B@1, cell: a/c@1}\n", "w.yaml:2:20", "unknown-cell"),
        ("- 1\n", "w.yaml:1:1", "a dict with"),
        ("", "w.yaml", "a dict with"),
        ("a: b\n--- \na: b\n", "w.yaml:2:1", "document"),
    ],
)
def test_what_is_wrong_in_yaml_is_told_with_line_and_column(text, where, what):
    with pytest.raises((perdure.BadDefinition, perdure.BadManifest)) as raised:
        from_yaml(text, "w.yaml")

    assert str(raised.value).startswith(f"{where}: ") and what in str(raised.value)


@pytest.mark.parametrize("text", ['{"schemas": {}, "schemas": {}}', "{", '{"cells": NaN}', "", "[1]", '{"x": 1}'])
def test_what_is_wrong_in_json_is_told_with_its_file(text):
    with pytest.raises(perdure.BadDefinition) as raised:
        from_json(text, "w.json")

    assert re.match(r"w\.json(:1:1)?: \$", str(raised.value))


def test_a_file_that_cannot_be_read_is_told_so(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"\xff": 1}')

    for name, what in [("a.json", "cannot be read"), ("latin.json", "not UTF-8"), ("a.toml", "ends in .json, .yaml")]:
        with pytest.raises(perdure.CallerError, match=what):
            perdure.load_manifest(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "code", "what"),
    [
        (("till:order", "tilll:order"), "unknown-module", "cannot be imported"),
        (("till:order", "till:ordr"), "unknown-module", "has no function 'ordr'"),
        (("till:order", "till:total"), "code-mismatch", "this is the cell com.acme/total@1 in the code"),
        (("pc: {variant: {charging: unit, ", "pc: {variant: {"), "code-mismatch", ".pc.variant.charging"),
        (("receipt: {record: {auth: text}}", "once: true"), "code-mismatch", "$.effects['payment/charge@1'].receipt"),
        (("context: false\n", "\n"), "code-mismatch", "$.cells['com.acme/total@1'].context"),
    ],
)
def test_code_that_does_not_agree_with_the_file_is_refused(tmp_path, change, code, what):
    (tmp_path / "world.yaml").write_text(WORLD.replace(*change))

    with pytest.raises(perdure.BadManifest) as raised:
        perdure.load_manifest(tmp_path / "world.yaml")

    assert raised.value.code == code
    assert what in str(raised.value)
    assert re.match(rf"{tmp_path}/world\.yaml:\d+:\d+: ", str(raised.value))


def test_cells_without_python_types_run_in_an_engine(tmp_path):
    (tmp_path / "world.yaml").write_text(PLAIN)

    async def main() -> tuple[object, object, list[Line]]:
        world = perdure.load_manifest(tmp_path / "world.yaml")
        async with perdure.open(tmp_path / "w.db", workflows=[world], handlers=[shop.plain_charge]) as engine:
            await engine.send(perdure.Datum("com.acme/OrderCreated@1", {"order_id": "o-1", "cents": 5}))
            await engine.send_json("com.acme/OrderCreated@1", {"order_id": "o-2", "cents": 7})
            await engine.state("com.acme/order", "o-1", at_least=9)  # 1, and 4 for each order
            history = await engine.handle("com.acme/order", "o-1").history()
            return await engine.state("com.acme/order", "o-1"), await engine.state("com.acme/total"), history

    order, total, history = asyncio.run(main())

    assert order == {"pc": {"$tag": "paid", "$value": None}, "auth": "auth-o-1"}
    assert total == {"cents": 12}
    assert history[-1].value == {"auth": "auth-o-1"}


def test_the_limits_of_a_world_in_a_file_can_be_set(tmp_path):
    (tmp_path / "world.yaml").write_text(PLAIN)

    world = perdure.load_manifest(tmp_path / "world.yaml", limits={"bytes": 2000})

    assert {cell.limits for cell in world.cells} == {Limits(64, 256, 2000)}


def test_a_receipt_of_a_plain_handler_that_does_not_fit_is_an_error_receipt(tmp_path):
    (tmp_path / "world.yaml").write_text(PLAIN)

    @perdure.effect_handler("payment/charge@1")
    def wrong(params: object, call: perdure.Call) -> object:
        return {"auth": 7}

    async def main() -> list[Line]:
        world = perdure.load_manifest(tmp_path / "world.yaml")
        async with perdure.open(tmp_path / "w.db", workflows=[world], handlers=[wrong]) as engine:
            await engine.send_json("com.acme/OrderCreated@1", {"order_id": "o-1", "cents": 5})
            await engine.state("com.acme/order", "o-1", at_least=3)  # the manifest, the event, its delivery
            handle = engine.handle("com.acme/order", "o-1")
            await handle.result()
            return await handle.history()

    answer = asyncio.run(main())[-1]

    assert answer.status == "error"
    assert answer.error is not None and "$.auth: expected text, found int 7" in str(answer.error)


def test_annotations_are_checked_like_the_state(tmp_path, monkeypatch):
    (tmp_path / "noting.py").write_text(
        "import perdure\n"
        "def note(state, event, ctx):\n"
        "    return perdure.Next(event.value, annotations={'note': event.value['text']})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    manifest = {
        "schemas": {"a/Said@1": {"record": {"text": "text"}}},
        "cells": {
            "a/note@1": {
                "state": {"ref": "a/Said@1"},
                "event": {"ref": "a/Said@1"},
                "effects": [],
                "annotations": {"record": {"note": "nat"}},
                "impl": "noting:note",
            }
        },
        "routing": [{"event": "a/Said@1", "cell": "a/note@1"}],
    }
    (tmp_path / "world.json").write_text(json.dumps(manifest))

    async def main() -> object:
        world = perdure.load_manifest(tmp_path / "world.json")
        async with perdure.open(tmp_path / "w.db", workflows=[world]) as engine:
            await engine.send_json("a/Said@1", {"text": "seven"})
            await engine.state("a/note", at_least=3)
            handle = engine.handle("a/note", "")
            with pytest.raises(perdure.InstanceStuck):
                await handle.result()
            return await handle.error()

    assert "$.note: expected" in str(asyncio.run(main()))


def test_a_mistake_below_many_records_is_found_by_one_walk_down():
    depth = 40  # of each level a path can be written in two ways: all of them together fit into no memory
    schema = "{record: {a: " * depth + "txt" + "}}" * depth
    text = f"schemas:\n  com.acme/Deep@1:\n    {schema}\n"

    with pytest.raises(perdure.BadDefinition) as caught:
        from_yaml(text, "world.yaml")

    assert caught.value.where == f"world.yaml:3:{5 + len('{record: {a: ' * depth) - len('a: ')}"


@pytest.mark.parametrize("sign", ["[", "{a: ", "- "])
def test_data_without_a_bottom_is_refused_where_it_gets_too_deep(sign):
    with pytest.raises(perdure.BadDefinition, match="nested too deeply") as caught:
        from_yaml(sign * 20_000, "world.yaml")

    assert caught.value.where.startswith("world.yaml:1:")


def test_another_version_of_yaml_is_refused():
    assert from_yaml("%YAML 1.2\n---\n" + WORLD).hash == from_yaml(WORLD).hash
    with pytest.raises(perdure.BadDefinition, match=r"YAML 1\.2.*%YAML 1\.1") as caught:
        from_yaml("%YAML 1.1\n---\n" + WORLD, "world.yaml")

    assert caught.value.where == "world.yaml:2:1"


@pytest.mark.parametrize("read", [from_yaml, from_json])
def test_a_manifest_that_is_too_long_is_refused_unread(read):
    with pytest.raises(perdure.BadDefinition, match="at most 4,194,304 characters"):
        read(" " * (4 * 1024 * 1024 + 1))
