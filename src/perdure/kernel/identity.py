"""Derived names: intent ids and idempotency keys. Never random, so equal in every replay."""

from hashlib import blake2b

from .events import Address


class Identity:
    """The identity of one instance: its name and generation."""

    __slots__ = ("_root", "_seed")

    def __init__(self, address: Address, generation: int, seed: bytes = b"") -> None:
        name = f"{address.workflow}\x00{address.key}\x00{generation}\x00"
        self._root = blake2b(name.encode(), digest_size=16)
        self._seed = seed

    def intent(self, location: str, attempt: int) -> bytes:
        """Different for every attempt: a receipt of an earlier one can never pass for this one's."""
        state = self._root.copy()
        state.update(f"{location}\x00{attempt}".encode())
        return state.digest()

    def idempotency_key(self, location: str) -> str:
        """Equal for all attempts and all deliveries at a location, different for everything else.

        The recorded seed is part of it: the same key in another database (a test, a fresh start) is another instance,
        and must not be taken for this one by a payment provider.
        """
        state = self._root.copy()
        state.update(self._seed + b"\x00" + location.encode())
        return state.hexdigest()
