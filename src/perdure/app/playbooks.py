"""Playbooks from files: the text, and the tools that are installed here; and what people do with a file offline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from perdure.errors import CallerError, ExpressionError
from perdure.expressions import SecretText
from perdure.playbooks.author import PlaybookWorkflow, from_text
from perdure.playbooks.document import document
from perdure.playbooks.kinds import Kind, tool_kinds
from perdure.playbooks.machine import merged
from perdure.playbooks.scope import Fixed
from perdure.tools import described


@cache
def installed() -> dict[str, Kind]:
    """The kinds of the tools that are installed."""
    return tool_kinds(described())


def load_playbook(source: str | os.PathLike[str]) -> PlaybookWorkflow:
    """A playbook from a file, or from a text with more than one line. Raises `BadPlaybook` with all problems."""
    if isinstance(source, str) and "\n" in source:
        return from_text(source, "<text>", installed())
    return from_text(text_of(source), str(source), installed())


def text_of(file: str | os.PathLike[str]) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise CallerError(f"the playbook {os.fspath(file)} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CallerError(f"the playbook {os.fspath(file)} is not UTF-8") from None


def formatted(workflow: PlaybookWorkflow) -> str:
    """The playbook in its one canonical form, as YAML."""
    import io

    from ruamel.yaml import YAML

    yaml: Any = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = 4096
    out = io.StringIO()
    yaml.dump(document(workflow.definition.playbook), out)
    return out.getvalue()


def rendered(workflow: PlaybookWorkflow, action: str, input: Mapping[str, Any], more: Mapping[str, Any]) -> Any:
    """The fields of an action, `STEP/LABEL`, as they would be recorded. `more` has further roots, such as ctx."""
    name, _, label = action.partition("/")
    playbook, compiler = workflow.definition.playbook, workflow.compiler
    steps = [step.name for step in playbook.steps]
    if name not in steps:
        raise CallerError(f"there is no step {name}; there are {', '.join(steps)}")
    codes = [each for each in compiler.step(name).actions if label in ("", each.action.label)]
    if not codes:
        labels = ", ".join(each.action.label for each in compiler.step(name).actions) or "none"
        raise CallerError(f"the step {name} has no action {label or 'at all'}; it has {labels}")
    ctx = {key: each.init for key, each in playbook.settings.ctx.items()}
    roots = {
        "workload": merged(playbook.workload, dict(input)),
        "ctx": merged(ctx, more.get("ctx", {})),
        "args": more.get("args", {}),
        "steps": merged(dict.fromkeys(steps), more.get("steps", {})),
        "_steps": {step: (more.get("steps", {}).get(step) or {}).get("result") for step in steps},
        "iter": more.get("iter", {}),
        "results": more.get("results", {}),
        "_prev": more.get("prev"),
        "_attempt": 1,
        "instance": {"id": 0, "key": "", "playbook": playbook.name, "version": workflow.version, "started_at": ""},
        "token": {"id": 1, "from": None},
        "data": playbook.data,
    }
    return {each.action.label: {key: _shown(code, roots) for key, code in each.fields.items()} for each in codes}


def _shown(code: Any, roots: Mapping[str, Any]) -> Any:
    if isinstance(code, Fixed):
        return code.value
    try:
        return _named(code.evaluate(roots, now=datetime.now(UTC), entropy=bytes(64)))
    except ExpressionError as error:
        return f"! {error.text.strip()}: {error.reason}"


def _named(value: Any) -> Any:
    """Secrets by their names."""
    if isinstance(value, SecretText):
        return "".join(part if isinstance(part, str) else f"<secret {part.name}>" for part in value.parts)
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list) else value
