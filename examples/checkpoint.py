"""Go back to a checkpoint: what one carrier cost is undone, and the flow goes on with the next one.

Prints:
    paid
    slow-ship booked
    slow-ship insured
    slow-ship no longer insured
    slow-ship cancelled
    quick-ship booked
    quick-ship insured
    the cake comes with quick-ship, not with slow-ship: too late for the party
"""

import perdure


@perdure.step(undo=lambda _: print("never printed: the payment stands outside of the checkpoint"))
def pay() -> None:
    print("paid")


@perdure.step(undo=lambda carrier: print(carrier, "cancelled"))
def book(carrier: str) -> str:
    print(carrier, "booked")
    return carrier


@perdure.step(undo=lambda carrier: print(carrier, "no longer insured"))
def insure(carrier: str) -> str:
    print(carrier, "insured")
    return carrier


@perdure.flow
async def cake(ctx: perdure.Context) -> str:
    await ctx.step("pay", pay)
    refused = ""
    for carrier in ("slow-ship", "quick-ship"):
        try:
            async with ctx.checkpoint("delivery"):
                await ctx.step("book", book, carrier)
                await ctx.step("insure", insure, carrier)
                if carrier == "slow-ship":
                    raise perdure.RollBack("too late for the party", to="delivery")
                return f"the cake comes with {carrier}{refused}"
        except perdure.RollBack as reason:
            refused += f", not with {carrier}: {reason}"
    return f"no cake{refused}"


if __name__ == "__main__":
    print(perdure.run(cake))
