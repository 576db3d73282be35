"""`perdure show`: one instance, as it is now."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from perdure.kernel.moment import when
from perdure.ports.store import JobState
from perdure.runtime.client import Client
from perdure.runtime.history import Waiting

from ..console import Console
from ..console import command as define
from ..find import find_started
from ..live import open_line
from ..look import Look
from ..text import ago, joined, local, short, span, style, styled, table, to_json


@define("show")
@click.argument("id")
def command(console: Console, id: str) -> None:
    async def read(client: Client) -> tuple[Look, dict[str, JobState]]:
        _, head = await find_started(client, id)
        look = await Look.at(client.queries, head)
        return look, await _jobs(client, look)

    look, jobs = console.ask(read)
    document = look.document()
    for waiting in document["waiting"]:
        job = jobs.get(waiting["location"])
        waiting["worker"] = job.worker or None if job is not None else None
        waiting["claimed_at"] = when(job.claimed) if job is not None and job.claimed else None
    console.answer(document, _text(look, jobs, datetime.now(UTC)))


async def _jobs(client: Client, look: Look) -> dict[str, JobState]:
    """Steps of queues, by location: who has them."""
    jobs = {}
    for each in look.waiting:
        intent = look.state.at(each.location) if each.kind == "call" and not each.held else None
        job = await client.queries.job(intent.id) if intent is not None else None
        if job is not None:
            jobs[each.location] = job
    return jobs


def _open(waiting: Waiting, job: JobState | None, now: datetime) -> str:
    line = open_line(waiting, now)
    if job is None or not job.worker:
        return line
    since = f" since {span((now - when(job.claimed)).total_seconds())}" if job.claimed else ""
    return f"{line}  {job.holder}{since}"


def _text(look: Look, jobs: dict[str, JobState], now: datetime) -> str:
    head = look.summary
    rows = [
        ["instance", look.id],
        ["status", styled(look.state.status)],
        ["version", head.version],
        ["started", f"{local(head.started_at)} ({ago(head.started_at, now)})"],
        ["changed", f"{local(head.changed_at)} ({ago(head.changed_at, now)})"],
        ["entries", str(look.state.version)],
    ]
    if head.generation > 1:
        rows.insert(1, ["generation", str(head.generation)])
    if look.parent is not None:
        rows.append(["parent", str(look.parent)])
    rows += [["tag", f"{name}={value}"] for name, value in head.tags.items()]
    rows += [["open", _open(each, jobs.get(each.location), now)] for each in look.waiting]
    rows += [["published", f"{name} = {short(value)}"] for name, value in look.published.items()]
    if look.state.stuck is not None and look.state.stuck.location:
        rows.append(["stuck at", look.state.stuck.location])
    if look.error is not None:
        rows.append(["error", joined(str(look.error).split("\n"))])
    if look.state.status == "completed":
        rows.append(["result", to_json(look.result)])
    return table([[style(name, bold=True), text] for name, text in rows])
