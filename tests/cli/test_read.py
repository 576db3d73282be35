"""`ls`, `show`, `history`, `why`, `doctor`: what can be read, with an engine on the database or without."""

import json
import re
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.cli.world import eventually


@pytest.fixture
def filled(world):
    """Instances of every kind, and no engine."""
    for flow, key, *given in [
        ("order", "o-1", "--input", '["a"]'),
        ("order", "o-2", "--input", '["b"]'),
        ("approval", "a-1", "--input", '["a title"]'),
        ("sleepy", "s-1"),
        ("parent", "p-1"),
        ("failing", "f-1"),
        ("unlucky", "u-1"),
        ("fragile", "x-1"),
    ]:
        world.perdure("run", f"flows:{flow}", "--key", key, "--timeout", "0.3", *given)
    return world


def test_an_error_is_told_with_the_line_of_its_author(world):
    ran = world.perdure("run", "flows:failing", "--key", "f-1")

    (line,) = [n for n, text in enumerate(Path("flows.py").read_text().splitlines(), 1) if "wrong from" in text]
    place = f"{world.directory.name}/flows.py:{line} in failing"
    for told in (ran.stderr, *(world.perdure(verb, "f-1").stdout for verb in ("why", "history"))):
        assert f"ValueError: wrong from the start, at {place}" in told
    assert f"raised at  {place}" in world.perdure("show", "f-1").stdout


def test_ls_is_a_table_with_the_newest_first(filled):
    result = filled.perdure("ls")

    lines = result.stdout.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["ID", "STATUS", "STARTED", "CHANGED"]
    assert [line.split()[0] for line in lines[1:3]] == ["fragile/x-1", "unlucky/u-1"]
    assert len({line.find(" ago") > 0 or "just now" in line for line in lines[1:]}) == 1
    assert lines[0].index("STATUS") == lines[1].index("stuck")


def test_ls_takes_the_filter_of_the_servers_lists(filled):
    def ids(*words):
        return [each["id"] for each in filled.json("ls", *words)["instances"]]

    assert ids("--where", "-status:waiting -workflow:o*") == ["fragile/x-1", "failing/f-1"]
    assert ids("--where", "started>2020-01-01 workflow:order", "--order", "started") == ["order/o-1", "order/o-2"]
    assert ids("--where", "workflow:order", "--status", "failed") == []
    assert ids("--where", "started<2020-01-01") == []
    first = filled.json("ls", "--where", "workflow:order", "--limit", "1")
    assert ids("--where", "workflow:order", "--before", str(first["next_before"])) == ["order/o-1"]
    wrong = filled.json("ls", "--where", "stat:failed", exit=2)
    assert wrong["error"]["type"] == "BadFilter" and "did you mean 'status'" in wrong["error"]["message"]


def test_ls_filters_and_pages(filled):
    first = filled.json("ls", "--limit", "5")
    second = filled.json("ls", "--limit", "50", "--before", str(first["next_before"]))
    orders = filled.json("ls", "--workflow", "order", "--status", "completed")

    ids = [each["id"] for page in (first, second) for each in page["instances"]]
    assert len(ids) == len(set(ids)) == 9
    assert second["next_before"] is None
    assert [each["key"] for each in orders["instances"]] == ["o-2", "o-1"]


def test_ls_of_an_unknown_workflow_says_what_there_is(filled):
    result = filled.perdure("ls", "--workflow", "ordre")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "did you mean 'order'?" in result.stderr


def test_times_in_json_are_utc(filled):
    document = filled.json("show", "o-1")

    assert document["started_at"].endswith("Z")
    assert datetime.fromisoformat(document["started_at"]) <= datetime.fromisoformat(document["changed_at"])


def test_show_tells_state_values_and_result(filled):
    done, waiting, failed = (filled.json("show", key) for key in ("o-1", "a-1", "f-1"))
    text = filled.perdure("show", "approval/a-1").stdout

    assert done["result"] == {"charge": "A", "cents": 100}
    assert waiting["published"] == {"title": "a title"}
    assert [open["kind"] for open in waiting["waiting"]] == ["wait"]
    assert failed["error"]["type"] == "ValueError"
    assert "waits for a message decision or abort" in text and '"a title"' in text


def test_show_knows_the_parent(filled):
    assert filled.json("show", "inner")["parent"] == "parent/p-1"


def test_history_is_told_in_lines(filled):
    text = filled.perdure("history", "o-1").stdout.splitlines()
    document = filled.json("history", "o-1")

    assert "started" in text[0] and "→ step charge" in text[0]
    assert 'charge ok "A" → completed' in text[1]
    assert [line["event"] for line in document["history"]] == ["started", "receipt"]
    assert document["history"][0]["value"] == {"order_id": "a", "cents": 100}


def test_history_without_values_shows_none(filled):
    text = filled.perdure("history", "o-1", "--no-values").stdout
    document = filled.json("history", "o-1", "--no-values")

    assert '"A"' not in text and "charge ok" in text
    assert all("value" not in line for line in document["history"])


def test_history_cuts_long_values_unless_asked(world):
    world.perdure("run", "flows:order", "--key", "k", "--input", json.dumps(["x" * 500]))

    cut, whole = world.perdure("history", "k").stdout, world.perdure("history", "k", "--values").stdout

    assert "…" in cut and "x" * 100 not in cut
    assert "x" * 500 in whole


def test_why_tells_the_exact_command_that_would_help(filled):
    from_environment = filled.json("why", "a-1")["reasons"][0]["todo"]
    from_option = filled.json("why", "a-1", "--db", filled.db)["reasons"][0]["todo"]

    assert from_environment == "perdure send approval/a-1 decision '{}'"
    assert from_option == f"perdure send approval/a-1 decision '{{}}' --db {filled.db}"
    assert "perdure retry fragile/x-1" in filled.perdure("why", "x-1").stdout
    assert "perdure why approval/inner" in filled.perdure("why", "p-1").stdout


def test_why_says_that_no_engine_runs_and_what_is_on_its_way(filled):
    filled.perdure("send", "a-1", "decision", "true")

    kinds = {reason["kind"]: reason["text"] for reason in filled.json("why", "a-1")["reasons"]}

    assert "No engine runs on" in kinds["no-engine"]
    assert "message decision" in kinds["undelivered"]


def test_show_tells_the_bodies_of_messages_that_are_on_their_way(filled):
    filled.perdure("send", "a-1", "decision", '{"outcome": "yes"}')

    (mail,) = filled.json("show", "a-1")["mailbox"]

    assert (mail["event"], mail["name"], mail["body"]) == ("message", "decision", {"outcome": "yes"})
    assert 'message decision = {"outcome": "yes"}' in filled.perdure("show", "a-1").stdout
    assert filled.json("show", "o-1")["mailbox"] == []


def test_why_of_a_running_step_under_a_live_engine(world):
    world.process("run", "flows:three", "--db", "shop.db", "--key", "k")
    eventually(lambda: "second" in world.evidence())

    reasons = world.json("why", "k")["reasons"]

    assert [reason["kind"] for reason in reasons] == ["step"]
    assert "The step second runs since" in reasons[0]["text"]
    assert "(attempt 1, executor inline)" in reasons[0]["text"]


def test_why_says_when_the_engine_does_not_know_the_workflow(filled):
    (filled.directory / "other.py").write_text(
        "import perdure\n\n@perdure.flow\nasync def lonely(ctx):\n    await ctx.sleep('x', 1000)\n"
    )
    filled.process("run", "other:lonely", "--db", "shop.db")
    eventually(lambda: "timer x" in filled.said())

    assert "does not know the workflow 'sleepy'" in filled.perdure("why", "s-1").stdout


def test_why_of_what_no_engine_has_taken_up_yet(filled):
    filled.perdure("start", "sleepy", "--key", "later")

    assert filled.json("why", "later")["status"] == "recorded"
    assert filled.json("show", "later", exit=3)["error"]["type"] == "UnknownInstance"


def test_doctor_finds_a_sound_database_sound(filled):
    document = filled.json("doctor")

    assert document["ok"] and document["problems"] == []
    assert set(document["versions"]) >= {"perdure", "python", "sqlite", "apsw", "msgspec"}
    assert document["database"]["journal_mode"] == "wal"
    assert document["database"]["synchronous"] == "full"
    assert document["database"]["engine"] is None
    assert "problems" in filled.perdure("doctor").stdout


def test_doctor_names_the_engine_that_runs(world):
    process = world.process("run", "flows:sleepy", "--db", "shop.db")
    eventually(lambda: "timer nap" in world.said())

    assert world.json("doctor")["database"]["engine"]["pid"] == process.pid


def test_doctor_reports_damage(filled):
    import apsw

    connection = apsw.Connection(filled.db)
    connection.execute("UPDATE instances SET status = 'completed' WHERE key = 's-1'")
    connection.close()

    document = filled.json("doctor", exit=1)
    result = filled.perdure("doctor")

    assert not document["ok"] and document["problems"]
    assert result.exit_code == 1 and "problem:" in result.stderr


@pytest.mark.parametrize(("seconds", "told"), [(30, False), (600, True)])
def test_doctor_tells_that_the_journal_is_ahead_of_the_clock(filled, seconds, told):
    import apsw

    connection = apsw.Connection(filled.db)
    ahead = time.time_ns() + seconds * 10**9
    connection.execute("UPDATE journal SET at = ? WHERE seq = (SELECT max(seq) FROM journal)", (ahead,))
    connection.close()

    found = json.loads(filled.perdure("doctor", "--json").stdout)

    assert any("ahead of the clock of this machine" in problem for problem in found["problems"]) is told
    assert found["database"]["last_entry_at"]


def test_doctor_without_a_database_tells_versions(world):
    assert world.json("doctor", db=False)["database"] is None


def test_doctor_of_a_missing_database(world):
    assert world.json("doctor", exit=6)["problems"]
