"""The tools `python` and `shell`: real child processes."""

import asyncio
import os

import pytest

from perdure.errors import BadCall
from perdure.tools import ToolCall, ToolError, described, find


async def run(name, **params):
    tool = find(name)
    return (await tool.run(tool.read(params), ToolCall("k9"))).result


async def failed(name, **params):
    with pytest.raises(ToolError) as raised:
        await run(name, **params)
    return raised.value


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("result = {'n': x + 1}", {"n": 3}),
        ("def main(x, **rest):\n    return [x, sorted(rest)]", [2, ["s"]]),
        ("if x > 1:\n    return args['s'] + input_data['s']\nreturn 0", "ab\nab\n"),
        ("async def main(x, s):\n    return x", 2),
        ("import datetime\nresult = {1, 2}, datetime.date(2024, 1, 2)", [[1, 2], "2024-01-02"]),
        ("import os\nresult = os.environ['PERDURE_IDEMPOTENCY_KEY']", "k9"),
        ("print('noise')", None),
        ('text = """\n{{ not rendered }}\n"""\nreturn text.strip()', "{{ not rendered }}"),
    ],
)
async def test_python_runs_code(code, result):
    assert await run("python", code=code, args={"x": 2, "s": "ab\n"}) == result


async def test_python_calls_a_function_and_a_file(tmp_path):
    file = tmp_path / "code.py"
    file.write_text("result = libs['m'].sqrt(x)")

    assert await run("python", call="posixpath:join", args={"a": "x"}) == "x"
    assert await run("python", script=str(file), args={"x": 9}, libs={"m": "math"}) == 3.0


async def test_errors_of_python_have_their_traceback():
    error = await failed("python", code="def f():\n    raise ValueError('no')\nf()")

    assert (error.kind, str(error)) == ("ValueError", "no")
    assert "line 2" in error.data["py"]["traceback"]


async def test_a_process_that_dies_is_an_error():
    assert (await failed("python", code="import os; os._exit(7)")).status == 7
    assert (await failed("python", script="/nowhere.py")).kind == "not_found"
    assert (await failed("python", code="1", call="a:b")).kind == "bad_parameters"


async def test_shell_runs_programs():
    assert await run("shell", argv=["printf", "%s-%s", "a b", 3]) == "a b-3"
    assert await run("shell", command=["echo", "a; rm -rf /"]) == "a; rm -rf /"
    assert await run("shell", script="echo $who; cat", args={"who": "me"}, stdin="in") == "me\nin"
    assert await run("shell", argv=["printf", "a\nb\n"], parse="lines") == ["a", "b"]
    assert await run("shell", argv=["echo", '{"a": 1}'], parse="json") == {"a": 1}
    assert await run("shell", argv=["sh", "-c", "exit 3"], ok_codes=[0, 3]) == ""


async def test_errors_of_shell():
    error = await failed("shell", argv=["sh", "-c", "echo oh >&2; exit 4"])
    assert (error.kind, error.status, error.details) == ("exit_code", 4, {"code": 4, "stderr": "oh\n"})
    assert (await failed("shell", argv=["no-such-program"])).kind == "not_found"
    assert (await failed("shell", argv=["echo", "x"], parse="json")).kind == "bad_output"
    assert (await failed("shell")).kind == "bad_parameters"
    assert (await failed("shell", argv=["x"], parse="xml")).kind == "bad_parameters"


async def test_a_program_does_not_inherit_the_secrets_of_the_engine(monkeypatch):
    monkeypatch.setenv("PERDURE_SECRET_TOKEN", "canary")
    monkeypatch.setenv("PERDURE_OTHER", "seen")

    assert "canary" not in await run("shell", argv=["env"])
    assert "PERDURE_OTHER=seen" in await run("shell", argv=["env"], env={"A": "b"})
    assert await run("python", code="import os\nresult = os.environ.get('PERDURE_SECRET_TOKEN')") is None


def _first_line(fifo):
    with open(fifo) as stream:
        return stream.readline()


async def test_a_withdrawn_call_leaves_no_process_behind(tmp_path):
    file = tmp_path / "pid"
    os.mkfifo(file)
    call = asyncio.ensure_future(run("shell", script=f"echo $$ > {file}; sleep 60"))
    pid = int(await asyncio.to_thread(_first_line, file))

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_every_tool_describes_its_parameters():
    found = described()

    assert set(found) == {"http", "postgres", "sqlite", "duckdb", "python", "shell"}
    assert found["http"]["fields"]["url"] == {
        "types": ["string"],
        "required": True,
        "about": found["http"]["fields"]["url"]["about"],
    }
    assert found["postgres"]["fields"]["query"]["sql"] is True
    assert found["python"]["fields"]["code"]["raw"] is True
    assert found["shell"]["fields"]["command"]["split"] is True
    assert all(field["about"] for tool in found.values() for field in tool["fields"].values())


def test_an_unknown_tool_is_refused():
    with pytest.raises(BadCall, match="there is no tool snowflake; known are duckdb, http"):
        find("snowflake")
