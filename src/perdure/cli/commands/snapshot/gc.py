"""`perdure snapshot gc`: free the blobs that nothing needs."""

from __future__ import annotations

import click

from perdure.codec import to_plain

from ...console import Console
from ...console import command as define
from ...snapshots import ask
from ...text import joined


@define("snapshot gc")
@click.option("--dry-run", is_flag=True, help="Only say what would be freed.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Give up all snapshots but the newest N.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="What was put so lately stays.",
)
def command(console: Console, dry_run: bool, keep: int | None, grace: float) -> None:
    """Blobs stay that a retained snapshot reaches, that an entry names, or that are young. The newest snapshot is
    always retained, and so is the one that the database was restored from.
    """
    found = ask(console, lambda snapshots: snapshots.collect(keep=keep, grace=grace, dry_run=dry_run))
    would = "would be " if dry_run else ""
    lines = [f"{name[:19]} {would}given up" for name in found.snapshots]
    lines.append(f"{found.blobs} blobs ({found.bytes:,} bytes) {would}freed, {found.kept} kept")
    console.answer(to_plain(found), joined(lines))
