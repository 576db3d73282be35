"""A step that fails twice before it succeeds, and one that says that trying again is pointless.

Prints:
    attempt 1: the carrier is down
    attempt 2: the carrier is down
    attempt 3: booked
    the address was refused: StepFailed after 1 attempt
    result: parcel-17
"""

import perdure


@perdure.step(retries=5, backoff=perdure.Backoff(base=0.01))
async def book(order_id: int) -> str:
    attempt = perdure.step_info().attempt
    if attempt < 3:
        print(f"attempt {attempt}: the carrier is down")
        raise ConnectionError("the carrier is down")
    print(f"attempt {attempt}: booked")
    return f"parcel-{order_id}"


@perdure.step(retries=5)
async def check_address(address: str) -> None:
    raise perdure.Fatal(f"there is no such place as {address!r}")


@perdure.flow
async def delivery(ctx: perdure.Context, order_id: int) -> str:
    parcel = await book(order_id)  # inside a flow, calling a decorated step is ctx.step("book", book, order_id)
    try:
        await check_address("nowhere")
    except perdure.StepFailed as failed:
        print(f"the address was refused: StepFailed after {failed.attempts} attempt")
    return parcel


if __name__ == "__main__":
    print("result:", perdure.run(delivery, 17))
