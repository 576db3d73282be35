"""The check of a flow's source (F7): what a replay would not repeat is found before anything runs."""

import asyncio
import datetime as dt
import functools
import hmac
import linecache
import os
import random
import secrets
import subprocess
import sys
import time
import uuid
import warnings
from datetime import date, datetime
from os import environ
from time import time as clock

import pytest

import perdure
from perdure.flows.source import findings

NOTHING: list[str] = []


@perdure.step
async def charge(cents: int = 0) -> int:
    return cents


def takes_it(retries: int) -> int:
    return retries


def found(flow) -> list[str]:
    """What was found, without where and what to do."""
    return [each.found for each in flow.findings]


# ---- what a replay would not repeat --------------------------------------------------------------------------


def test_clocks_are_found_under_every_name() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        time.time()
        clock()
        time.monotonic_ns()
        time.perf_counter()
        time.localtime()
        datetime.now(dt.UTC)
        dt.datetime.utcnow()  # type: ignore[deprecated, unused-ignore]
        date.today()

    assert found(flow) == [
        "time.time()",
        "time.time()",
        "time.monotonic_ns()",
        "time.perf_counter()",
        "time.localtime()",
        "datetime.now()",
        "datetime.utcnow()",
        "date.today()",
    ]
    assert {each.advice for each in flow.findings} == {"tells another time on replay; use ctx.now()"}


def test_dice_are_found() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        random.randint(1, 6)
        random.shuffle([])
        random.Random()
        secrets.token_hex()
        os.urandom(8)
        uuid.uuid4()

    assert found(flow) == [
        "random.randint()",
        "random.shuffle()",
        "random.Random()",
        "secrets.token_hex()",
        "os.urandom()",
        "uuid.uuid4()",
    ]
    assert flow.findings[0].advice.endswith("use ctx.random")
    assert flow.findings[-1].advice.endswith("use ctx.uuid()")


def test_files_settings_and_blocking_sleeps_are_found() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        with open("file"):  # noqa: ASYNC230
            pass
        input("name? ")  # noqa: ASYNC250
        os.environ["HOME"]
        environ.get("HOME")
        os.getenv("HOME")
        time.sleep(1)  # noqa: ASYNC251

    assert found(flow) == ["open()", "input()", "os.environ", "os.environ", "os.getenv()", "time.sleep()"]
    assert "use await ctx.sleep(...)" in flow.findings[-1].advice


def test_a_finding_has_the_line_and_what_to_do() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> float:
        return [
            1.0,
            time.time(),
        ][1]

    [finding] = flow.findings

    assert finding.file == __file__
    assert "time.time()," in linecache.getline(__file__, finding.line)
    assert str(finding) == f"{__file__}:{finding.line}: time.time() tells another time on replay; use ctx.now()"


def test_an_import_in_the_body_is_followed() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        import time as watch
        from random import choice as pick

        watch.time()
        pick("ab")

    assert found(flow) == ["time.time()", "random.choice()"]


def test_what_a_closure_holds_is_looked_at() -> None:
    def make(now, later):
        @perdure.flow
        async def flow(ctx: perdure.Context) -> None:
            now()
            later()
            missing()

        if later is None:
            missing = time.time
        return flow

    assert found(make(time.time, print)) == ["time.time()"]


def test_branches_bodies_and_helpers_are_part_of_the_flow() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        async def branch() -> float:
            return time.time()

        async def other(number: int) -> float:
            return random.random()

        async def turn(ctx: perdure.Context, state: int) -> perdure.Break[None]:
            ctx.sleep("nap", 1)  # type: ignore[unused-coroutine]
            return perdure.Break(None)

        def helper() -> str:
            return deeper()

        def deeper() -> str:
            return os.getenv("HOME", "")

        await ctx.join("both", {"a": branch, "b": functools.partial(other, 1), "c": lambda: later(uuid.uuid4())})
        await ctx.loop("turns", turn, 0)
        helper()

    async def later(value: object) -> object:
        return value

    assert found(flow) == ["time.time()", "random.random()", "ctx.sleep(...)", "os.getenv()", "uuid.uuid4()"]


# ---- what is left alone --------------------------------------------------------------------------------------


def test_a_block_of_an_attempt_is_part_of_the_flow_and_its_step_is_not() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        async def block(ctx: perdure.Context) -> None:
            time.time()

        async def step(n: int) -> float:
            return time.monotonic()

        await ctx.attempt("block", block)
        await ctx.attempt("step", step, 1)

    assert found(flow) == ["time.time()"]


def test_recorded_time_and_dice_and_plain_python_are_fine() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context, when: datetime) -> None:
        ctx.now()
        ctx.random.random()
        ctx.uuid()
        random.Random(7).random()
        time.localtime(0)
        datetime.fromtimestamp(0, dt.UTC)
        datetime(2026, 1, 1).today  # noqa: B018
        uuid.UUID(int=1)
        hmac.compare_digest("a", "b")
        os.path.join("a", "b")
        await asyncio.sleep(1)
        print("hello")

    assert found(flow) == NOTHING


def test_steps_may_do_anything() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        def read() -> float:
            return inner()

        def inner() -> float:
            return time.time()

        @perdure.step
        def decorated() -> float:
            return time.time()

        async def in_a_step(function) -> object:
            return await ctx.step("any", function)

        def given() -> float:
            return time.time()

        await ctx.step("clock", time.time)
        await ctx.step("lambda", lambda: time.time() + 1)
        await ctx.step("read", read)
        await ctx.step.options(retries=0)("read", functools.partial(read))
        await decorated()  # type: ignore[misc]
        await in_a_step(given)
        await ctx.map("all", in_a_step, [await ctx.step("given", given)])

    assert found(flow) == NOTHING


def test_what_a_step_is_given_is_computed_by_the_flow() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        await ctx.step("charge", charge, time.time_ns())

    assert found(flow) == ["time.time_ns()"]


def test_own_names_that_look_like_something_else_are_left_alone() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context, random: list[int], open) -> None:
        time = ctx
        random.sort()
        open("file")
        time.now()
        [uuid.hex for uuid in random]  # type: ignore[attr-defined]
        uuid.uuid4()  # taken for the other `uuid`: where two are meant, nothing is said

    assert found(flow) == NOTHING


def test_a_module_of_the_same_name_is_another_module(tmp_path, monkeypatch) -> None:
    (tmp_path / "secretz.py").write_text("def token_hex(): return 1\n")
    (tmp_path / "shop_of_secrets.py").write_text(
        "import perdure, secretz as secrets\n\n@perdure.flow\nasync def flow(ctx):\n    secrets.token_hex()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from importlib import import_module

    assert found(import_module("shop_of_secrets").flow) == NOTHING


# ---- what is not awaited -------------------------------------------------------------------------------------


def test_operations_that_are_not_awaited_are_found() -> None:
    @perdure.flow
    async def flow(context: perdure.Context) -> None:
        context.step("charge", charge, 1)  # type: ignore[unused-coroutine]
        context.step.options(retries=0)("charge", charge, 1)  # type: ignore[unused-coroutine]
        context.sleep("nap", 1)  # type: ignore[unused-coroutine]
        context.receive("mail")  # type: ignore[unused-coroutine]
        context.child("other")  # type: ignore[unused-coroutine]
        charge(1)  # type: ignore[unused-coroutine]

    assert found(flow) == [
        "context.step(...)",
        "context.step(...)",
        "context.sleep(...)",
        "context.receive(...)",
        "context.child(...)",
        "charge(...)",
    ]
    assert "await" in flow.findings[0].advice


def test_an_option_of_a_step_among_the_arguments_of_its_function_is_found() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        await ctx.step("charge", charge, 1, retries=0)  # type: ignore[call-arg]
        await ctx.step("charge", charge, cents=1)
        await ctx.step("options", dict, retries=0)
        await ctx.step("named", takes_it, retries=0)

    assert found(flow) == ["ctx.step(..., retries)"]
    assert "write ctx.step.options(retries=...)('charge', charge, ...)" in flow.findings[0].advice
    with (
        pytest.warns(perdure.FlowWarning),
        pytest.raises(perdure.InstanceFailed, match=r"tried once.*@perdure.step\(retr"),
    ):
        perdure.run(flow)


def test_operations_that_are_kept_for_later_are_left_alone() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        later = ctx.step("charge", charge, 1)
        task = asyncio.create_task(ctx.sleep("nap", 1))
        ctx.publish("a", 1)
        ctx.send("other/key", "mail")
        await asyncio.gather(later, task, charge(2))

    assert found(flow) == NOTHING


def test_another_object_under_the_name_of_the_context_is_left_alone() -> None:
    @perdure.flow
    async def flow(ctx) -> None:
        ctx = ctx.other
        ctx.step("charge")

    assert found(flow) == NOTHING


# ---- source that is hard to read -----------------------------------------------------------------------------


def test_source_that_cannot_be_read_has_no_findings() -> None:
    names: dict[str, object] = {}
    exec("import perdure, time\n@perdure.flow\nasync def flow(ctx):\n    time.time()\n", names)

    assert found(names["flow"]) == NOTHING
    assert findings(print) == ()


def test_a_file_that_was_changed_since_has_no_findings(tmp_path, monkeypatch) -> None:
    module = tmp_path / "shop_that_changes.py"
    module.write_text("import perdure, time\n\n@perdure.flow\nasync def flow(ctx):\n    time.time()\n")
    monkeypatch.syspath_prepend(tmp_path)
    from importlib import import_module

    flow = import_module("shop_that_changes").flow
    module.write_text("# gone\n\n\nclass\n")

    assert found(flow) == NOTHING


@pytest.mark.parametrize(
    "body",
    [
        "    time.time()",
        "    x = (\n        time.time()\n    )",
        "    return (\n        time.time(),\n'''\ntext\n'''\n    )",
        "# here\n    time.time()\n# and there\n    '''\nat the margin'''",
        "    if ctx:\n        return time.time(\n        )  # here",
        "    '\\d'\n    time.time()",
    ],
)
@pytest.mark.parametrize("inside", [False, True], ids=["of a module", "of a function"])
@pytest.mark.filterwarnings("ignore:invalid escape")
def test_any_layout_is_read(tmp_path, monkeypatch, body, inside) -> None:
    flow = f"@perdure.flow(\n    version='2',\n)\nasync def flow(\n    ctx,\n):\n{body}\n"
    text = f"import perdure, time\n\n{flow}\nOTHER = time.time()\n"
    if inside:
        indented = "".join(f"    {line}" for line in flow.splitlines(keepends=True))
        text = f"import perdure, time\n\ndef make():\n{indented}\n    time.time()\n    return flow\n\nflow = make()\n"
    (tmp_path / "layout.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "layout", raising=False)
    from importlib import import_module

    with warnings.catch_warnings(record=True) as warned:
        [finding] = import_module("layout").flow.findings

    lines = text.splitlines()
    assert "time.time(" in lines[finding.line - 1]
    assert lines.index(next(line for line in lines if "time.time(" in line)) == finding.line - 1
    assert len([each for each in warned if "unknown" in each.filename]) == 0


# ---- at registration -----------------------------------------------------------------------------------------


async def test_an_engine_warns_once_at_the_line_of_the_author() -> None:
    @perdure.flow
    async def hasty(ctx: perdure.Context) -> None:
        time.time()
        uuid.uuid4()

    with pytest.warns(perdure.FlowWarning) as warned:
        async with perdure.open(":memory:", workflows=[hasty]):
            pass
        async with perdure.open(":memory:", workflows=[hasty]):
            pass

    first, second = warned
    assert first.filename == second.filename == __file__
    assert "time.time()" in linecache.getline(__file__, first.lineno)
    assert str(first.message) == (
        f"flow hasty, test_source.py:{first.lineno}: time.time() tells another time on replay; use ctx.now()"
    )


async def test_a_strict_flow_is_refused_with_everything_that_was_found() -> None:
    @perdure.flow(strict=True)
    async def hasty(ctx: perdure.Context) -> None:
        time.time()
        ctx.step("charge", charge)  # type: ignore[unused-coroutine]

    for _ in range(2):
        with pytest.raises(perdure.FlowRefused) as refused:
            async with perdure.open(":memory:", workflows=[hasty]):
                pass

        assert [each.found for each in refused.value.findings] == ["time.time()", "ctx.step(...)"]
        assert all(f"\n  {each}" in str(refused.value) for each in hasty.findings)


async def test_a_strict_flow_without_findings_runs() -> None:
    @perdure.flow(strict=True)
    async def calm(ctx: perdure.Context) -> int:
        return await ctx.step("charge", charge, 3)

    async with perdure.open(":memory:", workflows=[calm]) as engine:
        assert await (await engine.start(calm)).result() == 3


def test_names_may_come_after_the_flow() -> None:
    @perdure.flow
    async def early(ctx: perdure.Context) -> None:
        defined_below()

    assert found(early) == ["time.time()"]


defined_below = time.time


def test_nothing_of_it_is_loaded_before_an_engine_is_opened() -> None:
    code = "import sys, perdure; perdure.flow, perdure.open; print('perdure.flows.source' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
