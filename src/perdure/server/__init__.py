"""The server: the verbs of the command line over HTTP and in a browser, for any ASGI host.

It owns no truth: what it shows is read from the journal and its indexes, what it does is an event that names its actor.
"""

from __future__ import annotations

from perdure.access.model import Grant, Login
from perdure.runtime.client import Client

from .accesses import Recognise
from .app import ServerApp
from .settings import Settings

__all__ = ["Grant", "Login", "ServerApp", "Settings", "app"]


def app(client: Client, *, actor: Recognise | None = None, settings: Settings | None = None) -> ServerApp:
    """An ASGI app for an engine or a client. Mount it under any path.

    `actor` is given the scope of a request and says who asks: a `perdure.Actor`, a `Login` with grants, or None.
    """
    return ServerApp(client, actor, settings)
