"""`perdure check`: findings with their places, for people, editors and CI."""

import json

from click.testing import CliRunner

from perdure.cli import cli

HASTY = """import time as t

import perdure

print("imported")


async def charge(cents: int) -> int:
    return cents


@perdure.flow
async def late(ctx: perdure.Context) -> None:
    ctx.step("charge", charge, 1)


@perdure.flow(strict=True)
async def early(ctx: perdure.Context) -> float:
    return t.time()
"""
LATE = "ctx.step(...) is not awaited, so it never happens; put await before it"
EARLY = "time.time() tells another time on replay; use ctx.now()"


def hasty(world):
    (world.directory / "hasty.py").write_text(HASTY)
    (world.directory / "also.py").write_text("from hasty import early\n")
    return world


def test_a_module_without_findings_says_how_much_was_checked(world):
    result = world.perdure("check", "flows", db=False)

    assert (result.exit_code, result.stdout) == (0, "10 flows checked, nothing found\n")


def test_findings_have_their_places_in_the_order_of_lines(world):
    result = hasty(world).perdure("check", "hasty", db=False)

    assert result.exit_code == 1
    assert result.stdout == f"hasty.py:14: {LATE}\nhasty.py:19: {EARLY}\n"
    assert result.stderr == "imported\n"


def test_one_flow_can_be_checked_alone(world):
    alone = hasty(world).perdure("check", "hasty:early", db=False)
    calm = world.perdure("check", "flows:order", db=False)

    assert (alone.exit_code, alone.stdout) == (1, f"hasty.py:19: {EARLY}\n")
    assert (calm.exit_code, calm.stdout) == (0, "1 flow checked, nothing found\n")


def test_several_can_be_given_and_a_flow_is_told_once(world):
    result = hasty(world).perdure("check", "flows", "hasty:early", "./also.py", db=False)

    assert (result.exit_code, result.stdout) == (1, f"hasty.py:19: {EARLY}\n")


def test_json_has_the_same_facts(world):
    document = hasty(world).json("check", "hasty", exit=1)
    nothing = world.json("check", "flows:order")

    assert (document["flows"], document["ok"]) == (["early", "late"], False)
    assert document["findings"][1] == {
        "flow": "early",
        "file": "hasty.py",
        "line": 19,
        "found": "time.time()",
        "advice": "tells another time on replay; use ctx.now()",
    }
    assert nothing == {"flows": ["order"], "findings": [], "ok": True}


def test_what_cannot_be_checked_is_one_clear_line(world):
    (world.directory / "empty.py").write_text("")

    for args, text in {
        ("check", "empty"): "empty has no flows; put @perdure.flow above an async def",
        ("check", "flws"): "there is no module 'flws'; did you mean 'flows'?",
        ("check", "flows:odrer"): "flows has no 'odrer'; did you mean 'order'?",
        ("check", "flows:"): "'flows:' names no flow",
        ("check", "flows:plain"): "flows:plain is a plain function, not a flow",
    }.items():
        result = world.perdure(*args)

        assert (result.exit_code, result.stdout) == (2, "")
        assert text in result.stderr and len(result.stderr.splitlines()) == 1


def test_it_needs_something_to_check(world):
    assert world.perdure("check").exit_code == 2


def test_places_are_bold_on_terminals_and_respect_no_color(world):
    hasty(world)

    def check(no_color):
        return CliRunner().invoke(cli, ["check", "hasty:early"], env={"NO_COLOR": no_color}, color=True).stdout

    assert "\x1b[1mhasty.py:19:" in check(no_color=None)
    assert "\x1b" not in check(no_color="1")


def test_a_run_warns_on_stderr_and_a_strict_flow_is_refused(world):
    (world.directory / "quick.py").write_text(HASTY.replace("(strict=True)", ""))
    code, out, err = hasty(world).call("run", "quick:early")
    refused, nothing, why = world.call("run", "hasty:early", "--json")

    assert code == 0 and float(out) > 0
    assert f"quick.py:19: FlowWarning: flow early, quick.py:19: {EARLY}" in err
    assert refused == 2 and json.loads(nothing)["error"]["type"] == "FlowRefused"
    assert f"hasty.py:19: {EARLY}" in why and "Traceback" not in why
