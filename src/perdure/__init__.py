"""perdure: a durable workflow engine for Python. This list is the public API.

A name is imported when it is first used: the command line starts without the engine.
"""

from typing import TYPE_CHECKING, Any

from perdure.errors import *  # noqa: F403
from perdure.errors import __all__ as _errors

if TYPE_CHECKING:
    from perdure import tools
    from perdure.app import Dispatch, Engine, connect, open, run
    from perdure.app.ours import load_graph, load_playbook, load_process
    from perdure.cells.author import Cell, CellContext, Datum, Effect, FrameOf, Next, ReceiptOf, Rejected, cell
    from perdure.cells.bound_manifest import manifest
    from perdure.cells.handlers import Call, effect_handler
    from perdure.codec.jsonschema import Field
    from perdure.codec.record import Duration, Hash, Nat, Record, Time
    from perdure.executors.frames import emit, progress
    from perdure.executors.info import step_info
    from perdure.executors.secrets import EnvironmentSecrets, FileSecrets
    from perdure.executors.signatures import Key, Keyring, sign
    from perdure.flows.author import Break, Continue, Failed, Flow, Ok, flow, step
    from perdure.flows.context import Context
    from perdure.flows.receiving import Message, Received
    from perdure.flows.tasks import Answered
    from perdure.kernel.asked import Actor
    from perdure.kernel.backoff import Backoff
    from perdure.kernel.problem import Problem
    from perdure.kernel.retention import Retention
    from perdure.kernel.status import Status
    from perdure.ports.frame import Frame
    from perdure.ports.outside import OpenEffect
    from perdure.ports.secrets import Secret
    from perdure.runtime.client import Client
    from perdure.runtime.handle import Handle
    from perdure.runtime.tasks import TaskDetail
    from perdure.tasks.model import Escalation, Quorum
    from perdure.tasks.row import TaskInfo
    from perdure.worlds.files import load_manifest
    from perdure.worlds.governance import Governance
    from perdure.worlds.snapshots import Snapshots

_HOME = {
    "perdure.app": ("Dispatch", "Engine", "connect", "open", "run"),
    "perdure.app.ours": ("load_graph", "load_playbook", "load_process"),
    "perdure.cells.author": (
        "Cell",
        "CellContext",
        "Datum",
        "Effect",
        "FrameOf",
        "Next",
        "ReceiptOf",
        "Rejected",
        "cell",
    ),
    "perdure.cells.bound_manifest": ("manifest",),
    "perdure.cells.handlers": ("Call", "effect_handler"),
    "perdure.codec.jsonschema": ("Field",),
    "perdure.codec.record": ("Duration", "Hash", "Nat", "Record", "Time"),
    "perdure.executors.frames": ("emit", "progress"),
    "perdure.executors.info": ("step_info",),
    "perdure.executors.secrets": ("EnvironmentSecrets", "FileSecrets"),
    "perdure.executors.signatures": ("Key", "Keyring", "sign"),
    "perdure.flows.author": ("Break", "Continue", "Failed", "Flow", "Ok", "flow", "step"),
    "perdure.flows.context": ("Context",),
    "perdure.flows.receiving": ("Message", "Received"),
    "perdure.flows.tasks": ("Answered",),
    "perdure.kernel.asked": ("Actor",),
    "perdure.runtime.tasks": ("TaskDetail",),
    "perdure.tasks.model": ("Escalation", "Quorum"),
    "perdure.tasks.row": ("TaskInfo",),
    "perdure.worlds.governance": ("Governance",),
    "perdure.kernel.backoff": ("Backoff",),
    "perdure.kernel.retention": ("Retention",),
    "perdure.kernel.problem": ("Problem",),
    "perdure.kernel.status": ("Status",),
    "perdure.ports.frame": ("Frame",),
    "perdure.ports.outside": ("OpenEffect",),
    "perdure.ports.secrets": ("Secret",),
    "perdure.runtime.client": ("Client",),
    "perdure.runtime.handle": ("Handle",),
    "perdure.worlds.snapshots": ("Snapshots",),
    "perdure.worlds.files": ("load_manifest",),
}
_MODULES = {name: module for module, names in _HOME.items() for name in names}

__all__ = [  # noqa: PLE0604
    "Actor",
    "Answered",
    "Backoff",
    "Break",
    "Call",
    "Cell",
    "CellContext",
    "Client",
    "Context",
    "Continue",
    "Datum",
    "Dispatch",
    "Duration",
    "Effect",
    "Engine",
    "EnvironmentSecrets",
    "Escalation",
    "Failed",
    "Field",
    "FileSecrets",
    "Flow",
    "Frame",
    "FrameOf",
    "Governance",
    "Handle",
    "Hash",
    "Key",
    "Keyring",
    "Nat",
    "Next",
    "Ok",
    "OpenEffect",
    "Problem",
    "Quorum",
    "ReceiptOf",
    "Message",
    "Received",
    "Record",
    "Rejected",
    "Retention",
    "Secret",
    "Snapshots",
    "Status",
    "TaskDetail",
    "TaskInfo",
    "Time",
    "cell",
    "connect",
    "effect_handler",
    "emit",
    "flow",
    "load_manifest",
    "load_graph",
    "load_process",
    "load_playbook",
    "manifest",
    "open",
    "progress",
    "run",
    "sign",
    "step",
    "step_info",
    "tools",
    *_errors,
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if name == "__version__":
        from importlib.metadata import version

        return version("perdure")
    if name == "tools":
        from importlib import import_module

        return import_module("perdure.tools")
    if module is None:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
