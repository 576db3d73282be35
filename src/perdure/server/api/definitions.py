"""Definitions that are data, over HTTP: check one, keep it, choose the version that new instances run on."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from perdure.app.engine import Engine
from perdure.app.ours import SCHEMAS, FileKind, kind_of_text
from perdure.definitions.model import address
from perdure.errors import AuthorError, DoesNotFit, SelectionChanged
from perdure.expressions.functions import described
from perdure.runtime.migration import LeftAlone, Migration, live_heads
from perdure.verbs.plans import by_plan, plan_for, plan_of
from perdure.views.survey import Preview, Replayed
from perdure.views.survey import preview as previewed

from ..calling import Calling
from ..problems import HttpProblem, rows_of
from ..reading import no_such
from .instances import Nothing
from .looks import code_of
from .parts import reason_of

RUNS_MAX: Final = 200
MIGRATED_MAX: Final = 500
SIMULATE_SECONDS: Final = 7.0


class DefinitionText(msgspec.Struct, frozen=True):
    """`text` is a playbook in YAML, or a process in YAML or JSON."""

    text: str


class DefinitionProblem(msgspec.Struct, frozen=True):
    """`pointer` is a place in the definition, or line:column of its text."""

    pointer: str
    detail: str
    code: str = ""
    hint: str = ""


class CheckedDefinition(msgspec.Struct, frozen=True):
    """`ok`: it can be put. `noun` says what it is: a process or a playbook."""

    ok: bool
    noun: str
    name: str
    version: str
    problems: list[DefinitionProblem]


async def check(calling: Calling, given: DefinitionText) -> CheckedDefinition:
    kind = kind_of_text(given.text)
    try:
        found = await asyncio.to_thread(_valid, kind, given.text)
    except AuthorError as error:
        rows = rows_of(error)
        return CheckedDefinition(False, kind.noun, "", "", [DefinitionProblem(**row) for row in rows])
    return CheckedDefinition(True, kind.noun, found.name, found.stored.version, [])


class DefinitionParams(msgspec.Struct, frozen=True):
    """`activate`: new instances run on it, whatever its version."""

    text: str
    activate: bool = False


class KeptDefinition(msgspec.Struct, frozen=True):
    noun: str
    name: str
    version: str


async def put(calling: Calling, given: DefinitionParams) -> KeptDefinition:
    """The same bytes again write nothing; other bytes under a version that is kept are refused."""
    kind = kind_of_text(given.text)
    found = await asyncio.to_thread(_valid, kind, given.text)
    await calling.check_workflow(found.name)
    version = await kind.kept(calling.client).put(found, activate=given.activate)
    return KeptDefinition(kind.noun, found.name, version)


class PreviewParams(msgspec.Struct, frozen=True):
    """Another `version`, by default the active one; or the `text` of a definition that is not kept yet."""

    name: str
    version: str = ""
    text: str = ""


async def preview(calling: Calling, given: PreviewParams) -> Preview:
    await calling.check_workflow(given.name)
    if given.text and given.version:
        raise HttpProblem(422, "bad-request", "a preview is of a version or of a text, not of both", where="/text")
    if not given.text:
        return await _previewed(calling, await code_of(calling, given.name, given.version))
    found = await asyncio.to_thread(_valid, kind_of_text(given.text), given.text)
    if found.name != given.name:
        text = f"the text defines {found.name[:80]!r}, and not {given.name[:80]!r}"
        raise HttpProblem(422, "bad-request", text, where="/text")
    engine = calling.engine
    return await _previewed(calling, engine.runnable(found) if isinstance(engine, Engine) else found)


async def _previewed(calling: Calling, workflow: Any) -> Preview:
    """A divergence repeats recorded values: it is for logins that see them. Each actor has one preview at a time."""
    found = await calling.within(f"preview for {calling.login.actor}", previewed(calling.client.queries, workflow))
    if found is None:
        raise HttpProblem(409, "too-broad", "the preview did not end in time: an instance has a very long history")
    calling.subjects.add(found.name)
    if calling.shows_values and not calling.settings.redact:
        return found
    unfit = [replace(each, sample=[Replayed(one.id, "") for one in each.sample]) for each in found.unfit]
    return replace(found, unfit=unfit)


class ActivateParams(msgspec.Struct, frozen=True):
    """`dry_run`: only tell what would happen. `plan` is that of a dry run: refused if there was a change since."""

    name: str
    version: str
    dry_run: bool = False
    plan: str = ""


class ActivatedDefinition(KeptDefinition, frozen=True, kw_only=True):
    """Of a dry run: the version that is active `now`, the `preview` of the other one, and the `plan`."""

    now: str | UnsetType = UNSET
    preview: Preview | UnsetType = UNSET
    plan: str | UnsetType = UNSET


async def activate(calling: Calling, given: ActivateParams) -> ActivatedDefinition:
    await calling.check_workflow(given.name)
    client = calling.client
    names = [name for name, _ in await client.processes.list()]
    noun, kept = ("process", client.processes) if given.name in names else ("playbook", client.playbooks)
    stored = await kept.get(given.name, given.version)
    register = await client.queries.head(address(given.name))
    assert register is not None, "a definition is kept in its register"
    if given.dry_run:
        now, plan = (await kept.get(given.name)).version, await plan_for(client, "activate", register, given)
        seen = await _previewed(calling, await code_of(calling, given.name, stored.version))
        return ActivatedDefinition(noun, given.name, stored.version, now=now, preview=seen, plan=plan)
    planned = await by_plan(client, "activate", register, given)
    definitions = planned.processes if noun == "process" else planned.playbooks
    await definitions.activate(given.name, given.version)
    return ActivatedDefinition(noun, given.name, stored.version)


class MigrationParams(msgspec.Struct, frozen=True):
    """`to` is a version; `map` has new locations of steps by the old ones. `keys`: only these instances.

    `dry_run`: only tell what would happen. `plan` is that of a dry run: refused if another set of instances fits now.
    `reason` is recorded.
    """

    name: str
    to: str
    map: dict[str, str] = {}
    keys: list[str] = []
    dry_run: bool = False
    plan: str = ""
    reason: str = ""


class MigratedInstances(msgspec.Struct, frozen=True):
    """The instances that go on under the version, or would, and those that stay, with why; the `plan` of a dry run.

    `more`: so many other live instances were not looked at; the same request again goes on with them. `code` is the
    version with the hash of its definition.
    """

    name: str
    version: str
    migrated: list[str]
    left: list[LeftAlone]
    more: int = 0
    plan: str | UnsetType = UNSET
    code: str = ""


async def migrate(calling: Calling, given: MigrationParams) -> MigratedInstances:
    """At most 500 instances. What does not fit is left alone; if nothing fits, all is refused."""
    await calling.check_workflow(given.name)
    to = (await calling.client.processes.get(given.name, given.to)).version
    keys = given.keys or [
        head.key
        async for head in live_heads(calling.client.queries, given.name)
        if head.version.partition("+")[0] != to
    ]
    few, more = keys[:MIGRATED_MAX], len(keys[MIGRATED_MAX:])
    if given.dry_run or given.plan:
        planned = await _migrated(calling, given, few, dry_run=True)
        plan = plan_of("migrate", {"to": to, "map": given.map, "ids": sorted(planned.migrated)}, len(planned.migrated))
        if given.dry_run:
            return MigratedInstances(given.name, to, planned.migrated, planned.left, more, plan, planned.version)
        if given.plan != plan:
            now = f"{len(planned.migrated)} instances fit now"
            raise SelectionChanged(f"the plan {given.plan!r:.60} is of other instances: {now}; make another dry run")
    found = await _migrated(calling, given, few, dry_run=False)
    if found.left and not found.migrated:
        raise DoesNotFit(f"no instance fits {given.name} {to}: {found.left[0].id}: {found.left[0].why}")
    return MigratedInstances(given.name, to, found.migrated, found.left, more, code=found.version)


async def _migrated(calling: Calling, given: MigrationParams, keys: list[str], *, dry_run: bool) -> Migration:
    asked, said = calling.client.processes.migrate, reason_of(given.reason)
    work = asked(given.name, to=given.to, keys=keys, map=given.map, dry_run=dry_run, **said)
    found = await calling.within(f"migration of {given.name}", work)
    if found is None:
        raise HttpProblem(409, "still-working", "the migration goes on: ask later what is left", retry_after=5)
    calling.subjects.add(given.name)
    if calling.shows_values and not calling.settings.redact:
        return found
    places = [replace(each, why=f"{each.why.partition(': ')[0]}: it does not fit") for each in found.left]
    return replace(found, left=places)  # the errors of expressions repeat recorded values


class SimulateParams(msgspec.Struct, frozen=True):
    """`stubs` has results by patterns of locations; actions without one give null or fail, by the dice of `seed`."""

    text: str
    input: dict[str, Any] = {}
    stubs: dict[str, Any] = {}
    runs: int = 20
    seed: int = 0


class SimulatedDefinition(msgspec.Struct, frozen=True):
    """How often the runs ended in which way, and what no run came to. The rest is of crashes."""

    runs: int
    verdicts: dict[str, int]
    unreached_steps: list[str]
    unreached_arcs: list[str]
    unreached_rules: list[str]
    finding: str = ""
    crashes: int = 0


async def simulate(calling: Calling, given: SimulateParams) -> SimulatedDefinition:
    """In a process of its own, which is killed when it takes too long: a simulated world replaces clock and tools."""
    kind = kind_of_text(given.text)
    if not kind.simulate:
        raise HttpProblem(422, "bad-request", f"a {kind.noun} is not simulated", where="/text")
    if not 1 <= given.runs <= RUNS_MAX:
        raise HttpProblem(422, "bad-request", f"runs is 1 to {RUNS_MAX}, found {given.runs}", where="/runs")
    await asyncio.to_thread(_valid, kind, given.text)
    found = await calling.within("simulation", _simulated(kind, given))
    if found is None:
        raise HttpProblem(409, "too-broad", "the runs did not end in time; ask for fewer of them")
    return found


async def _simulated(kind: FileKind, given: SimulateParams) -> SimulatedDefinition:
    with TemporaryDirectory() as folder:
        files = {name: Path(folder, name) for name in ("definition.yaml", "input.json", "stubs.json")}
        texts = given.text, msgspec.json.encode(given.input).decode(), msgspec.json.encode(given.stubs).decode()
        for file, text in zip(files.values(), texts, strict=True):
            file.write_text(text, encoding="utf-8")
        said = ["--runs", str(given.runs), "--seed", str(given.seed)]
        said += ["--input", f"@{files['input.json']}", "--stubs", f"@{files['stubs.json']}", "--json"]
        out = await _told(folder, *kind.simulate, str(files["definition.yaml"]), *said)
    return msgspec.json.decode(out, type=SimulatedDefinition)


async def _told(folder: str, *command: str) -> bytes:
    """What a command of `perdure` tells as JSON of files in a folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "perdure", *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(SIMULATE_SECONDS):
            out, error = await process.communicate()
    except TimeoutError:
        text = f"the runs did not end within {SIMULATE_SECONDS:g} s; ask for fewer of them"
        raise HttpProblem(409, "too-broad", text) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise HttpProblem(422, "bad-request", error.decode(errors="replace").replace(f"{folder}/", "")[:2000])
    return out


class DialectName(msgspec.Struct, frozen=True):
    dialect: str


class SchemaAnswer(msgspec.Struct, frozen=True):
    """The JSON Schema of a definition: its fields and kinds of steps. `check` says what they mean together."""

    dialect: str
    schema: dict[str, Any]


async def schema(calling: Calling, given: DialectName) -> SchemaAnswer:
    if given.dialect not in SCHEMAS:
        raise HttpProblem(404, "not-found", no_such("schema", given.dialect, SCHEMAS))
    return SchemaAnswer(given.dialect, await asyncio.to_thread(SCHEMAS[given.dialect]))


class FunctionItem(msgspec.Struct, frozen=True):
    """A function of expressions: the kind of value that it gives, and what it does."""

    name: str
    gives: str
    text: str


class FunctionList(msgspec.Struct, frozen=True):
    functions: list[FunctionItem]


async def functions(calling: Calling, given: Nothing) -> FunctionList:
    """Functions of users are not among them."""
    return FunctionList([FunctionItem(*each) for each in described()])


def _valid(kind: Any, text: str) -> Any:
    found = kind.of_text(text)
    if hasattr(found, "require_valid"):
        found.require_valid()
    return found
