"""Many items, a few at a time, and a bad one does not spoil the rest.

Prints:
    cat.png: 3 kB
    dog.png: 3 kB
    notes.txt: step 'shrink' was tried once; last error: Fatal: this is no picture
    zebra.png: 5 kB
    at once: 2 at most
"""

import threading
import time

import perdure

lock = threading.Lock()
at_once: list[int] = [0]


def shrink(picture: str) -> str:  # a plain def: it runs in a thread, and may block
    with lock:
        at_once.append(at_once[-1] + 1)
    time.sleep(0.05)  # the work
    with lock:
        at_once.append(at_once[-1] - 1)
    if not picture.endswith(".png"):
        raise perdure.Fatal("this is no picture")
    return f"{len(picture) - 4} kB"


@perdure.flow
async def album(ctx: perdure.Context, pictures: list[str]) -> list[str]:
    async def one(picture: str) -> str:
        match await ctx.attempt("shrink", shrink, picture):
            case perdure.Ok(size):
                return f"{picture}: {size}"
            case perdure.Failed(_, error):
                return f"{picture}: {error}"

    return await ctx.map("pictures", one, pictures, concurrency=2)


if __name__ == "__main__":
    for line in perdure.run(album, ["cat.png", "dog.png", "notes.txt", "zebra.png"]):
        print(line)
    print("at once:", max(at_once), "at most")
