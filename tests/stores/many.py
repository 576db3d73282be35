"""Many instances in the tables that lists read, of which each filter of `TEXTS` fits the same share."""

import json
from collections.abc import Iterator

from perdure.kernel.batch import HeadRow
from perdure.ports.store import Filter
from perdure.views.where import filters, parse, with_statuses

SECOND = 1_000_000_000
BY_CHANGE = "by change: "
TEXTS = (
    "",
    "workflow:order",
    "workflow:order status:failed",
    "status:failed",
    "-status:completed",
    "version:2",
    "key:letter-77",
    "key_prefix:order-77",
    "key_prefix:o",
    "key_prefix:o status:failed",
    "tag.team:red",
    "tag.team:red tag.size:big",
    "tag.team:red workflow:order version:2",
    "parent:1",
    "root:1",
    "started>1970-01-01T00:10Z",
    "ended>1970-01-01T00:10Z",
    "changed>1970-01-01T00:10Z",
    "waits_for:decision",
    "error_type:KeyError",
    "queue:mail",
    "error_at:charge",
    "by change: status:failed",
    "by change: workflow:order status:waiting",
)


def heads(count: int) -> Iterator[HeadRow]:
    statuses = ("completed", "completed", "completed", "failed", "waiting")
    for n in range(1, count + 1):
        workflow, status = ("order", "letter")[n % 2], statuses[n * 7 // 3 % 5]
        reason = {"failed": "KeyError at charge", "waiting": ("decision", "queue mail")[n // 3 % 2]}.get(status, "")
        tags = {"team": ("red", "blue")[n // 2 % 2], **({"size": "big"} if n % 3 else {})}
        at, parent = n * SECOND, 1 if n > 1 and n % 11 == 0 else 0
        ended = at if status in ("completed", "failed") else 0
        yield HeadRow(
            n, workflow, f"{workflow}-{n}", 1, "2", status, at, at, parent, b"", json.dumps(tags), None, parent or n,
            ended, reason,
        )  # fmt: skip


def questions(text: str) -> list[Filter]:
    """What a list of 50 asks the store."""
    where = parse(text.removeprefix(BY_CHANGE))
    return filters(with_statuses(where), 51, text.startswith(BY_CHANGE))
