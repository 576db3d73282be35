"""The answer of a payment was lost, so the step is tried again: with the same key, the provider charges once.

Prints:
    attempt 1: 4200 is charged, and the line breaks
    attempt 2: known already, nothing is charged
    paid with charge-1
    charges at the provider: 1
"""

import perdure

charges: dict[str, str] = {}  # what the provider remembers, by idempotency key


def provider(cents: int, idempotency_key: str, attempt: int) -> str:
    if idempotency_key in charges:
        print(f"attempt {attempt}: known already, nothing is charged")
        return charges[idempotency_key]
    charges[idempotency_key] = f"charge-{len(charges) + 1}"
    print(f"attempt {attempt}: {cents} is charged, and the line breaks")
    raise ConnectionError("the line broke before the answer")


@perdure.step(backoff=perdure.Backoff(base=0.01))
async def charge(cents: int) -> str:
    info = perdure.step_info()  # the key is equal for every attempt, and after every crash, of this step
    return provider(cents, info.idempotency_key, info.attempt)


@perdure.flow
async def order(ctx: perdure.Context, cents: int) -> str:
    return await charge(cents)


if __name__ == "__main__":
    print("paid with", perdure.run(order, 4200))
    print("charges at the provider:", len(charges))
