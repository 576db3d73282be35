"""THE table of verbs. A face asks by name: `await call(client, "send", SendParams(...))`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from perdure.runtime.client import Client
from perdure.views.look import ShownInstance

from . import act, bulk, read


class Verb(msgspec.Struct, frozen=True):
    """`changes`: something is recorded, and an engine takes it up. Other verbs only read."""

    name: str
    params: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    function: Callable[[Client, Any], Awaitable[Any]]
    changes: bool = False


VERBS: Final = {
    verb.name: verb
    for verb in (
        Verb("start", act.StartParams, act.StartAnswer, act.start, changes=True),
        Verb("send", act.SendParams, act.SendAnswer, act.send, changes=True),
        Verb("cancel", act.CancelParams, act.CancelAnswer, act.cancel, changes=True),
        Verb("wake", act.WakeParams, act.WakeAnswer, act.wake, changes=True),
        Verb("pause", act.PauseParams, act.PauseAnswer, act.pause, changes=True),
        Verb("resume", act.PauseParams, act.ResumeAnswer, act.resume, changes=True),
        Verb("retry", act.RetryParams, act.RetryAnswer, act.retry, changes=True),
        Verb("rewind", act.RewindParams, act.RewindAnswer, act.rewind, changes=True),
        Verb("fork", act.ForkParams, act.ForkAnswer, act.fork, changes=True),
        Verb("settle", act.SettleParams, act.SettleAnswer, act.settle, changes=True),
        Verb("tag", act.TagParams, act.TagAnswer, act.tag, changes=True),
        Verb("bulk start", bulk.BulkParams, bulk.BulkAnswer, bulk.bulk_start, changes=True),
        Verb("bulk cancel", bulk.BulkId, bulk.CancelledBulk, bulk.bulk_cancel, changes=True),
        Verb("bulk ls", bulk.BulkListParams, bulk.BulkList, bulk.bulk_ls),
        Verb("bulk show", bulk.BulkId, bulk.ShownBulk, bulk.bulk_show),
        Verb("ls", read.ListParams, read.ListAnswer, read.ls),
        Verb("show", read.ShowParams, ShownInstance, read.show),
        Verb("history", read.HistoryParams, read.HistoryAnswer, read.history),
        Verb("why", read.WhyParams, read.WhyAnswer, read.why),
        Verb("diff", read.DiffParams, read.DiffAnswer, read.diff),
        Verb("trace", read.TraceParams, read.TraceAnswer, read.trace),
        Verb("export", read.ExportParams, read.ExportAnswer, read.export),
    )
}
