"""Loading of instances: those that the kernel wants, and after a crash those that were running before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.errors import Corrupt, PerdureError
from perdure.kernel.events import Ref
from perdure.kernel.rows import Loaded

from .calls import Calls
from .core import Core
from .listener import tell
from .log import log

RECOVER_AT_ONCE: Final = 500


class Loading:
    def __init__(self, core: Core, calls: Calls) -> None:
        self.unreadable: dict[Ref, Exception] = {}  # instances that could not be loaded, and why
        self.to_recover: deque[int] = deque()  # they were running before, and are not asked for yet
        self.recovering: set[Ref] = set()
        self._core = core
        self._calls = calls
        self._loading: set[Ref] = set()

    def begin(self, running: Iterable[int]) -> None:
        """A new life: these instances were running."""
        self._loading = set()
        self.to_recover = deque(running)
        self.recovering = set()
        self.unreadable = {}

    def load_wanted(self) -> None:
        """Ask the store for what is wanted. One that answers at once has answered afterwards."""
        core = self._core
        wanted = [ref for ref in core.kernel.cache.wanted if ref not in self._loading]
        while self.to_recover and len(wanted) < RECOVER_AT_ONCE:
            wanted.append(self.to_recover.popleft())
            self.recovering.add(wanted[-1])
        if wanted:
            self._loading.update(wanted)
            life, asked = core.life, core.durable_seq
            core.store.load(wanted, lambda ref, record: self._loaded(life, asked, ref, record))

    def _loaded(self, life: int, asked: int, ref: Ref, record: Loaded | Exception | None) -> None:
        core = self._core
        if life != core.life:
            return
        damaged = type(record) is Corrupt  # rows of this instance, not of the file
        if isinstance(record, Exception) and not damaged:
            core.crash(record)
            return
        self._loading.discard(ref)
        if core.kernel.cache.forgotten_seq > asked:  # it may have gone on and been evicted since: this may be its past
            if ref in self.recovering and isinstance(ref, int):
                self.recovering.discard(ref)
                self.to_recover.append(ref)
            core.schedule()
            return
        self._adopt(ref, record)
        if ref in self.recovering and isinstance(ref, int):
            self._recovered(ref)
        core.schedule()

    def _adopt(self, ref: Ref, record: Loaded | Exception | None) -> None:
        kernel = self._core.kernel
        try:
            if isinstance(record, Exception):
                raise record
            kernel.adopt(ref, record)
            if self.unreadable:
                self.unreadable.pop(ref, None)
        except (PerdureError, msgspec.MsgspecError) as error:  # damaged rows, or newer ones: skip it
            log.error("%s cannot be read: %s", ref, error)
            for offer in kernel.cache.give_up(ref):  # what is in the inbox, or caused here, waits there
                tell(offer.ticket, error)
            self.unreadable[ref] = error
            self._core.listener.reloaded()  # who waits for its end must not wait for ever

    def _recovered(self, instance: int) -> None:
        """Its open calls are known. After the last one they are handed out again."""
        self.recovering.discard(instance)
        redelivery = self._calls.redelivery
        redelivery.add(self._core.kernel.recover(instance, self._calls.alive))
        if not self.recovering and not self.to_recover:
            self._calls.stop_closed()
            redelivery.begin()
