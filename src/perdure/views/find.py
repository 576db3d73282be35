"""Which instance an ID means: `workflow/key`, or the key alone where that is clear."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from perdure.errors import UnclearRequest, UnknownInstance
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.kernel.workflows import OWN
from perdure.ports.store import Filter, Queries
from perdure.runtime.client import Client

NUMBER: Final = re.compile(r"@([0-9]{1,19})\Z")
READINGS_MAX: Final = 8
RECENT: Final = 500
"""Instances among which the one that was perhaps meant is looked for."""

ID_MAX: Final = 4096 + 1 + 512
"""Characters of the longest name of a workflow, a slash, and the longest key."""


class Found(NamedTuple):
    address: Address
    head: HeadRow | None  # None: its start was posted, and no engine has taken it up yet


async def find(client: Client, text: str) -> Found:
    """Also what is on its way. Raises `UnknownInstance` with what was perhaps meant.

    `@NUMBER` is one generation; a name means the last one.
    """
    if not _usable(text):
        raise UnclearRequest(f"an ID is workflow/key, or the key alone; found {text!a:.80}")
    queries = client.queries
    number = NUMBER.match(text)
    head = await queries.head(int(number[1])) if number is not None and int(number[1]) < 2**63 else None
    if head is not None:
        return Found(Address(head.workflow, head.key), head)
    named = [head for address in await readings(queries, text) if (head := await queries.head(address)) is not None]
    heads = named or await queries.heads(Filter(key=text, limit=1000))
    addresses = list(dict.fromkeys(Address(head.workflow, head.key) for head in heads))
    if len(addresses) > 1:
        choice = ", ".join(sorted(map(str, addresses)))
        raise UnclearRequest(f"{text!r} is the key of {len(addresses)} instances: {choice}; write one of these")
    if addresses:
        return Found(addresses[0], heads[0])  # the last generation comes first
    keys = dict.fromkeys(Address(workflow, text) for workflow, *_ in await queries.workflows())
    for address in [*await readings(queries, text), *keys]:
        if await queries.undelivered(address):
            return Found(address, None)
    raise await no_instance(queries, text)


async def find_started(client: Client, text: str) -> tuple[Address, HeadRow]:
    """Only what an engine has taken up: the rest has nothing to show yet."""
    found = await find(client, text)
    if found.head is None:
        raise UnknownInstance(f"{found.address} is recorded, but no engine has taken it up yet")
    return found.address, found.head


def _usable(text: str) -> bool:
    """Empty, it would mean any instance; bytes that are no text cannot even be asked for."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


async def readings(queries: Queries, text: str) -> list[Address]:
    """Every reading as workflow/key: both may contain slashes. An instance with an empty key may be named alone.

    Of many readings only those of a known workflow: a text of slashes must not become a question for each.
    """
    cuts = [n for n, letter in enumerate(text[:ID_MAX]) if letter == "/" and n > 0] if len(text) <= ID_MAX else []
    if len(cuts) > READINGS_MAX:
        names = {row.name for row in await queries.workflows()} | {name for name, _, _ in await queries.counts()}
        cuts = [n for n in cuts if text[:n] in names]
    return [*(Address(text[:n], text[n + 1 :]) for n in cuts), Address(text, "")]


async def no_instance(queries: Queries, text: str, sees: Callable[[str], bool] = bool) -> UnknownInstance:
    """The refusal of an ID, with what was perhaps meant among the instances that the asker sees."""
    recent = await queries.heads(Filter(limit=RECENT))
    text = text if len(text) <= 80 else f"{text[:80]}…"
    meant = [head for head in recent if sees(head.workflow) and not head.workflow.startswith(OWN)]
    by_text = {head.key: f"{head.workflow}/{head.key}" for head in meant}
    by_text |= {name: name for name in by_text.values()}
    near = await asyncio.to_thread(difflib.get_close_matches, text, by_text, n=1)
    if near:
        return UnknownInstance(f"there is no instance {text}; did you mean {by_text[near[0]]}?")
    known = "; `perdure ls` lists what exists" if recent else ", nor any other"
    return UnknownInstance(f"there is no instance {text}{known}")
