"""A saga: each booking says how it is undone. The third one fails, and the others are undone, the last one first.

Prints:
    flight booked
    hotel booked
    no car to be had
    hotel given back
    flight given back
    trip/lisbon failed: StepFailed: step 'car' was tried once; last error: Fatal: no car to be had
"""

import perdure


async def give_back(booking: str) -> None:  # called with what the step returned
    print(f"{booking} given back")


@perdure.step(undo=give_back)
async def flight() -> str:
    print("flight booked")
    return "flight"


@perdure.step(undo=give_back)
async def hotel() -> str:
    print("hotel booked")
    return "hotel"


@perdure.step(undo=give_back)
async def car() -> str:
    print("no car to be had")
    raise perdure.Fatal("no car to be had")


@perdure.flow
async def trip(ctx: perdure.Context) -> list[str]:
    return [await flight(), await hotel(), await car()]  # no try, no list of compensations


if __name__ == "__main__":
    try:
        perdure.run(trip, key="lisbon")
    except perdure.InstanceFailed as failed:
        print(failed)
