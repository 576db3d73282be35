"""`start`, `send`, `cancel`, `retry`: through the inbox, to an engine that runs or will run."""

import json

import pytest

from tests.cli.world import eventually


@pytest.fixture
def known(world):
    """A database on which an engine has run all flows once."""
    world.perdure("run", "flows:approval", "--key", "a", "--timeout", "0")
    return world


def test_start_prints_the_key_and_the_engine_runs_it(known):
    engine = known.process("run", "flows:approval", "--key", "a", "--db", "shop.db")
    eventually(lambda: known.json("doctor")["database"]["engine"])

    started = known.perdure("start", "order", "--input", '{"order_id": "o-1"}')

    key = started.stdout.strip()
    eventually(lambda: known.perdure("show", key).exit_code == 0)
    eventually(lambda: known.json("show", f"order/{key}")["status"] == "completed")
    assert started.stderr == ""
    assert known.perdure("send", "approval/a", "decision", '{"ok": true}').stdout == "sent decision to approval/a\n"
    assert known.ended(engine) == (0, '{\n  "ok": true\n}\n')


def test_start_without_an_engine_is_recorded_and_says_so(known):
    result = known.perdure("start", "order", "--input", '{"order_id": "z"}', "--key", "later")

    assert (result.exit_code, result.stdout) == (0, "later\n")
    assert "no engine runs" in result.stderr
    known.perdure("send", "a", "decision")
    assert known.perdure("run", "flows:approval", "--key", "a").exit_code == 0
    assert known.json("show", "later")["status"] == "completed"


def test_start_twice_with_one_key_is_one_instance_and_other_input_is_a_conflict(known):
    def start(name):
        return known.perdure("start", "order", "--input", json.dumps({"order_id": name}), "--key", "k")

    assert [start("a").exit_code, start("a").exit_code] == [0, 0]
    refused = start("b")
    assert refused.exit_code == 4
    assert "--reuse failed" in refused.stderr


@pytest.mark.parametrize(
    ("input", "text"),
    [
        ({"order_id": "a", "cent": 5}, "an argument 'cent' that it does not take; did you mean 'cents'?"),
        ({"cents": 5}, "found no argument 'order_id'"),
        ({"order_id": "a", "cents": "5"}, "$.cents: expected int, found str '5'"),
    ],
)
def test_arguments_that_the_workflow_does_not_take_are_refused(world, input, text):
    world.perdure("run", "flows:order", "--input", '{"order_id": "z"}')

    refused = world.perdure("start", "order", "--input", json.dumps(input), "--key", "k")

    assert refused.exit_code == 2 and text in refused.stderr
    assert world.perdure("run", "flows:order", "--input", '{"order_id": "z"}').exit_code == 0
    assert world.perdure("show", "order/k").exit_code == 3, "nothing was recorded"


def test_the_only_argument_may_stand_alone_and_the_parameters_are_named_where_it_may_not(world):
    world.perdure("run", "flows:approval", "--input", '["x"]', "--key", "a", "--timeout", "0")
    world.perdure("run", "flows:order", "--input", '{"order_id": "z"}')

    alone = world.perdure("start", "approval", "--input", '"pumps"', "--key", "b")
    refused = world.perdure("start", "order", "--input", '"z"', "--key", "k")

    assert alone.exit_code == 0, alone.stderr
    assert refused.exit_code == 2
    assert "must be a JSON object of its parameters (order_id: str, cents: int" in refused.stderr


def test_what_has_failed_takes_nothing_before_a_retry(world):
    world.perdure("run", "flows:failing", "--key", "f")

    for words in (("tag", "f", "a=1"), ("send", "f", "m")):
        refused = world.perdure(*words)
        assert refused.exit_code == 4
        assert "takes no more events before a retry; start another instance, with a new key" in refused.stderr


def test_every_verb_answers_in_json(known):
    assert known.json("start", "sleepy", "--key", "s") == {"id": "sleepy/s", "workflow": "sleepy", "key": "s"}
    assert known.json("send", "a", "decision", "1", "--id", "m-1") == {"id": "approval/a", "sent": "decision"}
    assert known.json("cancel", "s") == {"id": "sleepy/s", "cancel": "asked"}


def test_a_message_with_the_same_id_is_delivered_once(world):
    (world.directory / "two.py").write_text(
        "import perdure\n\n@perdure.flow\nasync def two(ctx):\n"
        "    return [(await ctx.receive('m')).body, (await ctx.receive('m')).body]\n"
    )
    world.perdure("run", "two:two", "--key", "k", "--timeout", "0")

    world.perdure("send", "k", "m", "1", "--id", "same")
    world.perdure("send", "k", "m", "2", "--id", "same")
    world.perdure("send", "k", "m", "3")

    assert json.loads(world.perdure("run", "two:two", "--key", "k").stdout) == [1, 3]


def test_cancel_ends_an_instance_with_its_reason(known):
    known.perdure("cancel", "a", "--reason", "ordered twice")

    result = known.perdure("run", "flows:approval", "--key", "a")

    assert result.exit_code == 1
    assert "approval/a was cancelled: ordered twice" in result.stderr
    again = known.perdure("cancel", "a")
    assert again.exit_code == 0 and "was cancelled before" in again.stderr
    assert "It was cancelled" in known.perdure("why", "a").stdout


def test_what_has_ended_takes_nothing_more(world):
    world.perdure("run", "flows:order", "--input", '["a"]', "--key", "k")

    for command in (("send", "k", "m"), ("cancel", "k"), ("retry", "k")):
        result = world.perdure(*command)
        assert result.exit_code == 4, command
        assert "order/k" in result.stderr and "completed" in result.stderr


def test_retry_of_what_is_not_stuck_is_a_conflict(known):
    assert known.json("retry", "a", exit=4)["error"]["type"] == "NotStuck"


def test_retry_asks_a_stuck_instance_to_try_again(world):
    world.perdure("run", "flows:fragile", "--key", "x")

    assert world.json("retry", "x") == {"id": "fragile/x", "retry": "asked"}


def test_a_tag_is_given_found_and_taken_away(known):
    given = known.perdure("tag", "a", "priority", "high")

    assert given.stdout == "tagged approval/a: priority=high\n" and "no engine runs" in given.stderr
    known.perdure("run", "flows:approval", "--key", "a", "--timeout", "0.3")
    assert [each["id"] for each in known.json("ls", "--tag", "priority=high")["instances"]] == ["approval/a"]
    assert known.json("tag", "a", "priority") == {"id": "approval/a", "tag": "priority", "value": None}
    known.perdure("run", "flows:approval", "--key", "a", "--timeout", "0.3")
    assert known.json("ls", "--tag", "priority=high")["instances"] == []
