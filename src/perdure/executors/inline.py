"""The inline executor: an async step is a task of the engine's own loop. Cancelling it cancels the task."""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context

from perdure.kernel.batch import Publication
from perdure.ports.executor import Answered, Work

from . import info


class InlineExecutor:
    name = "inline"

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots
        self._loop = asyncio.get_running_loop()
        self._context: Context = copy_context()  # of whoever opened the engine, not of whoever called it last
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    def start(self, publication: Publication, answered: Answered) -> None:
        work = publication.work
        if isinstance(work, Work):
            self.perform(publication.intent, work, info.StepInfo.of(publication), answered)
        else:
            answered(publication.intent, info.NO_WORK)

    def perform(self, intent: bytes, work: Work, about: info.StepInfo, answered: Answered) -> asyncio.Task[None]:
        """Await what the work gives, as a task."""
        coroutine = self._run(intent, work, about, answered)
        task = self._tasks[intent] = self._loop.create_task(coroutine, context=self._context.copy())
        return task

    def stop(self, intent: bytes) -> None:
        task = self._tasks.pop(intent, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, intent: bytes, work: Work, about: info.StepInfo, answered: Answered) -> None:
        info.current.set(about)
        try:
            receipt = info.ok(await work.function(*work.args, **work.kwargs), work.returns)
        except asyncio.CancelledError as error:
            if intent not in self._tasks:  # stopped: nobody wants a receipt
                about.cancel()
                raise
            receipt = info.error(error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            receipt = info.error(error)
        if self._tasks.pop(intent, None) is not None:
            answered(intent, receipt)
