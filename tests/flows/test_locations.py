"""Locations: every operation has one, no name can look like a path, and rows hold them in a compact form."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure import Context
from perdure.kernel.effects import Call
from perdure.kernel.entry import pack, unpack
from perdure.kernel.location import Patterns, escape, unescape

from .conftest import Stage
from .rig import Rig, same_in_every_rebuild

NASTY = [
    "a/b",
    "a#2",
    "~3",
    "&1",
    "%2F",
    "a%",
    "ü/ñ",
    "日本#1",
    "\x00\n\t",
    "&cleanup",
    "&timer",
    "a b",
    "#",
    "٣",
    "x" * 500,
]

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(NASTY)


async def echo(value: Any) -> Any:
    return value


@given(names)
def test_a_name_is_found_again_in_its_escaped_form(name: str) -> None:
    assert unescape(escape(name)) == name
    assert not set(escape(name)) & set("/~&#\x00\n")


@given(st.lists(names, min_size=2, max_size=2, unique=True))
def test_different_names_have_different_escaped_forms(pair: list[str]) -> None:
    assert escape(pair[0]) != escape(pair[1])


scopes = st.one_of(
    names.map(escape),
    st.integers(0, 10**12).map(lambda n: f"~{n}"),
    st.integers(1, 10**6).map(lambda n: f"&{n}"),
    st.tuples(names.map(escape), st.integers(2, 99)).map(lambda t: f"{t[0]}#{t[1]}"),
)
locations = st.lists(scopes, min_size=1, max_size=6).map("/".join)


@given(st.lists(st.lists(locations, max_size=5), max_size=6))
def test_a_location_is_found_again_in_its_compact_form(entries: list[list[str]]) -> None:
    writer, reader = Patterns(), Patterns()

    for entry in entries:
        packed, fresh = pack(tuple(Call(location) for location in entry), writer)
        writer.learn(fresh)
        reader.learn(fresh)
        assert [unpack(one, reader).location for one in packed] == entry
    assert writer.texts() == reader.texts()
    assert len(set(writer.texts())) == len(writer.texts()), "a name is stored once"


def test_a_loop_stores_each_of_its_names_once() -> None:
    patterns = Patterns()

    for n in range(1000):
        _, fresh = pack((Call(f"loop/~{n}/charge"), Call(f"loop/~{n}/charge#{n + 2}")), patterns)
        patterns.learn(fresh)

    assert patterns.texts() == ["loop/~/charge", "loop/~/charge#"]


def test_no_name_collides_with_a_path() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        found = [await ctx.step(name, echo, name) for name in NASTY]
        await ctx.join("a", {"b": lambda: ctx.step("c", echo, 1)})
        await ctx.step("a/b/c", echo, 2)
        await asyncio.gather(ctx.step("x", echo, 3))
        await ctx.step("&1/x", echo, 4)
        await ctx.join("nasty", {name: in_branch(ctx, name) for name in NASTY})
        return found

    def in_branch(ctx: Context, name: str) -> Any:
        return lambda: ctx.step(name, echo, name)

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == NASTY
    assert len(set(rig.calls)) == len(rig.calls) == 2 * len(NASTY) + 4


async def test_nasty_names_survive_a_store(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        found = []
        for name in NASTY:
            found.append((await ctx.step(name, who))[0])
            ctx.publish(name, name)
            await ctx.sleep(name, 0)
        return found

    async def who() -> list[str]:
        return [perdure.step_info().name]

    async with stage.open(flow) as engine:
        handle = await engine.start(flow, key="/~#&%")
        assert await handle.result(60) == NASTY
        assert [await handle.read(name) for name in NASTY] == NASTY


@pytest.mark.parametrize("name", ["", None, 7, "\ud800"])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        refused = 0
        for operation in (
            lambda: ctx.step(name, echo, 1),
            lambda: ctx.sleep(name, 1),
            lambda: ctx.join(name, {}),
            lambda: ctx.race("race", {name: lambda: ctx.sleep("s", 1)}),
            lambda: ctx.map(name, echo, []),
            lambda: ctx.loop(name, echo),
            lambda: ctx.child(flow, key=name if name is not None else ""),
        ):
            try:
                await operation()
            except perdure.BadCall:
                refused += 1
        for act in (lambda: ctx.publish(name, 1), lambda: ctx.send("flow/k", name)):
            try:
                act()
            except perdure.BadCall:
                refused += 1
        return refused

    assert Rig(flow).result == 9


def test_a_flow_is_named_after_its_function_and_has_version_one() -> None:
    async def body(ctx: Context) -> None:
        pass

    plain, given = perdure.flow(body), perdure.flow(name="other", version="7")(body)

    assert (plain.name, plain.version) == ("body", "1")
    assert (given.name, given.version) == ("other", "7")
    assert perdure.flow(version=2)(body).version == "2"  # type: ignore[call-overload]
    with pytest.raises(perdure.BadCall, match="the version of a flow"):
        perdure.flow(version=None)(body)  # type: ignore[call-overload]


@pytest.mark.parametrize("thing", [type("A class", (), {}), 5, None, type(lambda: None)])
def test_what_is_no_flow_is_told_with_the_line_of_the_decorator(thing: Any) -> None:
    with pytest.raises(perdure.NotAFlow, match=r"test_locations\.py:\d+: a flow is"):
        perdure.flow(thing)


def test_a_flow_name_must_be_a_text_without_a_slash() -> None:
    async def body(ctx: Context) -> None:
        pass

    for name in ("", "a/b", 7):
        with pytest.raises(perdure.BadCall):
            perdure.flow(name=name)(body)  # type: ignore[arg-type]
