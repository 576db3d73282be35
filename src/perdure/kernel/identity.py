"""Derived names: intent ids and idempotency keys. Never random, so equal in every replay."""

from hashlib import blake2b

from .events import Address


class Identity:
    """The identity of one instance: its name and generation, and its life, which changes when it is rewound."""

    __slots__ = ("_address", "_end", "_generation", "_root", "_seed")

    def __init__(self, address: Address, generation: int, seed: bytes = b"", life: int = 0) -> None:
        self._address = address
        self._generation = generation
        self._seed = seed
        self._end = f"\x00{life}" if life else ""
        self._root: blake2b | None = None  # made when it is first needed: a machine may have an identity of its own

    def in_life(self, life: int) -> "Identity":
        return Identity(self._address, self._generation, self._seed, life)

    def _begin(self) -> blake2b:
        """The hash of the name, to which the rest is added in a copy."""
        if self._root is None:
            name = f"{self._address.workflow}\x00{self._address.key}\x00{self._generation}\x00"
            self._root = blake2b(name.encode(), digest_size=16)
        return self._root.copy()

    def intent(self, location: str, attempt: int) -> bytes:
        """Different for every attempt: a receipt of an earlier one can never pass for this one's."""
        state = self._begin() if self._root is None else self._root.copy()
        state.update(f"{location}\x00{attempt}{self._end}".encode())
        return state.digest()

    def idempotency_key(self, location: str, life: int = 0) -> str:
        """Equal for all attempts and all deliveries at a location, different for everything else.

        `life` is that of the call: after a rewind, or the undo of a step, the call is other work.

        The recorded seed is part of it: the same key in another database (a test, a fresh start) is another instance,
        and must not be taken for this one by a payment provider.
        """
        state = self._begin()
        state.update(self._seed + b"\x00" + location.encode())
        if life:
            state.update(f"\x00{life}".encode())
        return state.hexdigest()
