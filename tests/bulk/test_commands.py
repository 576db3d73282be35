"""`perdure bulk` for people: text in lines, and what is missing is named as an option."""

import asyncio

from click.testing import CliRunner

import perdure
from perdure.cli import cli


@perdure.flow
async def waits(ctx: perdure.Context) -> None:
    await ctx.receive("go")


async def asked(url: str) -> None:
    async with perdure.open(url, workflows=[waits]) as engine:
        for key in "ab":
            await (await engine.start(waits, key=key)).until("waiting", 60)


async def performed(url: str, bulk: str) -> None:
    async with perdure.open(url, workflows=[waits]) as engine:
        await engine.handle("perdure.bulk", bulk).until("completed", 60)


def called(*words: str, url: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, [*words, "--db", url])
    return result.exit_code, result.stdout, result.stderr


def test_a_plan_and_a_bulk_are_told_in_lines(tmp_path):
    url = str(tmp_path / "shop.db")
    asyncio.run(asked(url))
    start = ("bulk", "start", "cancel", "--where", "workflow:waits")

    _, plan, _ = called(*start, "--dry-run", url=url)
    _, id, _ = called(*start, "--yes", url=url)
    asyncio.run(performed(url, id.strip()))
    _, shown, _ = called("bulk", "show", id.strip(), url=url)
    _, one, _ = called("rewind", "waits/a", "receive:go", "--dry-run", url=url)

    assert plan.splitlines()[0].startswith("cancel would act on 2 instances; plan ")
    assert len(plan.splitlines()) == 3
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["where", "asked", "done"]
    assert "\\n" not in plan + shown + one


def test_a_bulk_without_instances_or_with_a_text_that_is_no_plan_is_refused(tmp_path):
    url = str(tmp_path / "shop.db")
    asyncio.run(asked(url))

    code, _, text = called("bulk", "start", "cancel", url=url)
    other, _, no_plan = called("bulk", "start", "cancel", "--where", "workflow:waits", "--plan", "xyz", url=url)

    assert (code, "--where" in text and "--id" in text) == (2, True)
    assert (other, "'xyz' is no plan of a dry run" in no_plan) == (4, True)
