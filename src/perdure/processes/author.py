"""What an author writes: frozen constructors that hold what they were given. Nothing runs, nothing is registered.

A constructor keeps its caller's file and line, for messages only. `Process` (`process.py`) normalises the whole value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, NoReturn

from perdure.codec import encode
from perdure.errors import BadProcess
from perdure.kernel.backoff import Backoff
from perdure.tasks.model import Escalation, Quorum

from . import fields, model
from .fields import Document, Lifted, Reader

_HERE = os.path.dirname(__file__)

Steps = Sequence["Step"]
Join = Literal["all", "any"] | int
Span = timedelta | str
"""A length of time; text as ISO 8601: PT30S, P2D."""


class Part:
    """A frozen part of a definition. Two parts are equal if they mean the same; where they stand does not count."""

    __slots__ = ("document",)
    document: Document
    kind: ClassVar[str] = ""

    def _keep(self, **fields: Any) -> None:
        object.__setattr__(self, "document", Document(self.kind, fields, caller()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}(...) is frozen: make another one")

    @property
    def data(self) -> dict[str, Any]:
        """The plain data of this part. Raises `BadProcess` if it has problems."""
        reader = Reader()
        found: dict[str, Any] = self._read(reader)
        if reader.problems:
            raise BadProcess("a part of a process", tuple(reader.problems))
        return found

    def _read(self, reader: Reader) -> Any:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and encode(self.data) == encode(other.data)

    def __hash__(self) -> int:
        return hash(encode(self.data))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.document.where}>"


class Step(Part):
    """A step of a process."""

    __slots__ = ()

    def _read(self, reader: Reader) -> Any:
        return model.read_step(reader, self, ())


class Set(Step):
    """Write a value to the state, at a dotted key. With `if_value` null is not written."""

    kind = "set"

    def __init__(self, key: str, value: Any, if_value: bool = False) -> None:
        self._keep(key=key, value=Lifted(value), if_value=if_value)


class SetReference(Step):
    """Change the reference of the instance, and so of the tasks that it opens from now on."""

    kind = "set_reference"

    def __init__(self, key: Any, /, **parts: Any) -> None:
        self._keep(key=Lifted(key), parts={name: Lifted(part) for name, part in parts.items()})


class Activate(Step):
    """Open a task and wait until it is completed. Then `payload` is the answer, and the next step follows."""

    kind = "activate"

    def __init__(self, task: str, on_timeout: Steps | None = None, on_cancel: Steps | None = None) -> None:
        self._keep(task=task, on_timeout=on_timeout, on_cancel=on_cancel)


class Call(Step):
    """Ask a transport to do something. It is journaled before it is sent; its value goes to `result`."""

    kind = "call"

    def __init__(
        self,
        name: str,
        address: Mapping[str, Any],
        payload: Any = None,
        *,
        result: str | None = None,
        returns: Any = None,
        retries: int = 3,
        backoff: Backoff | None = None,
        retry_if: Any = None,
        retry_on_timeout: bool = False,
        timeout: Span = timedelta(hours=1),
        attempt_timeout: Span = timedelta(seconds=30),
        once: bool = False,
        on_failure: Steps | None = None,
        on_timeout: Steps | None = None,
        on_unknown: Steps | None = None,
        undo: Steps | None = None,
    ) -> None:
        self._keep(
            name=name,
            address=address,
            payload=Lifted(payload),
            result=result,
            returns=returns,
            retries=retries,
            backoff=backoff,
            retry_if=_lifted(retry_if),
            retry_on_timeout=retry_on_timeout,
            timeout=timeout,
            attempt_timeout=attempt_timeout,
            once=once,
            on_failure=on_failure,
            on_timeout=on_timeout,
            on_unknown=on_unknown,
            undo=undo,
        )


class Decide(Step):
    """Run `then` if the condition is true, else `otherwise`."""

    kind = "decide"

    def __init__(self, name: str, condition: Any, then: Steps, otherwise: Steps = ()) -> None:
        self._keep(name=name, condition=Lifted(condition), then=then, otherwise=otherwise)


class Choose(Step):
    """Run the first case whose condition is true: `{label: (condition, steps)}`."""

    kind = "choose"

    def __init__(self, name: str, cases: Mapping[str, tuple[Any, Steps]], otherwise: Steps = ()) -> None:
        self._keep(name=name, cases=[_case(*each) for each in cases.items()], otherwise=otherwise)


class Repeat(Step):
    """Run the steps once for each element, so many times, while or until something is true."""

    kind = "repeat"

    def __init__(
        self,
        name: str,
        steps: Steps,
        *,
        over: Any = None,
        times: Any = None,
        while_: Any = None,
        until: Any = None,
        limit: int | None = None,
        as_: str | None = None,
        collect: Any = None,
        at_once: int = 1,
        join: Join = "all",
    ) -> None:
        loop = {"over": over, "times": times, "while": while_, "until": until, "collect": collect}
        self._keep(
            name=name,
            steps=steps,
            limit=limit,
            at_once=at_once,
            join=join,
            **{"as": as_},
            **{key: _lifted(value) for key, value in loop.items()},
        )


class Parallel(Step):
    """Run branches side by side until the join is met: all of them, any, or so many."""

    kind = "parallel"

    def __init__(
        self,
        name: str,
        branches: Mapping[str, Steps],
        *,
        join: Join = "all",
        on_error: Literal["cancel", "wait"] = "cancel",
        on_failure: Steps | None = None,
    ) -> None:
        self._keep(name=name, branches=branches, join=join, on_error=on_error, on_failure=on_failure)


class Timer(Step):
    """Wait for a duration, or until a time."""

    kind = "timer"

    def __init__(self, name: str, *, after: Any = None, at: datetime | Any = None) -> None:
        self._keep(name=name, after=_lifted(after), at=_lifted(at))


class Receive(Step):
    """Take the oldest message of a name that satisfies `match`, or wait for one."""

    kind = "receive"

    def __init__(
        self,
        name: str,
        message: str,
        *,
        result: str | None = None,
        schema: Any = None,
        match: Any = None,
        timeout: Span | None = None,
        on_timeout: Steps | None = None,
    ) -> None:
        self._keep(
            name=name,
            message=message,
            result=result,
            schema=schema,
            match=_lifted(match),
            timeout=timeout,
            on_timeout=on_timeout,
        )


class SubProcess(Step):
    """Start a workflow of any dialect as a child and wait for its output."""

    kind = "subprocess"

    def __init__(
        self,
        name: str,
        workflow: Any,
        input: Any = None,
        *,
        version: str | None = None,
        result: str | None = None,
        timeout: Span | None = None,
        on_failure: Steps | None = None,
        on_timeout: Steps | None = None,
        undo: Steps | None = None,
    ) -> None:
        self._keep(
            name=name,
            workflow=workflow,
            input=Lifted(input),
            version=version,
            result=result,
            timeout=timeout,
            on_failure=on_failure,
            on_timeout=on_timeout,
            undo=undo,
        )


class ContinueWith(Step):
    """Start an independent instance exactly once, and go on."""

    kind = "continue_with"

    def __init__(
        self,
        name: str,
        workflow: Any,
        input: Any = None,
        *,
        version: str | None = None,
        key: Any = None,
        on_failure: Steps | None = None,
    ) -> None:
        self._keep(
            name=name, workflow=workflow, input=Lifted(input), version=version, key=_lifted(key), on_failure=on_failure
        )


class Complete(Step):
    """End the process as completed, with this output. What is open is dropped."""

    kind = "complete"

    def __init__(self, output: Any = None) -> None:
        self._keep(output=Lifted(output))


class Fail(Step):
    """Undo what was done, and end the process as failed."""

    kind = "fail"

    def __init__(self, code: str, message: Any = "") -> None:
        self._keep(code=code, message=Lifted(message))


class Reference(Part):
    """By what people know an instance: a key and further parts, each an expression."""

    kind = "reference"

    def __init__(self, key: Any, /, **parts: Any) -> None:
        self._keep(key=Lifted(key), parts={name: Lifted(part) for name, part in parts.items()})

    def _read(self, reader: Reader) -> Any:
        return fields.reference(reader, self, ())


class Task(Part):
    """The declaration of a task; `Activate` opens it. All but name, answer, outcome and quorum may be expressions."""

    kind = "task"

    def __init__(
        self,
        name: str,
        *,
        answer: Any = None,
        outcome: str = "outcome",
        title: Any = None,
        description: Any = None,
        data: Any = None,
        roles: Any = None,
        users: Any = None,
        managers: Any = None,
        assignee: Any = None,
        exclude: Any = None,
        priority: Any = None,
        labels: Any = None,
        due: Any = None,
        expire: Any = None,
        escalate: Iterable[Escalation] = (),
        quorum: Quorum | None = None,
    ) -> None:
        computed = {
            "title": title,
            "description": description,
            "data": data,
            "roles": roles,
            "users": users,
            "managers": managers,
            "assignee": assignee,
            "exclude": exclude,
            "priority": priority,
            "labels": labels,
            "due": due,
            "expire": expire,
        }
        lifted = {key: _lifted(value) for key, value in computed.items()}
        self._keep(name=name, answer=answer, outcome=outcome, escalate=list(escalate), quorum=quorum, **lifted)

    def _read(self, reader: Reader) -> Any:
        return model.read_task(reader, self, ())


# ---- addresses -----------------------------------------------------------------------------------------------------


def python(place: str) -> dict[str, Any]:
    """A function with `@perdure.step`, as `module:function`. The keys of the payload are its arguments."""
    return {"python": place}


def queue(name: str, place: str) -> dict[str, Any]:
    """The same, performed by the workers of a queue."""
    return {"queue": [name, place]}


def service(name: str, command: str) -> dict[str, Any]:
    """A command of a service; the function with `@transport(name)` performs it."""
    return {"service": [name, command]}


def http(method: str, url: Any, headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A request. The payload is sent as JSON, and the value is the decoded body."""
    lifted = {name: Lifted(value) for name, value in (headers or {}).items()}
    return {"http": {"method": method, "url": Lifted(url), "headers": lifted}}


def _case(label: str, case: Any) -> Any:
    if not isinstance(case, tuple | list) or len(case) != 2:
        return case
    return {"label": label, "condition": Lifted(case[0]), "steps": case[1]}


def _lifted(value: Any) -> Lifted | None:
    return None if value is None else Lifted(value)


def caller() -> str:
    """The file and line of the author's code."""
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == _HERE:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
