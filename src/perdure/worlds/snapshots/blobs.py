"""The blobs of a store for code that does not await: replay and indexes take a while, and run in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Final, TypeVar

from perdure.ports.store import Queries

CACHE_MAX: Final = 50_000

T = TypeVar("T")


class StoredBlobs:
    """The blobs of a store, for code that runs in a thread and does not await. What is put waits for `flush`."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._loop = asyncio.get_running_loop()
        self._fresh: dict[bytes, bytes] = {}
        self._cache: dict[bytes, bytes] = {}
        self.fresh_bytes = 0
        self.written = 0

    def get(self, digest: bytes) -> bytes | None:
        body = self._fresh.get(digest)
        if body is None:
            body = self._cache.get(digest)
        if body is None:
            body = asyncio.run_coroutine_threadsafe(self._queries.blob(digest), self._loop).result()
            if body is not None:
                self.remember(digest, body)
        return body

    async def fetch(self, digests: Iterable[bytes]) -> None:
        """Read these now: a thread that asks for one after the other waits for each."""
        for digest in digests:
            if digest not in self._fresh and digest not in self._cache:
                body = await self._queries.blob(digest)
                if body is not None:
                    self.remember(digest, body)

    async def there(self, digests: Iterable[bytes]) -> list[bytes]:
        """Those of them that there are, as bodies."""
        found = [await self._queries.blob(digest) for digest in digests]
        return [body for body in found if body is not None]

    def put(self, body: bytes) -> bytes:
        digest = sha256(body).digest()
        if digest not in self._fresh:
            self._fresh[digest] = body
            self.fresh_bytes += len(body)
        return digest

    async def flush(self) -> None:
        fresh, self._fresh, self.fresh_bytes = self._fresh, {}, 0
        if fresh:
            await self._queries.put_blobs(list(fresh.values()), time.time_ns())
        self.written += len(fresh)
        for digest, body in fresh.items():
            self.remember(digest, body)

    def remember(self, digest: bytes, body: bytes) -> None:
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[digest] = body


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Off the loop, which may be that of an engine: replay and indexes take a while."""
    return await asyncio.to_thread(work, *args)
