"""One thread that does one thing after the other, started when it is first needed."""

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Writer:
    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a process that ends without closing its engine must not hang here. What was not committed
        # then was not acknowledged either.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish what was given, then end."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
