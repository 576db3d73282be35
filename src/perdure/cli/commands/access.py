"""`perdure access link`: another login, for those who can write the database."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe

import click

from perdure.access.model import KEY, WORKFLOW
from perdure.kernel.asked import Actor
from perdure.runtime.client import Client

from ..console import Console, define
from .serve import LISTEN

MINUTES = 10


@define("access link")
@click.option("--actor", metavar="NAME", help="Who logs in.  [default: you]")
@click.option("--url", default=f"http://{LISTEN}", show_default=True, help="The address of the server.")
def link(console: Console, actor: str | None, url: str) -> None:
    """The link works once, for ten minutes, and logs in an admin: who can write the database is admin."""
    from perdure.server.accesses import begin
    from perdure.server.auth.tokens import digest_of

    token, user = token_urlsafe(32), getpass.getuser()
    body = {
        "digest": digest_of(token),
        "actor": actor or user,
        "expires_at": datetime.now(UTC) + timedelta(minutes=MINUTES),
    }

    async def make(client: Client) -> None:
        by = Actor(user)
        await begin(client, by)
        await client.handle(WORKFLOW, KEY).ask("link add", body, timeout=10, by=by)

    console.ask(make)
    whole = f"{url.rstrip('/')}/login#{token}"
    console.answer({"login": whole}, whole)
