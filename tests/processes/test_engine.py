"""Processes end to end, on SQLite and PostgreSQL: definitions, transports, versions, references, stuck branches."""

import asyncio
import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Actor,
    AmbiguousReference,
    BadCall,
    BadProcess,
    CallerError,
    DefinitionConflict,
    InstanceFailed,
    NotConvertible,
    UnknownInstance,
    UnknownVersion,
    VersionConflict,
    WorkflowUnavailable,
)
from perdure.processes import (
    Activate,
    Call,
    Complete,
    ContinueWith,
    Decide,
    Fail,
    Parallel,
    Process,
    Receive,
    Reference,
    Repeat,
    Request,
    Set,
    SubProcess,
    Task,
    Timer,
    TransportError,
    error,
    fn,
    function,
    http,
    index,
    python,
    queue,
    result,
    service,
    start,
    state,
    transport,
)
from tests.executors.site import Asked, Site
from tests.processes import shop

ORDER = shop.Purchase("o-17", "acme", Decimal("900"), [{"sku": "a", "count": 2}])
ANN = Actor("ann", roles=["manager"])


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
    else:
        yield ":memory:" if request.param == "memory" else str(tmp_path / "p.db")


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that outlives its engine, and that others can open."""
    yield request.getfixturevalue("postgres") if request.param == "postgres" else str(tmp_path / "p.db")


def small(version: str = "1.0.0", *steps: Any, name: str = "small", **fields: Any) -> Process:
    return Process(name, version=version, steps=list(steps) or [Complete(start.n)], **fields)


async def until(condition: Any) -> None:
    """Wait for something that an engine does by itself."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  # it is in the database
            await asyncio.sleep(0.01)


# ---- definitions ---------------------------------------------------------------------------------------------------


async def test_strict_open_refuses_with_all_problems(url: str):
    bad = small("1.0.0", Activate("nobody"), Set("x", fn.uper("a")), Call("c", service("erp", "x")))

    with pytest.raises(BadProcess) as raised:
        async with perdure.open(url, workflows=[bad]):
            pass

    assert {each.code for each in raised.value.problems} == {"PD010", "PD014", "PD030"}
    missing = small("1.0.0", Call("c", service("erp", "x")), Call("d", python("tests.processes.shop:nothing")))
    lost = small("1.0.0", SubProcess("s", "nobody"), name="lost")
    with pytest.raises(BadProcess, match=r"(?s)small 1.0.0 and lost 1.0.0 .*test_engine.py:\d+\): PD0") as raised:
        async with perdure.open(url, workflows=[missing, lost]):
            pass
    assert {each.code for each in raised.value.problems} == {"PD030", "PD031", "PD060"}


async def test_warn_open_runs_the_valid_ones(url: str):
    good, bad = small(), small("1.0.0", Activate("nobody"), name="other")

    async with perdure.open(url, workflows=[good, bad], check="warn") as engine:
        handle = await engine.start(good, n=1, key="a")
        assert await handle.result() == 1
        for broken in (bad, "other"):
            with pytest.raises(WorkflowUnavailable, match="no task is named nobody"):
                await engine.start(broken, key="b")


async def test_an_open_counts_with_what_the_database_has(kept: str):
    async with perdure.open(kept, workflows=[small()]):
        pass
    parent = small("1.0.0", SubProcess("s", "small", {"n": 3}, result="r"), Complete(result.r), name="parent")
    newer = small("2.0.0", Call("c", service("erp", "x")))
    lost = small("1.0.0", SubProcess("s", "nobody"), name="lost")

    async with perdure.open(kept, workflows=[parent, newer, lost], check="warn") as engine:
        assert await (await engine.start("parent", key="a")).result() == 3
        for missing, why in ((newer, "no transport is named erp"), (lost, "no workflow is named nobody")):
            with pytest.raises(WorkflowUnavailable, match=why):
                await engine.start(missing, key="b")
        assert [each.version for each in await engine.processes.versions("small")] == ["1.0.0"]
    with pytest.raises(BadProcess, match="no workflow is named nobody here"):
        async with perdure.open(kept, workflows=[parent, lost]):
            pass


async def test_the_same_definition_again_writes_nothing(url: str):
    for _ in range(3):
        async with perdure.open(url, workflows=[small()]) as engine:
            assert len(await engine.processes.versions("small")) == 1
            history = await engine.handle("perdure.definition", "small").history()
            assert [line.event for line in history] == ["started", "message"]


async def test_other_bytes_under_one_version_conflict_before_anything_runs(kept: str):
    async with perdure.open(kept, workflows=[small()]):
        pass

    with pytest.raises(DefinitionConflict, match=r"the next free one is 1\.0\.1") as raised:
        async with perdure.open(kept, workflows=[small("1.0.0", Complete(2))]):
            pass

    assert raised.value.difference.startswith("steps[0].output")


async def test_an_instance_stays_on_its_bytes_when_a_newer_version_opens_and_when_its_code_is_gone(kept: str):
    first = small("1.0.0", Receive("m", "go"), Complete("one"))
    second = small("1.1.0", Receive("m", "go"), Complete("two"))
    async with perdure.open(kept, workflows=[first]) as engine:
        await engine.start(first, key="a")
    async with perdure.open(kept, workflows=[first, second]) as engine:
        await engine.start("small", key="b")
    async with perdure.open(kept, workflows=[]) as engine:
        for key in "ab":
            await engine.handle("small", key).send("go")
        found = [await engine.handle("small", key).result(timeout=60) for key in "ab"]
        versions = [(await engine.handle("small", key).summary()).version for key in "ab"]

    assert found == ["one", "two"]
    assert versions == [first.version, second.version]


async def test_a_definition_is_put_and_activated_while_the_engine_runs(kept: str):
    second = small("2.0.0", Complete("two"))
    async with perdure.open(kept, workflows=[small("1.0.0", Complete("one"))]) as engine:
        assert await engine.processes.put(second, by="ann") == "2.0.0"
        assert await (await engine.start("small", key="a")).result() == "two"
        for same in (second, small("2.0.0", Complete("two"))):
            assert (await engine.start(same, key="a")).key == "a"
        await engine.processes.activate("small", "1.0.0", by="ann")
        assert await (await engine.start("small", key="b")).result() == "one"
        ((name, register),) = await engine.processes.list()
        assert (name, register.active, register.versions[1].by) == ("small", "1.0.0", "ann")
        with pytest.raises(UnknownVersion):
            await engine.processes.activate("small", "9.0.0")
        with pytest.raises(DefinitionConflict):
            await engine.processes.put(small("2.0.0", Complete("three")))
        assert (await engine.processes.schema())["title"] == "A process of perdure"
        assert {
            "name": "upper",
            "gives": "text",
            "text": "The text in upper case.",
        } in await engine.processes.functions()
        for other in (5, "small", {"name": "small"}):
            with pytest.raises(BadCall, match="put takes a process, found"):
                await engine.processes.put(other)  # type: ignore[arg-type]
        missing = small("3.0.0", SubProcess("later", "child"), Call("c", service("erp", "x")))
        with pytest.raises(BadProcess, match=r"steps\[1\].address \(.*: PD030") as raised:
            await engine.processes.put(missing)
        assert len(raised.value.problems) == 1 and len(await engine.processes.versions("small")) == 2
    async with perdure.open(kept, workflows=[second, small("2.0.0", Complete("two"))]) as engine:
        assert await (await engine.start("small", key="c")).result() == "one"


async def test_functions_of_users_are_given_to_the_engine(url: str):
    @function("shop.double", version="1.3.0")
    def double(n: int) -> int:
        return 2 * n

    process = small("1.0.0", Complete(fn.shop.double(start.n)))
    async with perdure.open(url, workflows=[process], functions=[double]) as engine:
        assert await (await engine.start(process, n=21, key="a")).result() == 42
    with pytest.raises(BadProcess, match="PD060"):
        async with perdure.open(url, workflows=[small("2.0.0", Complete(fn.shop.double(start.n)))]):
            pass


async def test_a_wrong_input_is_refused_and_nothing_is_recorded(url: str):
    async with perdure.open(url, workflows=[shop.purchase], handlers=[shop.erp]) as engine:
        with pytest.raises(NotConvertible, match="amount"):
            await engine.start(shop.purchase, {"order_id": "x", "company": "c", "lines": []}, key="x")
        with pytest.raises(NotConvertible):
            await engine.start("purchase-approval", order_id=1, company="c", amount="1", lines=[], key="x")
        assert await engine.instances() == []


# ---- transports ----------------------------------------------------------------------------------------------------


async def test_a_call_over_http_sends_json_and_its_errors_are_classified(tmp_path: Path):
    answers = {
        "/ok": (200, b'{"free": 5}'),
        "/gone": (404, b'{"why": "gone"}'),
        "/busy": (503, b""),
        "/none": (204, b""),
    }

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        status, body = answers[asked.line.split(" ")[1]]
        lines = ["content-type: application/json", f"content-length: {len(body)}", "connection: close"]
        head = "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""])
        writer.write(head.encode() + body)
        await writer.drain()

    async with Site(dict.fromkeys(answers, answer)) as site:
        headers = {"Authorization": perdure.Secret("erp-key", prefix="Bearer "), "X-Who": start.who}
        no_pause = perdure.Backoff(base=0)
        process = small(
            "1.0.0",
            Call("ok", http("POST", site.url("/ok"), headers), {"sum": start.sum}, result="ok"),
            Call("none", http("GET", fn.concat(site.url("/"), "none")), result="none"),
            Call("gone", http("GET", site.url("/gone")), on_failure=[Set("gone", [error.code, error.data.body.why])]),
            Call(
                "busy",
                http("GET", site.url("/busy")),
                retries=2,
                backoff=no_pause,
                on_failure=[Set("busy", error.code)],
            ),
            Complete([result.ok.free, result.none, state.gone, state.busy]),
        )
        secrets = {"erp-key": "s3cret"}
        async with perdure.open(tmp_path / "p.db", workflows=[process], allow=["127.0.0.1"], secrets=secrets) as engine:
            handle = await engine.start(process, sum=Decimal("1.50"), who="ann", key="a")
            assert await handle.result(timeout=60) == [5, None, ["http-404", "gone"], "http-503"]
        first, *rest = site.asked

    assert json.loads(first.body) == {"sum": "1.50"}
    assert (first.headers["authorization"], first.headers["x-who"]) == ("Bearer s3cret", "ann")
    busy = [each.headers["idempotency-key"] for each in rest if "/busy" in each.line]
    assert len(busy) == 3 and len(set(busy)) == 1
    journal = b"".join(row[0] for row in sqlite3.connect(tmp_path / "p.db").execute("SELECT body FROM journal"))
    assert b"s3cret" not in journal


async def test_an_address_that_is_not_allowed_is_an_error_at_once(url: str):
    process = small("1.0.0", Call("a", http("GET", "http://127.0.0.1:1/"), on_failure=[Complete(error.code)]))

    async with perdure.open(url, workflows=[process]) as engine:
        assert await (await engine.start(process, key="a")).result(timeout=60) == "address"


async def test_a_transport_gets_the_request_and_may_say_that_it_is_final(url: str):
    requests: list[Request] = []

    @transport("erp")
    async def erp(request: Request) -> Any:
        requests.append(request)
        if request.command == "no":
            raise TransportError("refused", "never", retry=False, data={"limit": 5})
        if request.attempt < 3:
            raise ValueError("busy")
        return request.payload["n"] + 1

    process = small(
        "1.0.0",
        Call("a", service("erp", "add"), {"n": start.n}, result="a", backoff=perdure.Backoff(base=0)),
        Call("b", service("erp", "no"), on_failure=[Complete([result.a, error.code, error.data.limit])]),
    )
    async with perdure.open(url, workflows=[process], handlers=[erp]) as engine:
        assert await (await engine.start(process, n=1, key="a")).result(timeout=60) == [2, "refused", 5]

    assert [(each.command, each.attempt) for each in requests] == [("add", 1), ("add", 2), ("add", 3), ("no", 1)]
    assert len({each.idempotency_key for each in requests}) == 2
    assert requests[0].instance == "small/a" and requests[0].deadline is not None


async def test_a_queue_of_the_engine_itself_performs_a_call(url: str):
    process = small(
        "1.0.0",
        Call("a", queue("gpu", "tests.processes.shop:reserve"), {"sku": "x", "count": 1}, result="r"),
        Complete(result.r),
    )

    async with perdure.open(url, workflows=[process], queues={"gpu": 2}) as engine:
        assert await (await engine.start(process, key="a")).result(timeout=60) == "r-x"


# ---- other instances -----------------------------------------------------------------------------------------------


@perdure.flow
async def doubled(ctx: perdure.Context, n: int) -> int:
    if n < 0:
        raise ValueError("negative")
    return 2 * n


async def test_a_flow_and_a_process_are_each_others_child(url: str):
    inner = Process(
        "inner",
        version="1.0.0",
        steps=[SubProcess("twice", "doubled", {"n": start.n}, result="x"), Complete(result.x + 1)],
    )

    @perdure.flow
    async def outer(ctx: perdure.Context, n: int) -> int:
        return await ctx.child(inner, n=n)  # type: ignore[no-any-return]

    async with perdure.open(url, workflows=[inner, outer, doubled]) as engine:
        assert await (await engine.start(outer, 20, key="a")).result(timeout=60) == 41


async def test_a_childs_failure_is_an_error_and_a_version_may_be_named(url: str):
    first, second = small("1.0.0", Complete("one"), name="kid"), small("2.0.0", Fail("no", "never"), name="kid")
    process = small(
        "1.0.0",
        SubProcess("a", "kid", version="1.0.0", result="a"),
        SubProcess("b", "kid", on_failure=[Complete([result.a, error.code, error.message])]),
    )

    async with perdure.open(url, workflows=[first, second, process]) as engine:
        assert await (await engine.start(process, key="a")).result(timeout=60) == ["one", "no", "never"]


async def test_processes_that_call_themselves_end_at_the_depth_limit(url: str):
    process = small("1.0.0", SubProcess("again", "small", on_failure=[Complete(error.code)]), limits={"depth": 3})

    async with perdure.open(url, workflows=[process]) as engine:
        await (await engine.start(process, key="a")).result(timeout=60)
        keys = {each.key for each in await engine.instances(workflow="small")}
        assert keys == {"a", "a/again", "a/again/again", "a/again/again/again"}


async def test_continue_with_starts_an_independent_instance_once(url: str):
    after = small("1.0.0", Receive("m", "go"), Complete(start.n), name="after")
    process = small("1.0.0", ContinueWith("next", "after", {"n": 7}, key="fixed"), Complete("handed over"))

    async with perdure.open(url, workflows=[process, after]) as engine:
        assert await (await engine.start(process, key="a")).result(timeout=60) == "handed over"
        handle = engine.handle("after", "fixed")
        await handle.send("go")
        assert await handle.result(timeout=60) == 7


async def test_cancel_takes_the_family_and_with_undo_the_child_undoes_too(url: str):
    done: list[str] = []

    @transport("log")
    async def log(request: Request) -> None:
        done.append(request.command)

    kid = small(
        "1.0.0",
        Call("a", service("log", "did"), undo=[Call("u", service("log", "undid"))]),
        Receive("m", "m"),
        name="kid",
    )
    process = small("1.0.0", SubProcess("s", "kid"))
    async with perdure.open(url, workflows=[kid, process], handlers=[log]) as engine:
        handle = await engine.start(process, key="a")
        await until(lambda: _is_waiting(engine, "kid", "a/s"))
        await handle.cancel(undo=True)
        child = engine.handle("kid", "a/s")
        await until(lambda: _has_ended(child))
        assert await child.status() == "cancelled"
        assert await handle.status() == "cancelled"

    assert done == ["did", "undid"]


async def _is_waiting(engine: perdure.Client, workflow: str, key: str) -> bool:
    try:
        return bool([each for each in await engine.handle(workflow, key).waiting() if each.kind == "wait"])
    except UnknownInstance:
        return False


async def _has_ended(handle: perdure.Handle[Any]) -> bool:
    return (await handle.summary()).ended_at is not None


# ---- messages, references, state -----------------------------------------------------------------------------------


async def test_a_reference_finds_the_one_live_instance(url: str):
    process = small(
        "1.0.0",
        Receive("m", "paid", result="r"),
        Complete(result.r),
        reference=Reference(start.order, company=start.company),
    )

    async with perdure.open(url, workflows=[process]) as engine:
        for key, order, company in (("a", "o-1", "acme"), ("b", "o-1", "evil"), ("c", "o-2", "acme")):
            await engine.start(process, order=order, company=company, key=key)
        assert {each.key for each in await engine.instances(reference="o-1")} == {"a", "b"}
        assert [each.key for each in await engine.instances(reference="o-1", parts={"company": "evil"})] == ["b"]
        with pytest.raises(AmbiguousReference, match="small/"):
            await engine.send_to("paid", 1, reference="o-1")
        with pytest.raises(UnknownInstance):
            await engine.send_to("paid", 1, reference="o-9")
        for nothing in ("", 5):
            with pytest.raises(CallerError, match="a reference is a text"):
                await engine.send_to("paid", 1, reference=nothing)  # type: ignore[arg-type]
        handle = await engine.send_to("paid", 7, reference="o-1", parts={"company": "acme"})
        assert (handle.key, await handle.result(timeout=60)) == ("a", 7)
        await engine.send_to("paid", 8, reference="o-1")
        assert await engine.handle("small", "b").result(timeout=60) == 8


async def test_a_message_that_nothing_receives_is_refused_before_it_is_recorded(url: str):
    process = small("1.0.0", Receive("m", "paid", schema=int))

    async with perdure.open(url, workflows=[process]) as engine:
        handle = await engine.start(process, key="a")
        entries = len(await handle.history())
        with pytest.raises(NotConvertible, match="did you mean paid"):
            await handle.send("payd", 1)
        with pytest.raises(NotConvertible, match="does not fit"):
            await handle.send("paid", "text")
        assert len(await handle.history()) == entries


async def test_another_process_is_told_of_a_message_that_nothing_receives(kept: str):
    process = small("1.0.0", Receive("m", "paid", schema=int), Complete("paid"))
    async with perdure.open(kept, workflows=[process]) as engine:
        await engine.start(process, key="a")
    async with perdure.connect(kept) as client:
        handle = client.handle("small", "a")
        with pytest.raises(NotConvertible, match="did you mean paid"):
            await handle.send("payd", 1)
        with pytest.raises(NotConvertible, match="does not fit"):
            await handle.send("paid", "text")
        assert await client.queries.undelivered() == []
        await handle.send("paid", 1)
        assert len(await client.queries.undelivered()) == 1


async def test_a_duplicate_message_has_no_second_effect_and_a_wrong_entry_number_changes_nothing(url: str):
    process = small("1.0.0", Receive("a", "m"), Receive("b", "m", timeout=timedelta(days=1)), Complete("end"))

    async with perdure.open(url, workflows=[process]) as engine:
        handle = await engine.start(process, key="a")
        with pytest.raises(VersionConflict):
            await handle.send("m", if_entry=9)
        await handle.send("m", id="x", if_entry=1)
        await handle.send("m", id="x")
        assert [each.location for each in await handle.waiting()] == ["b"]
        await handle.send("m", id="y")
        assert await handle.result(timeout=60) == "end"


async def test_state_is_read_without_code(kept: str):
    process = small("1.0.0", Set("x", start.n), Receive("m", "m"), Set("x", state.x + 1), Receive("n", "m"))
    async with perdure.open(kept, workflows=[process]) as engine:
        handle = await engine.start(process, n=1, key="a")
        first = await engine.queries.height()
        await handle.send("m")
        async with perdure.connect(kept) as client:
            assert await client.state("small", "a") == {"x": 2}
            if first:
                assert await client.state("small", "a", at=first) == {"x": 1}
            assert await client.handle("small", "a").draw() == await handle.draw()
        assert await engine.state(process, "a") == {"x": 2}


async def test_another_process_starts_and_sends_by_name_alone(kept: str):
    process = small(
        "1.0.0",
        Receive("m", "go", result="r"),
        Complete([start.n, result.r]),
        input={
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        },
    )
    async with perdure.open(kept, workflows=[process]), perdure.connect(kept) as client:
        with pytest.raises(NotConvertible):
            await client.start("small", n="text", key="a")
        handle = await client.start("small", n=4, key="a")
        await handle.send("go", 5)
        assert await handle.result(timeout=60) == [4, 5]


# ---- stuck, failed, drawn ------------------------------------------------------------------------------------------


async def test_a_stuck_branch_is_retried_and_settled_while_others_go_on(url: str):
    broken = True

    @transport("erp")
    async def erp(request: Request) -> str:
        if broken:
            raise TransportError("down", retry=False)
        return "fine"

    process = small(
        "1.0.0",
        Parallel(
            "p", {"a": [Call("a", service("erp", "x"), result="a")], "b": [Receive("m", "go"), Set("seen", True)]}
        ),
        Call("last", service("erp", "y"), result="last"),
        Complete([result.a, result.last, state.seen]),
    )
    async with perdure.open(url, workflows=[process], handlers=[erp]) as engine:
        handle = await engine.start(process, key="a")
        await until(lambda: _is(handle, "stuck"))
        await handle.send("go")
        assert await engine.state(process, "a") == {"seen": True}
        assert await handle.status() == "stuck"
        broken = False
        await handle.retry(by="ann")
        assert await handle.result(timeout=60) == ["fine", "fine", True]


async def test_an_error_is_settled_by_a_person(url: str):
    process = small("1.0.0", Set("x", start.a + 1), Complete(state.x))

    async with perdure.open(url, workflows=[process]) as engine:
        handle = await engine.start(process, a="text", key="a")
        assert await handle.status() == "stuck"
        await handle.settle("x", 5)
        assert await handle.result(timeout=60) == 5


async def _is(handle: perdure.Handle[Any], status: str) -> bool:
    return await handle.status() == status


async def test_a_failed_process_has_the_code_as_its_error_and_no_retry(url: str):
    process = small("1.0.0", Fail("rejected", "not approved"))

    async with perdure.open(url, workflows=[process]) as engine:
        handle = await engine.start(process, key="a")
        with pytest.raises(InstanceFailed, match="rejected: not approved"):
            await handle.result(timeout=60)
        for verb in (handle.retry(), handle.rewind("x"), handle.fork("b")):
            with pytest.raises(perdure.CallerError, match="a process: what it did stays done"):
                await verb
        assert await engine.tasks.list() == [] and await handle.waiting() == []


async def test_the_frame_of_a_running_repeat_shows_its_state_and_its_turns(url: str):
    process = small(
        "1.0.0",
        Repeat("done", [Set("x", index)], times=3),
        Repeat("rounds", [Receive("m", "go")], times=2),
        Repeat("later", [Set("y", index)], times=2),
    )
    async with perdure.open(url, workflows=[process]) as engine:
        handle = await engine.start(process, key="a")
        await handle.send("go")
        frames = json.loads(await handle.draw("json"))["frames"]
        picture = await handle.draw("svg")

    assert {each["location"]: (each["state"], each["note"]) for each in frames} == {
        "done": ("done", ""),
        "rounds": ("open", "2 turns"),
        "later": ("not reached", ""),
    }
    assert ">open, 2 turns</text>" in picture


async def test_an_instance_is_drawn_with_what_its_journal_says_and_as_it_was(url: str):
    async with perdure.open(url, workflows=[shop.purchase], handlers=[shop.erp], allow=["127.0.0.1"]) as engine:
        process = small(
            "1.0.0",
            Call("a", service("erp", "x")),
            Activate("t"),
            Timer("t2", after=timedelta(days=1)),
            tasks=[Task("t", roles=["manager"])],
            name="drawn",
        )
        await engine.processes.put(process)
        handle = await engine.start("drawn", key="a")
        await until(lambda: _has_task(engine))
        before = await engine.queries.height()
        (task,) = await engine.tasks.list()
        await engine.tasks.complete(task.id, None, by=ANN)
        now = json.loads(await handle.draw("json"))
        then = json.loads(await handle.draw("json", at=before))

    states = {node["title"]: node["state"] for node in now["nodes"]}
    assert states == {"start": "done", "a": "done", "t": "done", "t2": "open", "end": "not reached"}
    assert {node["title"]: node["state"] for node in then["nodes"]}["t"] == "open"
    assert [(node["x"], node["y"]) for node in now["nodes"]] == [(node["x"], node["y"]) for node in then["nodes"]]


async def test_a_picture_shows_the_way_that_an_instance_took():
    process = small(
        "1.0.0",
        Timer("t", after=timedelta(milliseconds=1)),
        Receive("early", "go"),
        Decide("ask", True, [Set("asked", True)]),
        Decide("first", state.asked, [Complete("first")]),
        Set("later", True),
        Receive("never", "never"),
    )
    async with perdure.open(":memory:", workflows=[process]) as engine:
        handle = await engine.start(process, key="a")
        await handle.send("go")
        await handle.result(timeout=20)
        picture = json.loads(await handle.draw("json"))

    states = {node["location"]: node["state"] for node in picture["nodes"]}
    taken = {"": "done", "t": "done", "early": "done", "ask": "done", "ask/then/asked": "done"}
    rest = {"first": "done", "first/then/complete": "done", "later": "not reached", "never": "not reached"}
    assert states == {**taken, **rest, "end": "not reached"}
    went = [(picture["nodes"][line["from"]]["title"], line["label"]) for line in picture["edges"] if line["went"]]
    assert ("ask", "yes") in went and ("ask", "no") not in went


async def _has_task(engine: perdure.Client) -> bool:
    return bool(await engine.tasks.list())


# ---- fleets --------------------------------------------------------------------------------------------------------


async def test_a_definition_that_one_engine_puts_runs_in_every_engine(postgres: str):
    first, second = small("1.0.0", Complete("one")), small("2.0.0", Complete("two"))

    async with perdure.open(postgres, workflows=[first]) as one, perdure.open(postgres, workflows=[first]):
        await one.processes.put(second)
        handles = [await one.start("small", key=str(number)) for number in range(24)]
        found = [await handle.result(timeout=60) for handle in handles]

    assert found == ["two"] * 24


async def test_an_engine_of_an_older_release_runs_the_instances_of_a_newer_one(postgres: str):
    first, second = small("1.0.0", Complete("one")), small("2.0.0", Complete("two"))

    async with perdure.open(postgres, workflows=[first]), perdure.open(postgres, workflows=[second]) as newer:
        handles = [await newer.start(second, key=str(number)) for number in range(24)]
        found = [await handle.result(timeout=60) for handle in handles]

    assert found == ["two"] * 24


async def test_engines_run_what_another_process_puts_and_activates(kept: str):
    one, two = small("1.0.0", Complete("one")), small("2.0.0", Complete("two"))
    parent = small("1.0.0", SubProcess("kid", "small", result="kid"), Complete(result.kid), name="parent")
    more = [perdure.open(kept, workflows=[one])] if kept.startswith("postgres") else []
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(each) for each in (perdure.open(kept, workflows=[one]), *more)]
        client = await stack.enter_async_context(perdure.connect(kept))
        numbers = itertools.count()

        async def all_say(word: str) -> bool:
            """New instances and new children, of every engine."""
            found = [await each.start("small", key=f"k{next(numbers)}") for each in engines for _ in range(4)]
            found += [await client.start("parent", key=f"k{next(numbers)}") for _ in range(4)]
            return {await handle.result(timeout=60) for handle in found} == {word}

        await client.processes.put(parent)
        assert await all_say("one")
        await client.processes.put(two)
        await until(lambda: all_say("two"))
        await client.processes.activate("small", "1.0.0")
        await until(lambda: all_say("one"))
