"""The token game, by tables of markings: no kernel, no machine."""

import pytest

from perdure.playbooks.net import JoinRule, Marking, Net


def play(net, moves):
    """Moves are "step -> a b" (its oldest token ends and makes tokens), "step ." (it ends). Joins fire by themselves."""
    marking = Marking()
    fired = []

    def settle():
        while True:
            ready = net.ready_groups(marking)
            if not ready:
                return
            for group in ready[:1]:
                token, _ = net.fire(marking, group)
                fired.append((group.step, sorted(token.step for token in group.arrived).__len__(), group.short))
                token.state = "ready"

    net.enter(marking, net.entry)
    for move in moves:
        step, _, targets = move.partition("->")
        step = step.strip(" .")
        token = next(token for token in marking.tokens.values() if token.step == step and token.state == "ready")
        token.state = "running"
        if targets:
            net.route(marking, token, targets.split())
        else:
            net.end(marking, token)
        settle()
    return fired, sorted((token.step, token.state) for token in marking.tokens.values()), marking


DIAMOND = Net("sabj", {"s": "ab", "a": "j", "b": "j", "j": ""}, {"s"}, {"j": JoinRule()})
NESTED = Net(
    ["o", "p", "s", "a", "b", "j", "k"],
    {"o": ["s", "p"], "s": ["a", "b"], "a": ["j"], "b": ["j"], "j": ["k"], "p": ["k"]},
    {"o", "s"},
    {"j": JoinRule(), "k": JoinRule()},
)
UNJOINED = Net("sabtcdj", {"s": "tb", "t": "cd", "c": "j", "d": "j", "b": "j"}, {"s", "t"}, {"j": JoinRule()})
ROUNDS = Net("esabj", {"e": "s", "s": "ab", "a": "j", "b": "j", "j": "s"}, {"s"}, {"j": JoinRule()}, "e")
FIRST = Net("sabcj", {"s": "abc", "a": "j", "b": "j", "c": "j"}, {"s"}, {"j": JoinRule(needs=1)})
TWO = Net("sabcj", {"s": "abc", "a": "j", "b": "j", "c": "j"}, {"s"}, {"j": JoinRule(needs=2)})
CUT = Net("sabcj", {"s": "abc", "a": "j", "b": "j", "c": "j"}, {"s"}, {"j": JoinRule(needs=1, cancel_rest=True)})

TABLE = [
    ("a join waits for both", DIAMOND, ["s -> a b", "a -> j"], [], [("b", "ready"), ("j", "joining")]),
    ("and fires once", DIAMOND, ["s -> a b", "a -> j", "b -> j"], [("j", 2, False)], [("j", "ready")]),
    ("a branch that ended is skipped", DIAMOND, ["s -> a b", "a .", "b -> j"], [("j", 1, False)], [("j", "ready")]),
    (
        "the end of the last branch fires it",
        DIAMOND,
        ["s -> a b", "b -> j", "a ."],
        [("j", 1, False)],
        [("j", "ready")],
    ),
    ("a split of one joins too", DIAMOND, ["s -> a", "a -> j"], [("j", 1, False)], [("j", "ready")]),
    (
        "inner and outer joins",
        NESTED,
        ["o -> s p", "s -> a b", "a -> j", "b -> j", "p -> k", "j -> k"],
        [("j", 2, False), ("k", 2, False)],
        [("k", "ready")],
    ),
    (
        "an inner split without a join is gathered",
        UNJOINED,
        ["s -> t b", "t -> c d", "c -> j", "b -> j", "d -> j"],
        [("j", 3, False)],
        [("j", "ready")],
    ),
    (
        "rounds do not mix",
        ROUNDS,
        ["e -> s", "s -> a b", "a -> j", "b -> j", "j -> s", "s -> a b", "b -> j", "a -> j"],
        [("j", 2, False), ("j", 2, False)],
        [("j", "ready")],
    ),
    (
        "any fires on the first and absorbs the rest",
        FIRST,
        ["s -> a b c", "b -> j", "a -> j", "c ."],
        [("j", 1, False)],
        [("j", "ready")],
    ),
    (
        "a number fires on so many",
        TWO,
        ["s -> a b c", "b -> j", "c -> j"],
        [("j", 2, False)],
        [("a", "ready"), ("j", "ready")],
    ),
    ("too few is short", TWO, ["s -> a b c", "b -> j", "c .", "a ."], [("j", 1, True)], [("j", "ready")]),
    ("cancel_rest withdraws the others", CUT, ["s -> a b c", "b -> j"], [("j", 1, False)], [("j", "ready")]),
]


@pytest.mark.parametrize(("net", "moves", "fired", "left"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_marking(net, moves, fired, left):
    found, tokens, _ = play(net, moves)

    assert found == fired
    assert tokens == left


def test_the_last_token_of_a_generation_leaves_it():
    _, _, marking = play(DIAMOND, ["s -> a b", "a -> j", "b -> j"])

    assert [token.generations for token in marking.tokens.values()] == [()]
    assert marking.generations == {}


def test_generations_are_forgotten_with_their_last_token():
    _, tokens, marking = play(NESTED, ["o -> s p", "s -> a b", "a .", "b .", "p ."])

    assert tokens == []
    assert marking.generations == {}


def test_a_cycle_through_a_split_leaves_its_rounds_behind():
    net = Net("spn", {"s": "pn", "p": "s"}, {"s"})
    _, _, marking = play(net, ["s -> p n", "p -> s", "s -> p n", "n .", "n .", "p -> s", "s -> p n", "n ."])

    assert [token.generations for token in marking.tokens.values()] == [(3,)]
    assert list(marking.generations) == [3]


def test_joins_that_reach_each_other_do_not_block_for_ever():
    net = Net("sabjk", {"s": "ab", "a": "j", "b": "k", "j": "k", "k": "j"}, {"s"}, {"j": JoinRule(), "k": JoinRule()})
    fired, _, marking = play(net, ["s -> a b", "a -> j", "b -> k"])
    assert fired == []

    group = net.blocked_group(marking)

    assert group is not None
    assert group.step == "j"


def test_the_split_of_a_join_is_the_nearest_on_every_path():
    assert NESTED.split_of("j") == "s"
    assert NESTED.split_of("k") == "o"
    assert UNJOINED.split_of("j") == "s"
    assert Net("abj", {"a": "bj", "b": "j"}, {"b"}, {"j": JoinRule()}).split_of("j") is None
