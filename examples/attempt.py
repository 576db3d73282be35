"""Failures as data: a step or a whole block is tried, and what came of it is matched like any other value.

Prints:
    primary: exhausted
    mirror: timeout
    archive: found the page, from 2019
"""

import asyncio

import perdure


@perdure.step(retries=1, backoff=perdure.Backoff(base=0.01))
async def primary(page: str) -> str:
    raise ConnectionError("the site is down")


@perdure.step(timeout=0.05)
async def mirror(page: str) -> str:
    await asyncio.sleep(60)
    return page


async def years(page: str) -> list[int]:
    return [2017, 2019]


async def load(page: str, year: int) -> str:
    return f"found the {page}, from {year}"


@perdure.flow
async def fetch(ctx: perdure.Context, page: str) -> list[str]:
    async def archive(ctx: perdure.Context) -> str:  # its first parameter is ctx: a block with steps of its own
        known = await ctx.step("years", years, page)
        return await ctx.step("load", load, page, max(known))

    story: list[str] = []
    for name, source, arguments in (("primary", primary, [page]), ("mirror", mirror, [page]), ("archive", archive, [])):
        match await ctx.attempt(name, source, *arguments):  # retries, if any, have happened then
            case perdure.Ok(found):
                return [*story, f"{name}: {found}"]
            case perdure.Failed(kind):  # fatal, timeout, exhausted, unknown, child, join or race
                story.append(f"{name}: {kind}")
    return story


if __name__ == "__main__":
    for line in perdure.run(fetch, "page"):
        print(line)
