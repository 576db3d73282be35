"""Every key of every place, and how durations and guards are spelled. The reference prints `KEYS`."""

from __future__ import annotations

import re
import shlex
from math import inf
from typing import Any, Final

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
WORKFLOW: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}")
VERSIONS: Final = ("perdure/v1",)
V10: Final = ("noetl.io/v2", "noetl.io/v10")

KEYS: Final[dict[str, dict[str, str]]] = {
    "root": {
        "apiVersion": "`perdure/v1`; `noetl.io/v2` and `noetl.io/v10` are v10 mode",
        "kind": "`Playbook`",
        "metadata": "what people read, and the name",
        "keychain": "names of secrets, by entry and field",
        "executor": "settings of the whole playbook",
        "workload": "the input, with its defaults",
        "workbook": "actions and pipelines that steps use by name",
        "workflow": "the list of steps",
    },
    "metadata": {
        "name": "the name of the workflow",
        "path": "the same; `/` becomes `.`",
        "description": "",
        "version": "",
        "tags": "",
        "labels": "",
    },
    "keychain": {"name": "the name of the entry", "map": "fields to names of secrets"},
    "executor": {
        "spec": "see executor.spec",
        "requires": "`tools`: kinds that must be installed",
        "profile": "no meaning here",
        "version": "no meaning here",
    },
    "executor.spec": {
        "entry_step": "the step that gets the first token; the first of the list if left out",
        "final_step": "a step that runs once at the end",
        "final_on": "the verdicts after which the final step runs",
        "final_failure": "what a failure of the final step makes of the instance: `fail` or `partial`",
        "no_next_is_error": "whether a run whose arcs all do not match fails",
        "status": "`fail_on_unhandled`, `fail_fast` or `best_effort`",
        "pending_at_end": "what happens when only pending tokens are left: `wait`, `discard` or `fail`",
        "arc_default": "after which end an arc without `on` and `when` is followed: `done`, `failed` or `any`",
        "join_default": "`all`: a step with several arcs to it joins",
        "on_template_error": "`fail`, or `false`: a guard that cannot be evaluated is false",
        "ctx": "the keys of ctx",
        "result": "the result of the instance",
        "timeout": "how long the instance may take",
        "queue": "the queue that performs the tools",
        "limits": "see limits",
    },
    "limits": {
        "max_tokens": "tokens alive",
        "max_firings": "runs of steps",
        "max_jumps": "jumps of a pipeline",
        "max_iterations": "iterations of a loop",
        "max_payload_bytes": "of a value that an expression makes, before it is stored by reference",
        "max_result_bytes": "of the result of a tool",
    },
    "ctx": {
        "init": "the first value",
        "patch": "whether a message may change it",
        "reduce": "how parallel writes become one: `sum min max append merge last first`",
    },
    "step": {
        "step": "the name",
        "desc": "what people read",
        "spec": "see step.spec",
        "args": "further args, made as the run begins",
        "join": "`all`, `any`, a number, or a map",
        "loop": "see loop",
        "tool": "an action or a list of actions",
        "set": "ctx keys, set at the end of the run",
        "next": "see next",
    },
    "step.spec": {"policy": "see policy", "timeout": "of each attempt", "queue": "the queue that performs its tools"},
    "policy": {"admit": "see admit", "lifecycle": "see lifecycle", "failure": "the failure policy of its loop"},
    "lifecycle": {"timeout_s": "how long a run may take", "deadline_s": "how long a token may live"},
    "admit": {
        "rules": "the first rule that matches decides",
        "on_deny": "`pending`, `discard` or `fail`",
        "timeout": "how long a token may be pending",
        "on_timeout": "`discard`, `fail` or `admit`",
    },
    "admit.rule": {"when": "the guard", "then": "`{allow: true}` or `{allow: false}`", "else": "`{then}`, last"},
    "admit.then": {"allow": "whether the token is admitted"},
    "loop": {
        "in": "a list, a map, a number or a reference",
        "iterator": "the name of the item",
        "spec": "see loop.spec",
    },
    "loop.spec": {
        "mode": "`sequential` or `parallel`",
        "max_in_flight": "iterations open at once",
        "collect": "the result: `list`, `last` or `none`",
        "policy": "`exec`: `local` or `distributed`; `failure`: `fail_fast` or `best_effort`",
    },
    "loop.policy": {"exec": "where iterations run", "failure": "what one failure does to the rest"},
    "join": {
        "mode": "`all`, `any` or `number`",
        "of": "how many",
        "timeout": "how long the first waits for the others",
        "on_short": "`fail` or `run`",
        "cancel_rest": "whether the other tokens of the generation are withdrawn",
    },
    "action": {
        "name": "the label",
        "kind": "what it does",
        "args": "a map for the kind",
        "auth": "a connection, or credentials",
        "when": "a guard; false: the action is skipped",
        "set": "ctx and iter keys, after an attempt that is ok",
        "spec": "see action.spec",
    },
    "action.spec": {
        "timeout": "of one attempt, in seconds; 60",
        "queue": "the queue that performs it",
        "once": "never performed a second time after a crash",
        "policy": "see action.policy",
        "result": "see action.result",
    },
    "action.policy": {
        "rules": "the first rule that matches decides",
        "on_unmatched": "what happens without a match: `continue` or `fail`",
    },
    "action.result": {
        "select": "fields of a large result that stay readable",
        "inline_max_bytes": "above it a result is stored by reference",
    },
    "rule": {"when": "the guard", "then": "see then", "else": "`{then}`, last"},
    "then": {
        "do": "`continue retry jump break fail skip`",
        "set": "ctx and iter keys",
        "set_ctx": "ctx keys",
        "set_iter": "iter keys",
        "attempts": "executions in all; 3",
        "backoff": "`none`, `linear` or `exponential`",
        "delay": "seconds before the next attempt; 1",
        "max_delay": "seconds at most; 300",
        "jitter": "0 to 1",
        "retry_after": "whether the server's wish counts; true",
        "to": "a label of the step, or `previous`",
        "error": "the error of a `fail`: a text or a map",
    },
    "next": {"spec": "see next.spec", "arcs": "the list of arcs"},
    "next.spec": {"mode": "`exclusive` or `inclusive`", "on_no_match": "`complete` or `fail`"},
    "arc": {
        "step": "the target",
        "when": "the guard",
        "on": "`done`, `failed` or `any`",
        "args": "args of the token",
        "set": "ctx keys",
        "spec": "`inherit`: whether the args of the run are kept; true",
    },
    "arc.spec": {"inherit": "whether the args of the run are kept"},
}

REMOVED: Final[dict[str, dict[str, str]]] = {
    "root": {"vars": "use workload, or executor.spec.ctx"},
    "step": {
        "when": "use spec.policy.admit",
        "case": "use next with arcs",
        "type": "use kind, under tool",
        "retry": "use spec.policy.rules of the action, with do: retry",
        "sink": "make it an action of the pipeline",
        "do": "use a rule, under spec.policy of the action",
    },
    "action": {"eval": "use spec.policy.rules", "expr": "use when"},
    "rule": {"eval": "use when", "expr": "use when"},
    "arc": {"eval": "use when", "expr": "use when"},
}

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?")
_ISO: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
CENTURY: Final = 100 * 365.25 * 86400
_UNITS: Final = {None: 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(value: Any) -> float | None:
    """A duration as seconds; None if it is none. `30s 5m 2h 1d`, a number, or ISO 8601. What is longer is a century."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(min(value, CENTURY)) if 0 <= value < inf else None
    if not isinstance(value, str):
        return None
    if found := _DURATION.fullmatch(value.strip()):
        return min(float(found[1]) * _UNITS[found[2]], CENTURY)
    iso = _ISO.fullmatch(value.strip())
    if iso is None or not any(iso.groups()):
        return None
    days, hours, minutes, rest = (float(part or 0) for part in iso.groups())
    return min(days * 86400 + hours * 3600 + minutes * 60 + rest, CENTURY)


def spelled(duration: Any) -> Any:
    """The one spelling of a duration, `1d` or `90`: how it was spelled makes no version. A template stays."""
    found = seconds(duration)
    if found is None:
        return duration
    if found:
        for unit, size in reversed(_UNITS.items()):
            if size >= 60 and found % size == 0:
                return f"{int(found // size)}{unit}"
    return int(found) if found.is_integer() else found


def bare(guard: Any) -> Any:
    """A guard without braces around it: both spellings are one version."""
    if not isinstance(guard, str):
        return guard
    text = guard.strip()
    inner = text[2:-2]
    if text.startswith("{{") and text.endswith("}}") and "{{" not in inner and "}}" not in inner:
        return inner.strip("-+ \n\t")
    return text


_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


def words(text: str) -> list[str]:
    """A command as its words. A template stays in one word, whatever it renders to: no data can add an argument."""
    templates: list[str] = []

    def hold(found: re.Match[str]) -> str:
        templates.append(found[0])
        return f"\x00{len(templates) - 1}\x00"

    held = _TEMPLATE.sub(hold, text)
    try:
        split = shlex.split(held)
    except ValueError:
        split = [held]
    return [re.sub(r"\x00(\d+)\x00", lambda found: templates[int(found[1])], word) for word in split]
