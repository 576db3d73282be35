"""What a verb would do to an instance, in sentences. Nothing is recorded; what would be refused is raised."""

from __future__ import annotations

from typing import Any

from perdure.codec import to_plain
from perdure.errors import CallerError, InstanceEnded, NotStuck, UnknownLocation
from perdure.kernel.location import is_sleep
from perdure.kernel.policy import Verb
from perdure.kernel.status import Status, ended
from perdure.ports.seen import Waiting

from .handle import Handle
from .history import Reader


async def foresee(handle: Handle[Any], verb: str, params: dict[str, Any]) -> list[str]:
    """`params` are those of the verb in the table of verbs, without the id."""
    reader = await handle._read()
    location = params.get("location", "")
    match verb:
        case "cancel":
            return await _cancel(handle, reader, undo=bool(params.get("undo")))
        case "retry":
            return await _retry(handle, reader)
        case "settle":
            answer = params.get("as", "ok")
            await handle._check_settle(location, to_plain(params.get("value")), ok=answer == "ok")
            return [f"answer {location} with {answer}", f"go on after {location}"]
        case "rewind":
            dropped = await handle.rewind(location, force=bool(params.get("force")), dry_run=True)
            return [f"drop {each} and do it again" for each in dropped]
        case "fork":
            await handle._fork(location, params.get("edit") or {}, params.get("key"), {})
            edits = [f"with another value for {each}" for each in params.get("edit") or {}]
            return [f"start another instance that goes on at {location}", *edits]
        case "wake":
            return await _wake(handle, reader, location)
        case "send":
            await _live(handle, reader, "send")
            return [f"send the message {params.get('name', '')}"]
        case "tag":
            await _live(handle, reader, "cancel")
            name, value = params.get("name", ""), params.get("value")
            return [f"remove the tag {name}" if value is None else f"set the tag {name} to {value}"]
        case _:
            raise CallerError(f"no dry run knows the verb {verb!r}")


async def _live(handle: Handle[Any], reader: Reader, verb: Verb) -> None:
    await handle._refuse(verb)
    if reader.state.ended:
        raise InstanceEnded(f"{handle.id} {ended(reader.state.status)} and takes no {verb}")


async def _cancel(handle: Handle[Any], reader: Reader, undo: bool) -> list[str]:
    if reader.state.status == Status.CANCELLED:
        return ["nothing: it was cancelled before"]
    await _live(handle, reader, "cancel")
    open = [f"end the {_word(each)} {each.location}" for each in reader.waiting()]
    return [*open, *(["undo what was done, the last first"] if undo else []), "end the instance as cancelled"]


def _word(open: Waiting) -> str:
    return "step" if open.kind == "call" else open.kind


async def _retry(handle: Handle[Any], reader: Reader) -> list[str]:
    state = reader.state
    if state.stuck is not None:
        return [f"go on at {state.stuck.location}" if state.stuck.location else "deliver the same event again"]
    if state.status != Status.FAILED:
        raise NotStuck(f"{handle.id} is {state.status}, not stuck: a retry is for what is stuck or has failed")
    await handle._refuse("retry")
    again = state.outcome.again if state.outcome is not None else ()
    return [f"do {each} again" for each in again] or ["do again what failed"]


async def _wake(handle: Handle[Any], reader: Reader, location: str) -> list[str]:
    await _live(handle, reader, "wake")
    sleeps = [each.location for each in reader.waiting() if each.kind == "timer" and is_sleep(each.location)]
    found = [each for each in sleeps if not location or each == location]
    if not found:
        raise UnknownLocation(f"{handle.id} does not sleep{f' at {location!r}' if location else ''}")
    return [f"end the sleep {each}" for each in found]
