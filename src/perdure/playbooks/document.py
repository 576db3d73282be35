"""The model back as a document of `perdure/v1`: what `perdure playbooks fmt` writes."""

from __future__ import annotations

import io
from typing import Any

import msgspec

from .model import Action, Admit, Arc, CtxKey, Join, Limits, Loop, Next, Playbook, Rule, Settings, Step


def formatted(playbook: Playbook) -> str:
    """The playbook in its one canonical form, as YAML."""
    from ruamel.yaml import YAML

    yaml: Any = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = 4096
    out = io.StringIO()
    yaml.dump(document(playbook), out)
    return out.getvalue()


def document(playbook: Playbook) -> dict[str, Any]:
    """Plain data in the order in which people read it. Read again, it is the same model."""
    made: dict[str, Any] = {
        "apiVersion": "perdure/v1",
        "kind": "Playbook",
        "metadata": {"name": playbook.name, **playbook.metadata},
    }
    if playbook.keychain:
        made["keychain"] = [{"name": name, "map": dict(fields)} for name, fields in playbook.keychain.items()]
    spec = _settings(playbook.settings)
    executor = _filled(spec=spec, requires={"tools": list(playbook.requires)} if playbook.requires else None)
    if executor:
        made["executor"] = executor
    if playbook.workload:
        made["workload"] = playbook.workload
    if playbook.workbook:
        made["workbook"] = {name: _tool(actions, name) for name, actions in playbook.workbook.items()}
    made["workflow"] = [_step(step) for step in playbook.steps]
    return made


def _filled(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value not in (None, {}, [], "", ())}


def _differs(value: Any, kind: type[msgspec.Struct], *names: str) -> dict[str, Any]:
    """The fields of a struct that are not at their default."""
    defaults = dict(zip(kind.__struct_fields__[::-1], kind.__struct_defaults__[::-1], strict=False))
    found = {name: getattr(value, name) for name in names}
    return {name: item for name, item in found.items() if item != defaults.get(name) and item not in ({}, ())}


def _settings(settings: Settings) -> dict[str, Any]:
    names = [name for name in Settings.__struct_fields__ if name not in ("ctx", "limits", "final_on")]
    spec = _differs(settings, Settings, *names)
    if settings.final_on != Settings().final_on:
        spec["final_on"] = list(settings.final_on)
    if settings.ctx:
        spec["ctx"] = {key: _differs(each, CtxKey, "init", "patch", "reduce") for key, each in settings.ctx.items()}
    limits = _differs(settings.limits, Limits, *Limits.__struct_fields__)
    return {**spec, **({"limits": limits} if limits else {})}


def _step(step: Step) -> dict[str, Any]:
    lifecycle = _filled(timeout_s=step.timeout_s, deadline_s=step.deadline_s)
    policy = _filled(admit=None if step.admit is None else _admit(step.admit), lifecycle=lifecycle)
    return {
        "step": step.name,
        **_filled(
            desc=step.desc,
            spec=_filled(policy=policy, timeout=step.timeout, queue=step.queue),
            args=step.args,
            join=None if step.join is None else _join(step.join),
            loop=None if step.loop is None else _loop(step.loop),
            tool=_tool(step.actions, step.name),
            set=step.set,
            next=None if step.next is None else _next(step.next),
        ),
    }


def _admit(admit: Admit) -> dict[str, Any]:
    rules = [
        {"else": {"then": {"allow": rule.allow}}}
        if rule.when is None
        else {"when": rule.when, "then": {"allow": rule.allow}}
        for rule in admit.rules
    ]
    return {"rules": rules, **_differs(admit, Admit, "on_deny", "timeout", "on_timeout")}


def _join(join: Join) -> Any:
    rest = _differs(join, Join, "timeout", "on_short", "cancel_rest")
    if not rest:
        return join.of if join.mode == "number" else join.mode
    return {"mode": join.mode, **({"of": join.of} if join.mode == "number" else {}), **rest}


def _loop(loop: Loop) -> dict[str, Any]:
    spec = _differs(loop, Loop, "mode", "max_in_flight", "collect")
    if loop.failure != "fail_fast":
        spec["policy"] = {"failure": loop.failure}
    return {"in": loop.items, "iterator": loop.iterator, **({"spec": spec} if spec else {})}


def _next(router: Next) -> Any:
    arcs = [_arc(arc) for arc in router.arcs]
    spec = _differs(router, Next, "mode", "on_no_match")
    if not spec and len(arcs) == 1 and arcs[0].keys() == {"step"}:
        return arcs[0]["step"]
    return {**({"spec": spec} if spec else {}), "arcs": arcs}


def _arc(arc: Arc) -> dict[str, Any]:
    spec = {} if arc.inherit else {"inherit": False}
    return {"step": arc.step, **_filled(on=arc.on, when=arc.when, args=arc.args, set=arc.set, spec=spec)}


def _tool(actions: tuple[Action, ...], owner: str) -> Any:
    if len(actions) == 1 and actions[0].label == f"{owner}_task":
        return _action(actions[0], "")
    return [_action(action, f"task_{index}") for index, action in enumerate(actions)] or None


def _action(action: Action, label: str) -> dict[str, Any]:
    result = _differs(action, Action, "select", "inline_max_bytes")
    policy = _filled(rules=[_rule(rule) for rule in action.rules])
    if action.on_unmatched != "default":
        policy["on_unmatched"] = action.on_unmatched
    spec = _filled(timeout=action.timeout, queue=action.queue, policy=policy, result=result)
    if action.once:
        spec["once"] = True
    named = {"name": action.label} if label and action.label != label else {}
    when = {} if action.when is True else {"when": action.when}
    return {
        **named,
        "kind": action.kind,
        **when,
        **action.fields,
        **_filled(args=action.args, auth=action.auth, set=action.set, spec=spec),
    }


def _rule(rule: Rule) -> dict[str, Any]:
    names = ("set", "attempts", "backoff", "delay", "max_delay", "jitter", "retry_after", "to", "error")
    then = {"do": rule.do, **_differs(rule, Rule, *names)}
    return {"else": {"then": then}} if rule.when is None else {"when": rule.when, "then": then}
