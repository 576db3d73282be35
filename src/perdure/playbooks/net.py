"""The token game: steps, arcs, tokens, generations and joins. It knows no kernel type, no expression and no clock.

    net = Net(["a", "b", "c"], arcs={"a": ["b", "c"]}, splits={"a"}, joins={"c": JoinRule()})
    marking = Marking()
    first = net.enter(marking, "a")          # a token at a step; at a join it waits for the others
    net.route(marking, first, ["b", "c"])    # the run of a token has ended and made tokens
    net.settle(marking)                      # the joins that fire now, as groups

A token is alive from its making to its end. A split opens a generation: its tokens and their descendants belong to it.
A join groups the tokens of one generation of its split, the nearest split on every path from the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

TokenState = Literal["ready", "pending", "joining", "running"]
Generations = tuple[int, ...]


class JoinRule(msgspec.Struct, frozen=True):
    """How many tokens a join needs; 0: all that can come."""

    needs: int = 0
    cancel_rest: bool = False


class Token(msgspec.Struct):
    id: int
    step: str
    state: TokenState = "ready"
    generations: Generations = ()
    args: Any = None  # the data of a token means nothing here
    source: Any = None
    made: int = 0


class Generation(msgspec.Struct):
    split: str
    args: Any = None
    alive: int = 0
    ended: int = 0  # tokens that ended inside of it without a join
    fired: list[str] = []  # joins of a number that have fired in it: later tokens are absorbed


class Marking(msgspec.Struct):
    """All tokens that are alive, and the generations that they belong to."""

    tokens: dict[int, Token] = {}
    generations: dict[int, Generation] = {}
    made: int = 0
    opened: int = 0
    joining: dict[int, None] = {}  # the tokens that wait at joins

    def add(self, token: Token) -> None:
        self.tokens[token.id] = token
        for number in token.generations:
            self.generations[number].alive += 1
        if token.state == "joining":
            self.joining[token.id] = None

    def drop(self, token: Token) -> None:
        """A generation goes with its last token."""
        del self.tokens[token.id]
        self.joining.pop(token.id, None)
        for number in token.generations:
            generation = self.generations[number]
            generation.alive -= 1
            if not generation.alive:
                del self.generations[number]

    def of(self, state: TokenState) -> list[Token]:
        return [token for token in self.tokens.values() if token.state == state]

    def has(self, state: TokenState) -> bool:
        return any(token.state == state for token in self.tokens.values())

    def within(self, generations: Generations) -> list[Token]:
        size = len(generations)
        return [token for token in self.tokens.values() if token.generations[:size] == generations]


class Group(msgspec.Struct, frozen=True):
    """Tokens that one firing of a join takes. `short`: fewer than it needs, and no other can come."""

    step: str
    generations: Generations
    arrived: tuple[Token, ...]
    short: bool = False


class Net:
    def __init__(
        self,
        steps: Iterable[str],
        arcs: Mapping[str, Iterable[str]],
        splits: Iterable[str] = (),
        joins: Mapping[str, JoinRule] | None = None,
        entry: str = "",
    ) -> None:
        self.steps = list(steps)
        self.arcs = {step: tuple(dict.fromkeys(arcs.get(step, ()))) for step in self.steps}
        self.splits = frozenset(splits)
        self.joins = dict(joins or {})
        self.entry = entry or self.steps[0]
        self._reach: dict[str, frozenset[str]] = {}
        self._order = {step: index for index, step in enumerate(self.steps)}
        self._split_of: dict[str, str | None] = {}

    # ---- the graph -----------------------------------------------------------------------------------------------

    def reach(self, step: str) -> frozenset[str]:
        """The steps that a token at a step can still come to, along one arc or more."""
        found = self._reach.get(step)
        if found is None:
            seen: set[str] = set()
            ahead = list(self.arcs.get(step, ()))
            while ahead:
                at = ahead.pop()
                if at not in seen:
                    seen.add(at)
                    ahead.extend(self.arcs.get(at, ()))
            found = self._reach[step] = frozenset(seen)
        return found

    def split_of(self, join: str) -> str | None:
        """The nearest split on every path from the entry to a join."""
        if join not in self._split_of:
            before = [split for split in self.splits if split != join and self._on_every_path(split, join)]
            # The nearest one is behind all others: every other one is on each path to it.
            nearest = [
                one for one in before if all(other == one or self._on_every_path(other, one) for other in before)
            ]
            self._split_of[join] = nearest[0] if nearest else None
        return self._split_of[join]

    def _on_every_path(self, step: str, target: str) -> bool:
        """Whether no path from the entry to the target avoids a step."""
        if step == self.entry:
            return True
        seen, ahead = {step}, [self.entry]
        while ahead:
            at = ahead.pop()
            if at == target:
                return False
            if at not in seen:
                seen.add(at)
                ahead.extend(self.arcs.get(at, ()))
        return target in self.reach(self.entry)

    # ---- the game ------------------------------------------------------------------------------------------------

    def enter(
        self,
        marking: Marking,
        step: str,
        generations: Generations = (),
        *,
        args: Any = None,
        source: Any = None,
        made: int = 0,
    ) -> Token | None:
        """A new token at a step. None: a join of a number has fired already, and absorbs it."""
        marking.made += 1
        rule = self.joins.get(step)
        if rule is not None and rule.needs:
            key = self.group_key(step, generations, marking)
            generation = marking.generations.get(key[-1]) if key else None
            if generation is not None and step in generation.fired:
                return None
        token = Token(marking.made, step, "ready" if rule is None else "joining", generations, args, source, made)
        marking.add(token)
        return token

    def open_generation(self, marking: Marking, token: Token, args: Any = None) -> Generations:
        """The generations of the tokens that a split makes. Earlier rounds that have no other token are left behind."""
        marking.opened += 1
        marking.generations[marking.opened] = Generation(token.step, args)
        within = [
            number
            for number in token.generations
            if marking.generations[number].alive > 1 or marking.generations[number].split != token.step
        ]
        return (*within, marking.opened)

    def end(self, marking: Marking, token: Token, *, routed: bool = False) -> None:
        """A token is no longer alive. `routed`: others went on in its place, or a join took it."""
        if not routed:
            for number in token.generations:
                marking.generations[number].ended += 1
        marking.drop(token)

    def route(self, marking: Marking, token: Token, targets: Iterable[str], **data: Any) -> list[Token]:
        """The run of a token has ended: it makes a token for each target. A split makes them in a new generation."""
        targets = list(targets)
        generations = token.generations
        if token.step in self.splits and targets:
            generations = self.open_generation(marking, token, data.get("args"))
        made = [self.enter(marking, target, generations, **data) for target in targets]
        self.end(marking, token, routed=bool(targets))
        return [each for each in made if each is not None]

    def group_key(self, join: str, generations: Generations, marking: Marking) -> Generations:
        """The generations that tokens of one group have in common."""
        split = self.split_of(join)
        if split is None:
            return ()
        for index in range(len(generations), 0, -1):
            if marking.generations[generations[index - 1]].split == split:
                return generations[:index]
        return generations

    def groups(self, marking: Marking) -> list[Group]:
        """The tokens that wait at joins, by join and generation."""
        found: dict[tuple[str, Generations], list[Token]] = {}
        for token in [marking.tokens[id] for id in marking.joining]:
            found.setdefault((token.step, self.group_key(token.step, token.generations, marking)), []).append(token)
        return [Group(step, key, tuple(tokens)) for (step, key), tokens in found.items()]

    def can_come(self, marking: Marking, group: Group) -> bool:
        """Whether another live token of the generation can still reach the join."""
        own = {token.id for token in group.arrived}
        return any(
            token.id not in own
            and (token.step != group.step or token.state == "running")
            and group.step in self.reach(token.step)
            for token in marking.within(group.generations)
        )

    def ready_groups(self, marking: Marking) -> list[Group]:
        """The groups that fire now, in the order of the text."""
        fired: list[Group] = []
        for group in self.groups(marking) if marking.joining else ():
            needs = self.joins[group.step].needs
            if needs and len(group.arrived) >= needs:
                fired.append(msgspec.structs.replace(group, arrived=group.arrived[:needs]))
            elif not self.can_come(marking, group):
                fired.append(msgspec.structs.replace(group, short=len(group.arrived) < needs))
        return sorted(fired, key=lambda group: (self._order[group.step], group.generations))

    def blocked_group(self, marking: Marking) -> Group | None:
        """If all that lives waits at joins that reach each other: the innermost group, then the first in the text."""
        if not marking.joining or len(marking.joining) < len(marking.tokens):
            return None
        group = min(self.groups(marking), key=lambda group: (-len(group.generations), self._order[group.step]))
        return msgspec.structs.replace(group, short=len(group.arrived) < self.joins[group.step].needs)

    def fire(self, marking: Marking, group: Group, **data: Any) -> tuple[Token, list[Token]]:
        """The one token that a group becomes, ready, and the tokens that are withdrawn with it."""
        rule = self.joins[group.step]
        arrived = {token.id for token in group.arrived}
        others = [token for token in marking.within(group.generations) if token.id not in arrived]
        withdrawn = others if rule.cancel_rest else []
        if rule.needs and not rule.cancel_rest:  # those that came at the same time are absorbed
            withdrawn = [token for token in others if token.step == group.step and token.state == "joining"]
        if rule.needs and group.generations:
            marking.generations[group.generations[-1]].fired.append(group.step)
        # The last token of a generation leaves it.
        generations = group.generations[:-1] if len(withdrawn) == len(others) else group.generations
        marking.made += 1
        token = Token(marking.made, group.step, "ready", generations, **data)
        marking.add(token)
        for each in (*group.arrived, *withdrawn):
            marking.drop(each)
        return token, withdrawn
