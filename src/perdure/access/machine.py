"""The machine of `perdure.access/main`. Each change is one entry with its actor: its journal is the audit.

The state is published whole after a change, so that every server reads the same rights. A note changes nothing: it is
an entry for the audit alone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.codec import decode, encode, from_plain, to_plain
from perdure.errors import CallerError, PerdureError
from perdure.kernel.decision import NOTHING, Decision
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.events import Event, Message, Started
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine
from perdure.kernel.moment import Moment, when
from perdure.kernel.policy import Policy
from perdure.kernel.routing import Subscription

from .bookmarks import PUBLISHED as BOOKMARKS
from .bookmarks import Bookmark, Bookmarks
from .model import KEY, WORKFLOW, Access, ApiKey, Link, Person

PUBLISHED: Final = "access"
KEYS_MAX: Final = 10_000


class AccessMachine:
    def __init__(self, snapshot: bytes | None) -> None:
        state = {} if snapshot is None else decode(snapshot)
        self._bookmarks = Bookmarks(state.pop("bookmarks", None))
        self._state = from_plain(state, Access) if state else Access()

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started():
                return Decision(publish=((PUBLISHED, self._plain()),))
            case Message():
                return self._asked(event, when(moment.at))
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes | None:
        if not self._bookmarks:
            return self._plain()
        return encode({**to_plain(self._state, Access), "bookmarks": self._bookmarks.plain()})

    def dispose(self) -> None:
        self._state = Access()

    def _plain(self) -> bytes:
        return encode(to_plain(self._state, Access))

    def _asked(self, message: Message, now: datetime) -> Decision:
        if message.sender:
            return _answered(message, _refused("bad-request", f"{message.sender} is an instance: people change rights"))
        if message.name == "note":
            return _answered(message, {"ok": True})
        if message.name.startswith("bookmark "):
            return self._bookmarked(message, now)
        try:
            answer = self._change(message.name, decode(message.body), now)
        except (PerdureError, KeyError, TypeError, AttributeError) as error:
            answer = {"refused": "bad-request", "text": f"perdure.access does not take this: {error}"}
        if "refused" in answer:
            return _answered(message, answer)
        decision = _answered(message, answer)
        return Decision(publish=((PUBLISHED, self._plain()),), respond=decision.respond)

    def _bookmarked(self, message: Message, now: datetime) -> Decision:
        """Bookmarks are no rights: they are published under a name of their own."""
        try:
            body = decode(message.body)
            if message.name == "bookmark put":
                against = self._bookmarks.put(from_plain({**body, "changed_at": now}, Bookmark))
            else:
                against = self._bookmarks.delete(body["owner"], body["name"], bool(body.get("admin")))
        except (PerdureError, KeyError, TypeError, AttributeError) as error:
            against = "bad-request", f"perdure.access does not take this bookmark: {error}"
        if against is not None:
            return _answered(message, _refused(*against))
        publish = ((BOOKMARKS, encode(self._bookmarks.plain())),)
        return Decision(publish=publish, respond=_answered(message, {"ok": True}).respond)

    def _change(self, verb: str, body: Any, now: datetime) -> dict[str, Any]:
        state = self._state
        state.links = {digest: link for digest, link in state.links.items() if now < link.expires_at}
        state.ended = {id: until for id, until in state.ended.items() if now < until}
        match verb:
            case "key add":
                key = from_plain(body, ApiKey)
                if len(state.keys) >= KEYS_MAX:
                    return _refused("too-many-keys", f"there are {KEYS_MAX} keys; revoked keys go after a year")
                if key.id in state.keys:
                    text = f"this request made the key {key.id} before, and its secret was shown then"
                    return _refused("key-reused", f"{text}; revoke that key, and ask with a new Idempotency-Key")
                state.keys[key.id] = key
            case "key revoke":
                if body["id"] not in state.keys:
                    return _refused("not-found", f"there is no key {body['id']!r:.80}")
                state.keys[body["id"]] = _with(state.keys[body["id"]], revoked_at=now)
            case "key used":
                if body["id"] in state.keys:
                    state.keys[body["id"]] = _with(state.keys[body["id"]], used_at=now)
            case "grant":
                return self._grant(body["actor"], from_plain(body["person"], Person))
            case "link add":
                state.links[body["digest"]] = Link(body["actor"], body["expires_at"], body.get("admin", True))
            case "link use":
                link = state.links.pop(body["digest"], None)
                if link is None:
                    return _refused("not-found", "this link was used, or is too old")
                return {"ok": link.actor}
            case "session end":
                state.ended[body["id"]] = body["until"]
            case _:
                return _refused("bad-request", f"perdure.access knows no {verb!r:.80}")
        return {"ok": True}

    def _grant(self, actor: str, person: Person) -> dict[str, Any]:
        people = {**self._state.people, actor: person}
        if not person.grants and not person.roles:
            del people[actor]
        if _has_admin(self._state.people) and not _has_admin(people):
            return _refused("last-admin", f"{actor} is the last admin: make another one first")
        self._state.people = people
        return {"ok": True}


def _has_admin(people: dict[str, Person]) -> bool:
    return any(grant.role == "admin" for person in people.values() for grant in person.grants)


def _with(key: ApiKey, **changes: Any) -> ApiKey:
    return msgspec.structs.replace(key, **changes)


def _refused(code: str, text: str) -> dict[str, Any]:
    return {"refused": code, "text": text}


def _answered(message: Message, answer: dict[str, Any]) -> Decision:
    return Decision(respond=((message.id, encode(answer)),)) if message.id else NOTHING


class AccessWorkflow:
    """The built-in workflow of access. Every engine has it; a server starts its one instance."""

    name = WORKFLOW
    version = "1"
    parameters = b""
    policy = Policy("access", only=KEY, place="fixed", cancel=False, retry=False, rewind=False, fork=False, wake=False)
    limits = Limits()
    subscriptions: tuple[Subscription, ...] = ()

    def machine(self, address: str, snapshot: bytes | None) -> AccessMachine:
        return AccessMachine(snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation(advice="perdure.access runs code of perdure alone: report it")

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if args or kwargs:
            raise CallerError("perdure.access is started without input")
        return encode({})

    def encode_plain_input(self, value: Any) -> bytes:
        return self.encode_input((), value if isinstance(value, dict) else {"input": value})

    def decode_result(self, value: bytes) -> Any:
        return decode(value)


ACCESS: Final = AccessWorkflow()
