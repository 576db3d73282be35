"""The fields of one action, rendered without an instance: what `perdure playbooks render` shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from perdure.errors import CallerError, ExpressionError
from perdure.expressions import SecretText

from .loops import item_of, items_of, iteration
from .machine import merged
from .scope import ActionCode, Fixed, StepCode
from .values import Fault
from .workflow import PlaybookWorkflow

SEED: Final = bytes(64)


def rendered(
    workflow: PlaybookWorkflow, action: str, input: Mapping[str, Any], more: Mapping[str, Any], now: datetime
) -> Any:
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
        "results": more.get("results", {}),
        "_prev": more.get("prev"),
        "_attempt": 1,
        "instance": {"id": 0, "key": "", "playbook": playbook.name, "version": workflow.version, "started_at": ""},
        "token": {"id": 1, "from": None},
        "data": playbook.data,
    }
    roots["iter"] = {**_first(compiler.step(name), roots, now), **more.get("iter", {})}
    return {each.action.label: _fields(each, roots, now) for each in codes}


def _first(code: StepCode, roots: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The first iteration of a loop, where its list is known without an instance."""
    if code.step.loop is None or code.items is None:
        return {}
    try:
        given = code.items.value if isinstance(code.items, Fixed) else code.items.evaluate(roots, now=now, entropy=SEED)
        items, total = items_of(given)
    except (ExpressionError, Fault):
        return {}
    return iteration(code.step.loop.iterator, item_of(items, 0), 0, total) if total else {}


def _fields(code: ActionCode, roots: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    beside = {"args": code.args, "auth": code.auth}
    given = {**code.fields, **{key: each for key, each in beside.items() if each is not None}}
    return {key: _shown(each, roots, now) for key, each in given.items()}


def _shown(code: Any, roots: Mapping[str, Any], now: datetime) -> Any:
    if isinstance(code, Fixed):
        return code.value
    try:
        return _named(code.evaluate(roots, now=now, entropy=SEED))
    except ExpressionError as error:
        return f"! {error.text.strip()}: {error.reason}"


def _named(value: Any) -> Any:
    """Secrets by their names."""
    if isinstance(value, SecretText):
        return "".join(part if isinstance(part, str) else f"<secret {part.name}>" for part in value.parts)
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list) else value
