"""Exported histories: a file that people can read, that replays on the same code, and tells what changed code does."""

import json

import pytest

import perdure
from perdure import Context, Divergence, NotAHistory, UnknownWorkflow
from perdure.testing import World, replay


async def note(text: str) -> str:
    return text


def order(*steps: str, name: str = "order") -> perdure.Flow[..., str]:
    @perdure.flow(name=name)
    async def flow(ctx: Context) -> str:
        for step in steps:
            await ctx.step(step, note, step)
        await ctx.receive("go")
        return "done"

    return flow


def export(path, flow, *, key="o-17", go=True):
    with World() as world:
        handle = world.start(flow, key=key)
        if go:
            handle.send("go", "grün")
        handle.export(path)
    return path


def test_a_history_replays_on_the_code_that_made_it(tmp_path):
    path = export(tmp_path / "o-17.json", order("charge", "ship"))

    assert replay(path, order("charge", "ship")) == ["order/o-17"]


def test_the_file_is_json_with_a_readable_line_for_each_entry(tmp_path):
    path = export(tmp_path / "o-17.json", order("charge"))

    document = json.loads(path.read_text())
    lines = path.read_text().splitlines()

    assert document["format"] == "perdure history 1"
    assert (document["workflow"], document["key"], document["status"]) == ("order", "o-17", "completed")
    assert [entry["told"] for entry in document["entries"]] == [
        "2023-11-14 22:13:20 started {} → step charge",
        '2023-11-14 22:13:20 charge ok "charge" → wait receive:go',
        '2023-11-14 22:13:20 message go "grün" → completed',
    ]
    assert len([line for line in lines if line.startswith('{"number":')]) == 3


def test_the_same_history_is_the_same_file_wherever_it_stood_in_its_journal(tmp_path):
    flow = order("charge")
    alone = export(tmp_path / "alone.json", flow, go=False)
    with World() as world:
        handle = world.start(flow, key="o-17")  # the first start, so that its dice are the same
        world.start(order("x", name="other"))
        handle.export(tmp_path / "among others.json")

    assert (tmp_path / "among others.json").read_text() == alone.read_text()


def test_a_changed_flow_is_told_with_both_sides_and_the_line(tmp_path):
    path = export(tmp_path / "o-17.json", order("charge", "ship"))

    with pytest.raises(Divergence) as divergence:
        replay(path, order("charge", "send"))

    text = str(divergence.value)
    assert "step ship" in text and "step send" in text and "test_histories.py:" in text
    assert any("o-17.json" in note for note in divergence.value.__notes__)


def test_code_that_raises_is_told_with_the_file(tmp_path):
    path = export(tmp_path / "o-17.json", order("charge"))

    @perdure.flow(name="order")
    async def broken(ctx: Context) -> str:
        await ctx.step("charge", note, "charge")
        raise ValueError("not this time")

    with pytest.raises(Divergence, match="not this time"):
        replay(path, broken)


def test_a_directory_is_a_suite_that_tells_all_that_fail(tmp_path):
    export(tmp_path / "a.json", order("charge"), key="a")
    export(tmp_path / "b.json", order("charge", "ship"), key="b")
    (tmp_path / "more").mkdir()
    export(tmp_path / "more" / "c.json", order("ship"), key="c", go=False)

    with pytest.raises(ExceptionGroup) as group:
        replay(tmp_path, order("charge"))

    assert "2 of 3 histories" in str(group.value)
    assert [getattr(error, "instance", "") for error in group.value.exceptions] == ["order/b", "order/c"]


def test_a_suite_that_passes_says_what_it_has_replayed(tmp_path):
    export(tmp_path / "a.json", order("charge"), key="a")
    export(tmp_path / "b.json", order(name="other"), key="b")

    assert replay(tmp_path, order("charge"), order(name="other")) == ["order/a", "other/b"]
    with pytest.raises(ExceptionGroup) as group:
        replay(tmp_path, order("charge"))
    assert isinstance(group.value.exceptions[0], UnknownWorkflow)


def test_a_history_that_ended_stuck_and_was_cancelled_replays(tmp_path):
    @perdure.flow(name="order")
    async def spoils(ctx: Context) -> None:
        await ctx.receive("go")
        raise SystemExit(3)

    with World() as world:
        handle = world.start(spoils)
        handle.send("go")
        assert handle.status == "stuck"
        handle.cancel()
        handle.export(tmp_path / "o.json")

    assert replay(tmp_path / "o.json", spoils) == ["order/1"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda file: "not json", "is not an exported history"),
        (lambda file: json.dumps({"some": "thing"}), "is not an exported history"),
        (lambda file: file.replace("history 1", "history 9"), "has the format 'perdure history 9'"),
        (lambda file: file.replace('"number":2', '"number":7'), "is not whole"),
        (lambda file: file.replace('"body":"', '"body":"!'), "is not an exported history"),
    ],
)
def test_a_file_that_is_no_history_is_refused(tmp_path, change, text):
    path = export(tmp_path / "o-17.json", order("charge"))
    path.write_text(change(path.read_text()))

    with pytest.raises(NotAHistory, match=text):
        replay(path, order("charge"))


def test_a_damaged_entry_is_noticed_by_its_checksum(tmp_path):
    path = export(tmp_path / "o-17.json", order("charge"))
    file = json.loads(path.read_text())
    body = file["entries"][0]["body"]
    file["entries"][0]["body"] = body[:8] + ("A" if body[8] != "A" else "B") + body[9:]
    path.write_text(json.dumps(file))

    with pytest.raises(perdure.Corrupt):
        replay(path, order("charge"))


def test_nothing_to_replay_is_not_a_success(tmp_path):
    with pytest.raises(NotAHistory, match="no exported histories"):
        replay(tmp_path, order("charge"))
    with pytest.raises(NotAHistory, match="cannot be read"):
        replay(tmp_path / "missing.json", order("charge"))
