"""A person decides: asked, reminded, then somebody else is asked. Whoever decides hears that it counted.

Prints:
    mail to ada: please decide on the laptop
    mail to ada: please decide on the laptop, at last
    mail to grace: please decide on the laptop, ada does not answer
    grace hears: thank you, the laptop will be ordered
    ordered, approved by grace
"""

import asyncio
from dataclasses import dataclass

import perdure


@dataclass
class Decision:
    approved: bool
    by: str


async def mail(to: str, text: str) -> None:
    print(f"mail to {to}: {text}")


@perdure.flow
async def approval(ctx: perdure.Context, item: str, patience: float) -> str:
    please = f"please decide on the {item}"
    plan = [("ada", please, patience), ("ada", f"{please}, at last", patience)]
    for person, text, seconds in [*plan, ("grace", f"{please}, ada does not answer", 7 * 86400)]:
        await ctx.step("mail", mail, person, text)
        ctx.publish("asked", person)  # for a page that shows who has to act
        try:
            message = await ctx.receive("decision", timeout=seconds, type=Decision)
        except perdure.ReceiveTimeout:
            continue
        verb = "ordered" if message.body.approved else "not ordered"
        message.complete(f"thank you, the {item} will be {verb}")
        return f"{verb}, approved by {message.body.by}"
    return "nobody decided"


async def main() -> None:
    async with perdure.open(":memory:", workflows=[approval]) as engine:
        handle = await engine.start(approval, "laptop", 0.05, key="laptop")
        async for person in handle.watch("asked"):
            if person == "grace":
                break
        print("grace hears:", await handle.ask("decision", Decision(True, by="grace"), timeout=10))
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
