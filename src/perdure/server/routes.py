"""The table of verbs as HTTP: method, path, role, parameters and answer of each. Routes and OpenAPI are made from it.

A path has `{id}` for an instance, whose name may have slashes: what is asked of it follows the last `/-/`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final

import msgspec

from perdure.access.model import Who
from perdure.runtime.tasks import TaskDetail
from perdure.tasks.row import TaskInfo
from perdure.verbs import act
from perdure.verbs import bulk as bulks
from perdure.verbs.read import DiffAnswer, DiffParams, TraceAnswer, TraceParams, WhyAnswer
from perdure.views.instance_at import PastInstance
from perdure.views.lists import Rates
from perdure.views.survey import Preview
from perdure.worlds.snapshots.snapshots import Collected

from .api import (
    access,
    acting,
    bookmarks,
    bulk,
    counts,
    definitions,
    export,
    fleet,
    instances,
    journal,
    looks,
    outside,
    parts,
    queues,
    tasks,
    world,
)
from .calling import Calling
from .refusals import Repeat, refusals_of, repeat_of

API: Final = "/api/v1"


class Route(msgspec.Struct, frozen=True):
    """`values`: the body holds an input or an answer, and may be large. `example` is a body, or a query.

    `direct`: the answer holds no recorded values, so that it is encoded as it is.
    """

    name: str
    method: str
    path: str
    who: Who
    help: str
    params: type[msgspec.Struct]
    answer: Any
    call: Callable[[Calling, Any], Awaitable[Any]]
    example: Any = None
    values: bool = False
    direct: bool = False

    @property
    def read(self) -> bool:
        return self.method == "GET"

    @property
    def repeat(self) -> Repeat:
        return repeat_of(self.name, self.method)

    @property
    def refusals(self) -> tuple[str, ...]:
        """The codes of its own refusals."""
        return refusals_of(self.name, self.method)

    @property
    def in_path(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.path))

    def named(self, name: str) -> str:
        """What a parameter of the path is in examples."""
        if name == "verb":
            return "show" if self.read else "cancel"
        before, _, _ = self.path.partition(f"{{{name}}}")
        return next(text for ending, text in IN_PATHS.items() if f"{before}{{{name}}}".endswith(ending))


DEFINITIONS: Final = frozenset({"check", "put", "preview", "simulate"})
"""Verbs whose body may be the text of a definition itself, as YAML."""

ON: Final = "/instances/{id}"
OF: Final = "/instances/{id}/-"
VERSION: Final = "/workflows/{name}/-/{version}"
TASK: Final = "/tasks/{task}"

EXAMPLE: Final = """\
apiVersion: perdure/v1
kind: Playbook
metadata: {name: greet, path: demo/greet}
workflow:
  - step: start
    tool: {kind: noop}
"""
"""The definition that examples have."""

IN_PATHS: Final = {
    "/instances/{id}": "order/o-17",
    "/cells/{id}": "com.acme/order/o-17",
    "/bulk/{id}": "7c1d0a55e2b9",
    "/access/keys/{id}": "d0e42e38abb1",
    "/workflows/{name}": "order",
    "/queues/{name}": "images",
    "/bookmarks/{name}": "stuck orders",
    "/published/{name}": "charge",
    "/-/{version}": "1",
    "/at/{entry}": "2",
    "/tasks/{task}": "1042",
    "/nodes/{node}": "check",
    "/schemas/{dialect}": "process",
    "/trace/{event}": "e-17",
    "/receipts/{intent}": "d341ba3b6a5f0c12",
    "/proposals/{number}": "1",
    "/grants/{actor}": "ann",
}
"""What paths name, as examples have it. The ending of the path before a parameter tells which."""

ROUTES: Final[tuple[Route, ...]] = (
    Route("start", "POST", "/instances", "operator", "Start an instance, or up to 500.", acting.StartBody,
          acting.StartedAnswer, acting.start,
          {"workflow": "order", "key": "o-17", "input": {"order_id": "o-17"}}, values=True),
    Route("ls", "GET", "/instances", "viewer", "List instances, newest first.", instances.ListQuery,
          instances.InstanceList, instances.ls, "q=status:stuck", direct=True),
    Route("count", "GET", "/instances/count", "viewer", "Count instances.", instances.ListQuery,
          counts.CountAnswer, counts.count_instances, "status=stuck"),
    Route("facets", "GET", "/instances/facets", "viewer", "Count instances by workflow, version and status.",
          instances.Nothing, counts.FacetsAnswer, counts.count_by),
    Route("rates", "GET", "/instances/rates", "viewer", "Tell how many instances started, ended and failed over a day.",
          instances.Nothing, Rates, counts.rates_of),
    Route("groups", "GET", "/instances/groups", "viewer",
          "Group instances by workflow, version, status and what they wait for or their error.",
          instances.ListQuery, counts.GroupsAnswer, counts.groups, "status=stuck"),
    Route("list export", "GET", "/instances/export", "viewer", "Download a list as JSON lines or CSV.",
          export.ExportQuery, bytes, export.export, "status=stuck&format=csv"),
    Route("diff", "GET", "/instances/diff", "viewer", "Compare the histories of two instances.", DiffParams,
          DiffAnswer, instances.compare, "a=order/o-17&b=order/o-18"),
    Route("show", "GET", ON, "viewer", "Show one instance.", instances.Id, instances.InstanceDetail, instances.show),
    Route("why", "GET", f"{OF}/why", "viewer", "Say what an instance waits for, in words.", instances.Id,
          WhyAnswer, instances.why),
    Route("waiting", "GET", f"{OF}/waiting", "viewer", "List what an instance has open.", instances.Id,
          instances.WaitingAnswer, instances.waiting),
    Route("children", "GET", f"{OF}/children", "viewer", "List the children of an instance.", instances.Id,
          instances.ChildrenAnswer, instances.children),
    Route("history", "GET", f"{OF}/history", "viewer", "Tell what happened to an instance.", instances.HistoryQuery,
          instances.HistoryPage, instances.history, "after=10"),
    Route("operations", "GET", f"{OF}/operations", "viewer", "List the operations of an instance.",
          instances.OperationsQuery,
          instances.OperationsAnswer, instances.operations_of),
    Route("at", "GET", f"{OF}/at/{{entry}}", "viewer", "Show an instance as it was at an entry.", looks.AtQuery,
          PastInstance, looks.at),
    Route("drawing", "GET", f"{OF}/drawing", "viewer", "Draw an instance.", looks.DrawingQuery, looks.Drawing,
          looks.drawing),
    Route("result", "GET", f"{OF}/result", "viewer", "Wait for the result of an instance.", instances.ResultQuery,
          instances.ResultAnswer, instances.result, "wait=30"),
    Route("read", "GET", f"{OF}/published/{{name}}", "viewer", "Read a value that an instance published.",
          instances.NameQuery, instances.PublishedAnswer, instances.published),
    Route("send", "POST", f"{OF}/messages", "operator", "Send a message to an instance.", acting.MessageParams,
          act.SendAnswer, acting.send, {"name": "decision", "body": {"approved": True}}, values=True),
    Route("ask", "POST", f"{OF}/ask", "operator", "Send a message and wait for its answer.", acting.AskParams,
          acting.AskAnswer, acting.ask, {"name": "price", "body": None}, values=True),
    Route("cancel", "POST", f"{OF}/cancel", "operator", "Ask an instance to stop.", act.CancelParams,
          act.CancelAnswer, acting.acting(act.cancel), {"reason": "ordered twice"}),
    Route("wake", "POST", f"{OF}/wake", "operator", "End the sleep of an instance.", act.WakeParams, act.WakeAnswer,
          acting.acting(act.wake), {}),
    Route("pause", "POST", f"{OF}/pause", "operator", "Stop what would begin in an instance of a playbook.",
          act.PauseParams, act.PauseAnswer, acting.pausing(act.pause), {"reason": "the bank is down"}),
    Route("resume", "POST", f"{OF}/resume", "operator", "Let an instance of a playbook go on.", act.PauseParams,
          act.ResumeAnswer, acting.pausing(act.resume), {}),
    Route("retry", "POST", f"{OF}/retry", "operator", "Let a stuck or failed instance try again.", act.RetryParams,
          act.RetryAnswer, acting.acting(act.retry), {}),
    Route("settle", "POST", f"{OF}/settle", "operator", "Answer for a step whose outcome is unknown.",
          act.SettleParams, act.SettleAnswer, acting.acting(act.settle),
          {"location": "charge", "value": "c-123", "reason": "the bank says so"}, values=True),
    Route("rewind", "POST", f"{OF}/rewind", "operator", "Let an instance go back.", act.RewindParams,
          act.RewindAnswer, acting.acting(act.rewind), {"to": "charge"}),
    Route("fork", "POST", f"{OF}/fork", "operator", "Go on from an instance's past in another one.", act.ForkParams,
          act.ForkAnswer, acting.fork, {"at": "ship", "edit": {"price": 4200}}, values=True),
    Route("tag", "PATCH", f"{OF}/tags", "operator", "Change tags of an instance.", acting.TagsParams,
          acting.TagsAnswer, acting.tag, {"tags": {"customer": "c-7"}}),
    Route("bulk start", "POST", "/bulk", "operator", "Do one thing to all instances of a selection.",
          bulks.BulkParams, bulks.BulkAnswer, bulk.start,
          {"verb": "retry", "selection": {"q": "workflow:order status:stuck"}, "dry_run": True}, values=True),
    Route("bulk ls", "GET", "/bulk", "operator", "List bulks, newest first.", bulks.BulkListParams, bulks.BulkList,
          bulk.ls),
    Route("bulk show", "GET", "/bulk/{id}", "operator", "Show how far a bulk is.", bulks.BulkId, bulks.ShownBulk,
          bulk.show),
    Route("bulk cancel", "POST", "/bulk/{id}/-/cancel", "operator", "Leave alone what a bulk has left.",
          bulks.BulkId, bulks.CancelledBulk, bulk.cancel, {}),
    Route("workflow ls", "GET", "/workflows", "viewer", "List workflows with their counts.", fleet.WorkflowsQuery,
          fleet.WorkflowList, fleet.workflows),
    Route("workflow show", "GET", "/workflows/{name}", "viewer", "Show one workflow.", fleet.WorkflowName,
          fleet.WorkflowDetail, fleet.workflow),
    Route("workflow source", "GET", "/workflows/{name}/-/source", "viewer", "Show the source of a workflow.",
          looks.VersionQuery, looks.SourceAnswer, looks.source),
    Route("workflow drawing", "GET", "/workflows/{name}/-/drawing", "viewer", "Draw a workflow.", looks.VersionQuery,
          looks.Drawing, looks.workflow_drawing),
    Route("workflow diff", "GET", "/workflows/{name}/-/diff", "viewer", "Compare two versions of a workflow.",
          looks.TwoVersions, looks.VersionDiff, looks.compare_versions, "a=1.0.0&b=1.1.0"),
    Route("version show", "GET", VERSION, "viewer", "Show one version of a workflow.", fleet.VersionName,
          fleet.WorkflowVersion, fleet.version),
    Route("version form", "GET", f"{VERSION}/form", "viewer", "Tell the input of a start, as a JSON Schema.",
          looks.VersionQuery, looks.FormAnswer, looks.form),
    Route("version export", "GET", f"{VERSION}/export", "viewer", "Write a definition as YAML, JSON or Python.",
          looks.ExportFormat, looks.ExportedDefinition, looks.export_definition, "format=json"),
    Route("version source", "GET", f"{VERSION}/source", "viewer", "Show the source of a version.",
          looks.VersionQuery, looks.SourceAnswer, looks.source),
    Route("version drawing", "GET", f"{VERSION}/drawing", "viewer", "Draw a version.", looks.VersionQuery,
          looks.Drawing, looks.workflow_drawing),
    Route("workflow schema", "GET", "/schemas/{dialect}", "viewer", "Tell the JSON Schema of a definition.",
          definitions.DialectName, definitions.SchemaAnswer, definitions.schema),
    Route("workflow functions", "GET", "/functions", "viewer", "List the functions of expressions.",
          instances.Nothing, definitions.FunctionList, definitions.functions),
    Route("check", "POST", "/workflows/check", "author", "Check a definition; nothing is kept.",
          definitions.DefinitionText, definitions.CheckedDefinition, definitions.check,
          {"text": EXAMPLE}, values=True),
    Route("put", "POST", "/workflows", "author", "Keep a definition, and run it.", definitions.DefinitionParams,
          definitions.KeptDefinition, definitions.put, {"text": EXAMPLE}, values=True),
    Route("activate", "POST", "/workflows/{name}/-/activate", "author", "Choose the version of new instances.",
          definitions.ActivateParams, definitions.ActivatedDefinition, definitions.activate, {"version": "1.1.0"}),
    Route("migrate", "POST", "/workflows/{name}/-/migrate", "author",
          "Let live instances of a process go on under another version.", definitions.MigrationParams,
          definitions.MigratedInstances, definitions.migrate,
          {"to": "1.1.0", "map": {"approve": "sign"}, "dry_run": True}),
    Route("preview", "POST", "/workflows/{name}/-/preview", "author", "Replay live instances on another version.",
          definitions.PreviewParams, Preview, definitions.preview, {"version": "1.1.0"}, values=True),
    Route("simulate", "POST", "/playbooks/simulate", "author", "Run a definition on stubs, in virtual time.",
          definitions.SimulateParams, definitions.SimulatedDefinition, definitions.simulate,
          {"text": EXAMPLE, "runs": 20}, values=True),
    Route("ctx", "GET", f"{OF}/ctx", "viewer", "Show ctx of a playbook's instance.", instances.Id, parts.CtxAnswer,
          parts.ctx),
    Route("tokens", "GET", f"{OF}/tokens", "viewer", "Show where a playbook's instance stands.", instances.Id,
          parts.TokensAnswer, parts.tokens),
    Route("patch", "PATCH", f"{OF}/ctx", "operator", "Change ctx of a playbook's instance.", parts.PatchParams,
          parts.PatchAnswer, parts.patch, {"set": {"approved": True}}, values=True),
    Route("report", "GET", f"{OF}/report", "viewer", "Report on the nodes of a graph's instance.", instances.Id,
          parts.ReportAnswer, parts.report),
    Route("submit", "POST", f"{OF}/nodes", "operator", "Add nodes to a running graph.", parts.SubmitParams,
          parts.SubmitAnswer, parts.submit, {"nodes": [{"name": "check", "goal": "check the sources"}]}, values=True),
    Route("node cancel", "POST", f"{OF}/nodes/{{node}}/cancel", "operator", "End a node of a running graph.",
          parts.NodeParams, parts.NodeAnswer, parts.cancel_node, {}),
    Route("cells ls", "GET", "/cells", "viewer", "List cells, newest first.", journal.LivingQuery,
          instances.InstanceList, journal.living, "workflow=com.acme/order", direct=True),
    Route("cells show", "GET", "/cells/{id}", "viewer", "Show the state of a cell.", journal.StateQuery,
          journal.StateAnswer, journal.state, "at=120"),
    Route("cells tail", "GET", "/cells/{id}/-/tail", "viewer", "Tell the last entries of a cell.", journal.TailQuery,
          journal.TailAnswer, journal.tail, "lines=20"),
    Route("trace", "GET", "/trace/{event}", "viewer", "Tell what an event from outside led to.", TraceParams,
          TraceAnswer, looks.traced),
    Route("queue ls", "GET", "/queues", "viewer", "List queues with their open jobs.", instances.Nothing,
          queues.QueueList, queues.queues),
    Route("queue show", "GET", "/queues/{name}", "viewer", "Show a queue and the workers that have its jobs.",
          queues.QueueName, queues.QueueDetail, queues.queue),
    Route("queue jobs", "GET", "/queues/{name}/-/jobs", "viewer", "List the open jobs of a queue, the oldest first.",
          queues.JobsQuery, queues.JobList, queues.jobs, "limit=100"),
    Route("worker ls", "GET", "/workers", "viewer", "List the workers that have jobs.", instances.Nothing,
          queues.WorkerList, queues.workers),
    Route("tasks ls", "GET", "/tasks", "task", "List tasks.", tasks.TaskQuery, tasks.TaskList, tasks.ls,
          "candidate=true"),
    Route("tasks count", "GET", "/tasks/count", "task", "Count tasks.", tasks.TaskQuery, tasks.TaskCount,
          tasks.count),
    Route("tasks show", "GET", TASK, "task", "Show a task with its form and history.", tasks.TaskId, TaskDetail,
          tasks.show),
    Route("tasks claim", "POST", f"{TASK}/-/claim", "task", "Take a task.", tasks.TaskId, TaskInfo, tasks.claim, {}),
    Route("tasks release", "POST", f"{TASK}/-/release", "task", "Give a task back.", tasks.TaskId, TaskInfo,
          tasks.release, {}),
    Route("tasks assign", "POST", f"{TASK}/-/assign", "task", "Give a task to a person.", tasks.AssignParams,
          TaskInfo, tasks.assign, {"to": "ann"}),
    Route("tasks complete", "POST", f"{TASK}/-/complete", "task", "Answer a task, or vote.", tasks.CompleteParams,
          TaskInfo, tasks.complete, {"answer": {"outcome": "approve"}}, values=True),
    Route("tasks change", "POST", f"{TASK}/-/change", "task", "Change priority, due date or expiry.",
          tasks.ChangeParams, TaskInfo, tasks.change, {"priority": 80}),
    Route("tasks comment", "POST", f"{TASK}/-/comment", "task", "Comment a task.", tasks.CommentParams, TaskInfo,
          tasks.comment, {"text": "asked the supplier"}),
    Route("tasks escalate", "POST", f"{TASK}/-/escalate", "task", "Add candidates to a task.", tasks.EscalateParams,
          TaskInfo, tasks.escalate, {"roles": ["manager"]}),
    Route("tasks cancel", "POST", f"{TASK}/-/cancel", "task", "End a task without an answer.", tasks.TaskCancelParams,
          TaskInfo, tasks.cancel, {"reason": "not needed"}),
    Route("message", "POST", "/messages", "operator", "Send a message by the reference of an instance.",
          outside.ReferenceParams, outside.ReferenceAnswer, outside.message,
          {"reference": "o-17", "name": "paid", "body": {"cents": 4200}}, values=True),
    Route("event", "POST", "/events", "operator", "Send a domain event to the cells that take it.",
          outside.EventParams, access.Done, outside.event,
          {"name": "com.acme/OrderCreated@1", "data": {"order_id": "o-17"}}, values=True),
    Route("effects ls", "GET", "/effects", "executor", "List the effects that wait for this executor.",
          outside.EffectsQuery, outside.EffectList, outside.effects),
    Route("effects answer", "POST", "/receipts/{intent}", "executor", "Answer an effect.", outside.ReceiptParams,
          access.Done, outside.receipt, {"ok": {"paid": True}}, values=True),
    Route("manifest show", "GET", "/world/manifest", "viewer", "Show the manifest in force.", instances.Nothing,
          world.ManifestAnswer, world.manifest),
    Route("manifest proposals", "GET", "/world/proposals", "viewer", "List proposals, newest first.",
          instances.Nothing, world.ProposalList, world.proposals),
    Route("manifest diff", "GET", "/world/diff", "viewer", "Compare a proposed manifest with the one in force.",
          world.ProposedManifest, world.ManifestDiff, world.diff, "proposal=1"),
    Route("manifest shadow", "POST", "/world/proposals/{number}/-/shadow", "author",
          "Run a proposal on a copy of the world.", world.ShadowParams, world.ShownProposal, world.shadow,
          {"mode": "migrate"}, values=True),
    Route("manifest propose", "POST", "/world/proposals", "author", "Propose another manifest.",
          world.ProposeParams, world.ShownProposal, world.propose,
          {"manifest": {"schemas": {}, "effects": {}, "routing": []}}, values=True),
    Route("manifest approve", "POST", "/world/proposals/{number}/-/approve", "admin", "Approve a proposal.",
          world.ProposalNumber, world.ShownProposal, world.approve, {}),
    Route("manifest reject", "POST", "/world/proposals/{number}/-/reject", "admin", "Reject a proposal.",
          world.ProposalNumber, world.ShownProposal, world.reject, {"reason": "not now"}),
    Route("manifest apply", "POST", "/world/proposals/{number}/-/apply", "admin", "Put a proposal into force.",
          world.ApplyParams, world.AppliedAnswer, world.apply, {"mode": "migrate"}),
    Route("manifest migrate", "POST", "/world/migrate", "admin", "Migrate the remaining cells.", world.MigrateParams,
          world.MigratedAnswer, world.migrate, {"dry_run": True}),
    Route("snapshot ls", "GET", "/world/snapshots", "admin", "List world snapshots, the oldest first.",
          instances.Nothing, world.SnapshotList, world.snapshots),
    Route("snapshot take", "POST", "/world/snapshots", "admin", "Take a snapshot of the world.", world.TakeParams,
          world.TakenSnapshot, world.take, {}),
    Route("snapshot gc", "POST", "/world/snapshots/gc", "admin", "Free what no retained snapshot needs.",
          world.CollectParams, Collected, world.collect, {"keep": 3, "dry_run": True}),
    Route("fleet", "GET", "/fleet", "viewer", "Tell what runs.", instances.Nothing, fleet.FleetAnswer, fleet.fleet),
    Route("doctor", "GET", "/doctor", "viewer", "Check the whole database.", instances.Nothing, journal.DoctorAnswer,
          journal.doctor),
    Route("journal", "GET", "/journal", "viewer", "Tell the entries of a shard, of all that you see.",
          journal.JournalQuery, journal.JournalAnswer, journal.journal, "shard=0&after=120"),
    Route("bookmarks", "GET", "/bookmarks", "anyone", "List your bookmarks, and shared ones.", instances.Nothing,
          bookmarks.BookmarkList, bookmarks.ls),
    Route("bookmark show", "GET", "/bookmarks/{name}", "anyone", "Show a bookmark.", bookmarks.BookmarkName,
          bookmarks.ShownBookmark, bookmarks.show),
    Route("bookmark put", "PUT", "/bookmarks/{name}", "anyone", "Save a list under a name.",
          bookmarks.BookmarkParams, bookmarks.ShownBookmark, bookmarks.put, {"q": "status:stuck", "shared": False}),
    Route("bookmark delete", "DELETE", "/bookmarks/{name}", "anyone", "Delete a bookmark.", bookmarks.BookmarkName,
          access.Done, bookmarks.delete),
    Route("whoami", "GET", "/whoami", "anyone", "Tell who asks, and with which rights.", instances.Nothing,
          access.WhoAmI, access.whoami),
    Route("verbs", "GET", "/verbs", "anyone", "List the verbs, and which are allowed.", instances.Nothing,
          fleet.VerbList, fleet.verbs),
    Route("call", "POST", "/verbs/{verb}", "operator", "Change something as the command line does.", fleet.AskedVerb,
          Any, fleet.ask_verb, {"params": {"id": "order/o-17"}}, values=True),
    Route("ask verb", "GET", "/verbs/{verb}", "viewer", "Read something as the command line does.", fleet.AskedVerb,
          Any, fleet.ask_verb, 'params={"id": "order/o-17"}'),
    Route("key ls", "GET", "/access/keys", "admin", "List API keys.", instances.Nothing, access.KeyList,
          access.keys),
    Route("key add", "POST", "/access/keys", "admin", "Make an API key.", access.KeyParams, access.MadeKey,
          access.add_key, {"actor": "crm", "grants": [{"role": "operator", "workflows": ["order"]}]}),
    Route("key revoke", "DELETE", "/access/keys/{id}", "admin", "Revoke an API key.", access.KeyId, access.Done,
          access.revoke_key),
    Route("grants", "GET", "/access/grants", "admin", "List grants.", instances.Nothing, access.GrantList,
          access.grants),
    Route("grant", "PUT", "/access/grants/{actor}", "admin", "Say what an actor may do.", access.GrantParams,
          access.GrantList, access.put_grants, {"grants": [{"role": "viewer", "workflows": ["*"]}]}),
    Route("grant by name", "PUT", "/access/grants", "admin", "Say what an actor may do.", access.GrantParams,
          access.GrantList, access.put_grants, {"actor": "ann", "grants": [{"role": "viewer", "workflows": ["*"]}]}),
    Route("access link", "POST", "/access/link", "admin", "Make a login link that works once.", access.LinkParams,
          access.MadeLink, access.link, {}),
    Route("audit", "GET", "/audit", "admin", "List who changed access, and who was refused.", instances.Nothing,
          access.Audit, access.audit),
)  # fmt: skip


SHOW: Final = next(route for route in ROUTES if route.name == "show")


@cache
def _compiled() -> dict[str, list[tuple[re.Pattern[str], Route]]]:
    """Routes by the first part of their path; paths with fewer parameters first."""
    found: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
    for route in sorted(ROUTES, key=lambda route: (len(route.in_path), "/-/" not in route.path)):
        found.setdefault(route.path.split("/")[1], []).append((_pattern(route.path), route))
    return found


def _pattern(path: str) -> re.Pattern[str]:
    wide = "(.+)" if "/-/" in path else "((?:(?!/-/).)+)"
    parts = re.split(r"{(\w+)}", path)
    text = "".join(re.escape(part) if n % 2 == 0 else _part(part, n == 1, wide) for n, part in enumerate(parts))
    return re.compile(text + r"\Z", re.S)


def _part(name: str, first: bool, wide: str) -> str:
    """Names of workflows, instances and nodes may have slashes."""
    return "(.+)" if name == "node" else wide if name in ("id", "name") and first else "([^/]+)"


def match(method: str, path: str) -> tuple[Route | None, dict[str, str], list[str]]:
    """The route of a request and what its path names; else the methods that the path has."""
    methods: list[str] = []
    for pattern, route in _compiled().get(path.split("/")[1] if "/" in path else "", []):
        found = pattern.match(path)
        if found is None:
            continue
        if route.method == method or (method == "HEAD" and route.method == "GET"):
            return route, dict(zip(route.in_path, found.groups(), strict=True)), []
        methods.append(route.method)
    if not methods and method in ("GET", "HEAD") and path.startswith("/instances/"):
        return SHOW, {"id": path.removeprefix("/instances/")}, []  # a key that has `/-/` itself
    return None, {}, methods
