"""What people get wrong, and what they are told: one clear line, no traceback, the right exit code."""

import json

import pytest

BROKEN = {
    "absent.py": "import nothing_of_this_name\n",
    "syntax.py": "def f(:\n",
    "raising.py": "x = 1\nraise RuntimeError('two\\nlines')\n",
    "leaving.py": "import sys\nsys.exit(3)\n",
    "greet.yaml": "",
    "double.py": (
        "import perdure\n\n@perdure.flow(name='same')\nasync def a(ctx): ...\n\n"
        "@perdure.flow(name='same')\nasync def b(ctx): ...\n"
    ),
}


def order(*more):
    return ("run", "flows:order", *more)


@pytest.mark.parametrize(
    ("args", "exit", "text"),
    [
        (("run", "flows"), 2, "write MODULE:FLOW"),
        (("run", "flws:order"), 2, "there is no module 'flws'; did you mean 'flows'?"),
        (("run", "not_there_at_all:x"), 2, "there is no module 'not_there_at_all'"),
        (("run", "flows.sub:x"), 2, "flows"),
        (("run", "nofile.py:x"), 2, "there is no file nofile.py"),
        (("run", "flows:odrer"), 2, "flows has no 'odrer'; did you mean 'order'?"),
        (
            ("run", "flows:plain"),
            2,
            "flows:plain is a plain function, not a flow; put @perdure.flow above it",
        ),
        (("run", "flows:number"), 2, "flows:number is a value of type int, not a flow"),
        (
            ("run", "absent:x"),
            2,
            "absent cannot be imported: ModuleNotFoundError: No module named 'nothing_of",
        ),
        (("run", "syntax:x"), 2, "syntax cannot be imported: SyntaxError"),
        (("run", "raising:x"), 2, "raising.py:2"),
        (("run", "leaving:x"), 2, "leaving ended the process while it was imported"),
        (("run", "double:a"), 2, "two workflows are named 'same'"),
        (order("--input", '{"order_id": }'), 2, "--input is not JSON: Expecting value at line 1, column 14"),
        (order("--input", "o-17"), 2, "text needs quotes inside quotes"),
        (order("--input", "@nofile"), 2, "--input (nofile) cannot be read: No such file or directory"),
        (order("--input", "NaN"), 2, "NaN is not JSON"),
        (order("--input", '{"order_id": 5}'), 2, "order_id: expected str"),
        (order("--input", '{"order": "x"}'), 2, "order"),
        (order(), 2, "order_id"),
        (order("--timeout", "soon"), 2, "soon"),
        (order("--input", '["a"]', "--db", "no/such/dir/x.db"), 6, "there is no directory"),
        (order("--input", '["a"]', "--db", "postgresql://127.0.0.1:1/x"), 6, "nobody answers there"),
        (order("--input", '["a"]', "--key", ""), 2, "a key is a text of 1 to 512 characters"),
        (("show", "nope"), 3, "there is no instance nope"),
        (("show", "approvl/a-1"), 3, "did you mean approval/a-1?"),
        (("send", "a-l", "m"), 3, "did you mean approval/a-1?"),
        (("history", "twin"), 2, "'twin' is the key of 2 instances: order/twin, sleepy/twin"),
        (("send", "a-1", "m", "yes"), 2, "BODY is not JSON"),
        (("start", "ordr"), 3, "did you mean 'order'?"),
        (("start", "order", "--input", "[1]"), 2, "must be a JSON object"),
        (("ls", "--status", "asleep"), 2, "asleep"),
        (("ls", "--status", "wating"), 2, "Did you mean waiting?"),
        (("ls", "--where", "status:waitng"), 2, "did you mean waiting?"),
        (("ls", "--where", "status=waiting"), 2, "a filter is written with `:`: status:waiting"),
        (("run", "greet.yml"), 2, "there is no file greet.yml; did you mean greet.yaml?"),
        (("ls", "--db", "missing.db"), 6, "there is no database"),
        (("ls", "--db", ":memory:"), 6, "lives in one process"),
        (("ls", "--db", "flows.py"), 6, "is not a database"),
    ],
)
def test_a_mistake_is_one_clear_line(world, args, exit, text):
    for name, code in BROKEN.items():
        (world.directory / name).write_text(code)
    world.perdure("run", "flows:approval", "--key", "a-1", "--timeout", "0")
    world.perdure("run", "flows:order", "--key", "twin", "--input", '["a"]')
    world.perdure("run", "flows:sleepy", "--key", "twin", "--timeout", "0")

    result = world.perdure(*args)
    as_json = world.perdure(*args, "--json")

    assert text in result.stderr
    assert result.exit_code == as_json.exit_code == exit
    assert result.stdout == "" and "Traceback" not in result.stderr
    assert "Usage:" in result.stderr or len(result.stderr.splitlines()) == 1
    error = json.loads(as_json.stdout)["error"]
    assert text in error["message"] and error["exit"] == exit


def test_the_place_of_a_module_that_fails_is_the_line_of_its_author(world):
    (world.directory / "expression.py").write_text(
        "from perdure.processes import Decide, start\n\nd = Decide('d', start.amount > 5 and start.x, [])\n"
    )
    (world.directory / "plain.py").write_text("import perdure\n\n\n@perdure.flow\ndef order(ctx): ...\n")

    expression = world.perdure("check", "expression", db=False).stderr
    plain = world.perdure("check", "plain", db=False).stderr

    assert f"at {world.directory}/expression.py:3; " in expression
    assert f"NotAFlow: {world.directory}/plain.py:4: a flow is" in plain
    assert ".py:" in plain and "author.py" not in plain + expression and "roots.py" not in plain + expression


def test_a_graph_with_problems_has_a_line_for_each(world):
    (world.directory / "g.py").write_text(
        "from perdure.graphs import Graph\n\nasync def runner(node): ...\n\n"
        "g = Graph('g', runner=runner)\ng.node('a', goal='${inpt}')\n"
    )

    result = world.perdure("run", "g:g")

    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert first == "perdure: graph g has 1 problem:"
    assert second.startswith("  a: ") and "${inpt}" in second


def test_a_command_of_another_group_is_proposed(world):
    assert "Did you mean perdure processes migrate or perdure" in world.perdure("migrate").stderr
    assert "Did you mean perdure pause?" in world.perdure("playbooks", "pause").stderr


def test_a_missing_database_option_says_how_to_give_it(world):
    result = world.perdure("ls", db=False)

    assert result.exit_code == 2
    assert "--db" in result.stderr and "PERDURE_DB" in result.stderr


def test_a_traceback_is_shown_when_it_is_asked_for(world):
    code, _, by_option = world.call("run", "flows:nothing", "--debug")
    _, _, by_environment = world.call("run", "flows:nothing", PERDURE_DEBUG="1")
    _, _, neither = world.call("run", "flows:nothing", PERDURE_DEBUG="0")

    assert code == 2
    assert "Traceback" in by_option and "Traceback" in by_environment
    assert "Traceback" not in neither


def test_other_input_under_a_used_key_is_a_conflict(world):
    world.perdure(*order("--input", '["a"]', "--key", "k"))

    result = world.perdure(*order("--input", '["b"]', "--key", "k"))

    assert result.exit_code == 4
    assert "exists" in result.stderr and "--reuse failed" in result.stderr
