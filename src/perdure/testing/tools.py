"""Tools in a world of tests: none runs. A script answers for each action, by its location or its label.

A script is called with the parameters of the tool. What it returns is the result; `perdure.tools.ToolError` is an error
of a kind that rules can tell. An action without a script fails with the kind `no_stub`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from perdure.codec import decode, encode
from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Receipt
from perdure.ports.executor import Answered, Handler, Work
from perdure.tools import ToolError
from perdure.tools.handler import Surroundings, ValueHandler


class StubBlobs:
    """Stored values of a world. They outlive its processes."""

    def __init__(self) -> None:
        self._bodies: dict[bytes, bytes] = {}

    async def put_blobs(self, bodies: Sequence[bytes], at: int) -> list[bytes]:
        made = [sha256(body).digest() for body in bodies]
        self._bodies.update(zip(made, bodies, strict=True))
        return made

    async def blob(self, digest: bytes) -> bytes | None:
        return self._bodies.get(digest)


class StubTool:
    is_async = True

    def __init__(self, effect: str) -> None:
        self.effect = effect

    def work(self, asked: Any, key: str, publication: Publication) -> Work:
        return Work(self._missing, (asked["params"],), {}, Any)

    def _missing(self, params: Any) -> Any:
        text = f"{self.effect} has no stub here; give it one by its location or label"
        raise ToolError("no_stub", text)


def stubs(blobs: StubBlobs) -> Callable[[str], Handler | None]:
    around = Surroundings(blobs=blobs, now=lambda: 0)

    def find(name: str) -> Handler | None:
        return StubTool(name) if name.startswith("tools/") else ValueHandler(name, around)

    return find


def tool_answer(answered: Answered) -> Answered:
    """A script gives the plain result; the receipt of a tool has it under `result`."""

    def answer(intent: bytes, receipt: Receipt) -> None:
        if receipt.status == "ok":
            value = None if receipt.value is None else decode(receipt.value)
            receipt = msgspec.structs.replace(receipt, value=encode({"result": value}))
        answered(intent, receipt)

    return answer
