"""perdure: a durable workflow engine for Python. This list is the public API."""

from perdure.app import Engine, connect, open, run
from perdure.errors import *  # noqa: F403
from perdure.errors import __all__ as _errors
from perdure.executors.info import step_info
from perdure.flows.author import Backoff, Break, Continue, Flow, flow, step
from perdure.flows.context import Context, Received
from perdure.kernel.status import Status
from perdure.runtime.client import Client, Handle

__all__ = [
    "Backoff",
    "Break",
    "Client",
    "Context",
    "Continue",
    "Engine",
    "Flow",
    "Handle",
    "Received",
    "Status",
    "connect",
    "flow",
    "open",
    "run",
    "step",
    "step_info",
    *_errors,
]
