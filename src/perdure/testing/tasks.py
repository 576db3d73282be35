"""The tasks of a world: the verbs of `engine.tasks`, without `await`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure.codec import decode
from perdure.errors import NotAnswered, NotYet
from perdure.kernel.rows import response_name
from perdure.runtime.arguments import Said
from perdure.runtime.handle import Handle
from perdure.runtime.tasks import Acting, Tasks

from .disks import at_once

if TYPE_CHECKING:
    from .world import WorldConnection


class TasksOfWorld(Tasks):
    def __init__(self, connection: WorldConnection) -> None:
        super().__init__(connection)
        self._world = connection

    async def _ask(self, handle: Handle[Any], verb: str, arguments: dict[str, Any], acting: Acting, said: Said) -> Any:
        id = said["id"] = said.get("id") or self._world.message_id()
        await handle.send(verb, arguments, **said)
        instance = await handle._id()
        value = await self._world.response(instance, response_name(id))
        if value is not None:
            return decode(value)
        row = await self._world.queries.task(instance)
        if row is not None and row.ended_at < self._world.now_at():
            raise NotAnswered(f"task {instance} has ended without an answer to {verb!r}")
        raise NotYet(f"task {instance} has not answered {verb!r}", await self._world.reason(instance))


class WorldTasks:
    """`world.tasks.list(...)`, `world.tasks.complete(id, answer, by=...)` and so on: see the reference of tasks."""

    def __init__(self, connection: WorldConnection) -> None:
        self._tasks = TasksOfWorld(connection)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._tasks, name)
        return lambda *args, **kwargs: at_once(verb(*args, **kwargs))
