"""The manifest in force: instances that their first message makes, routes and versions that change between two entries.

The world's own instance is a machine that follows orders here, as all others: `enforce` is its order.
"""

from uuid import UUID

import pytest

from perdure.cells.policy import POLICY, WORLD_POLICY
from perdure.codec import encode
from perdure.errors import Divergence
from perdure.kernel.decision import Fact
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Rewound, Started, Woken
from perdure.kernel.kernel import ROUND
from perdure.kernel.mailbox import Accepted, Offer, Refused
from perdure.kernel.receipt import DONE
from perdure.kernel.replay import rebuild
from perdure.kernel.routing import Router, Subscription
from perdure.kernel.rows import inbox_row, offer_of
from perdure.kernel.rules import NO_RULES, RULER, FactRoute, Rules, decode_rules, key_text
from tests.kernel.machines import Told, World

ROUTED = "sys/world/main"
"""What is routed to a cell names who announced it."""


class Cell(Told):
    """A workflow that the rules govern: its instances are made by messages that are routed to them."""

    def __init__(self, name, version="1"):
        super().__init__(name, version=version, policy=POLICY)

    def migrated(self, address, machine, rules):
        raise NotImplementedError


GOVERNED = ["enforce", {"cell": "1"}, [["made", "cell", "key"]]]


def governed(*others, order=GOVERNED):
    """A world with a manifest in force."""
    world = World(Told(), Told("sys/world", policy=WORLD_POLICY), Cell("cell"), *others)
    world.start("main", order, workflow="sys/world")
    return world.run()


def cell(key="k"):
    return Address("cell", key)


def route(world, to, *orders, **options):
    return world.tell(to, *orders, sender=ROUTED, **options)


# ---- what is none for a cell -------------------------------------------------------------------------------

NOT_FOR_A_CELL: dict[str, tuple[Event, str]] = {
    "a message": (Message("m", encode([["note"]]), "m-1"), "events are routed to it"),
    "a start": (Started("cell", "k", b"", b""), "the first event that is routed to it makes it"),
    "a rewind": (Rewound(b"", "a"), "it does not go back"),
    "a wake": (Woken(""), "answered when it is due"),
}


@pytest.mark.parametrize("kind", NOT_FOR_A_CELL)
@pytest.mark.parametrize("posted", [False, True], ids=["offered", "posted"])
def test_what_is_none_for_a_cell_is_refused_through_every_door(kind, posted):
    event, why = NOT_FOR_A_CELL[kind]
    world = governed()
    route(world, cell(), ["note"])
    world.run()
    journal = list(world.journal)

    if posted:
        world.inbox[b"post"] = row = inbox_row(b"post", cell(), event, 1)
        world.kernel.offer(offer_of(row))
        world.run()
        assert world.kernel.counts["refused"] == 1 and not world.inbox
    else:
        ticket = world.offer(cell(), event)
        world.run()
        answer = world.answers[ticket]
        assert isinstance(answer, Refused) and why in answer.reason
    assert world.journal == journal


def test_the_first_message_to_a_cell_is_one_that_was_routed():
    world = governed()
    ticket = world.tell(cell(), ["note"])
    world.run()

    assert isinstance(world.answers[ticket], Refused)
    assert {head.workflow for head in world.heads.values()} == {"sys/world"}


@pytest.mark.parametrize("event", [CancelAsked("why not"), Rewound(b"", "a"), Woken("")])
def test_the_world_is_not_cancelled_nor_taken_back(event):
    world = governed()
    ticket = world.offer(RULER, event)
    world.run()

    assert isinstance(world.answers[ticket], Refused)


# ---- made by their first message ---------------------------------------------------------------------------


def test_a_message_to_a_governed_name_makes_its_instance():
    world = governed()
    ticket = route(world, cell(), ["call", "a"], id="m-1")
    world.run()

    (entry,) = world.entries("k", "cell")
    assert isinstance(entry.event, Started)
    assert (entry.event.version, entry.event.input, entry.event.generation) == ("1", b"of a test", 1)
    assert entry.event.first == Message("m", encode([["call", "a"]]), "m-1", ROUTED)
    assert world.open("k", "cell") == ["a"]
    assert isinstance(world.answers[ticket], Accepted)


def test_a_message_to_any_other_name_is_refused():
    world = governed()
    ticket = world.tell("nobody", ["note"])
    world.run()

    answer = world.answers[ticket]
    assert isinstance(answer, Refused) and answer.code == "unknown-instance"


def test_without_a_manifest_no_message_makes_anything():
    world = World(Cell("cell"))
    ticket = route(world, cell(), ["note"])
    world.run()

    assert isinstance(world.answers[ticket], Refused)
    assert world.journal == []


def test_messages_that_come_together_make_one_instance_and_stay_in_order():
    world = governed()
    for n in range(5):
        route(world, cell(), ["note"], name=f"m{n}")
    world.run()

    assert world.heard("k", "cell") == ["Started", "Message m1", "Message m2", "Message m3", "Message m4"]
    first = world.entries("k", "cell")[0].event
    assert isinstance(first, Started) and first.first is not None and first.first.name == "m0"


@pytest.mark.parametrize("restarted", [False, True], ids=["live", "restarted"])
def test_the_id_of_the_first_message_is_remembered(restarted):
    world = governed()
    route(world, cell(), ["note"], id="m-1")
    world.run()
    if restarted:
        world.restart().run()

    ticket = route(world, cell(), ["note"], id="m-1")
    world.run()

    answer = world.answers[ticket]
    assert isinstance(answer, Accepted) and not answer.fresh
    assert len(world.entries("k", "cell")) == 1


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("restarted", [False, True], ids=["live", "restarted"])
def test_a_message_to_one_that_has_ended_makes_the_next_generation(status, restarted):
    world = governed()
    route(world, cell(), ["call", "a"], id="m-1")
    route(world, cell(), ["end", status])
    world.run()
    if restarted:
        world.restart().run()

    route(world, cell(), ["note"], id="m-1")  # another life has heard nothing yet
    world.run()

    instance = world.instance("k", "cell")
    assert (instance.generation, instance.status.value, instance.version) == (2, "waiting", 1)
    assert instance.open == {}


def test_an_end_and_the_messages_behind_it_are_one_life_after_the_other():
    world = governed()
    for orders in (["note"], ["end", "completed"], ["note"], ["end", "completed"], ["note"]):
        route(world, cell(), orders)
    world.run()

    lives = [head for head in world.heads.values() if head.workflow == "cell"]
    assert [(head.generation, head.status) for head in lives] == [(1, "completed"), (2, "completed"), (3, "waiting")]


def test_each_life_has_a_seed_of_its_own():
    world = governed()
    for key in ("k", "l"):
        route(world, cell(key), ["end", "completed"])
        route(world, cell(key), ["note"])
    world.run()

    seeds = {world.folded(head.id).seed for head in world.heads.values() if head.workflow == "cell"}
    assert len(seeds) == 4


def test_a_first_message_that_raises_is_kept_and_retried():
    told = Cell("cell")
    told.broken = {"it"}
    world = World(Told(), Told("sys/world", policy=WORLD_POLICY), told)
    world.start("main", GOVERNED, workflow="sys/world")
    world.run()
    route(world, cell(), ["break", "it"], ["call", "a"])
    route(world, cell(), ["call", "b"])
    world.run()
    assert world.status("k", "cell") == "stuck"

    told.broken = set()
    world.retry(cell())
    world.run()

    assert world.open("k", "cell") == ["a", "b"]


def test_a_receipt_makes_nothing():
    world = governed()
    ticket = world.offer(cell(), ReceiptArrived(b"x" * 32, DONE))
    world.run()

    assert not isinstance(world.answers[ticket], Accepted)
    assert [head.workflow for head in world.heads.values()] == ["sys/world"]


# ---- what is in force ----------------------------------------------------------------------------------------


def test_a_fact_is_routed_by_the_manifest_and_makes_who_hears_of_it():
    world = governed()
    world.start("a", ["announce", "made", {"key": "x"}], ["announce", "made", {"key": 7}], ["announce", "made", {}])
    world.run()

    assert world.heard("x", "cell") == ["Started"]
    assert world.heard("7", "cell") == ["Started"]
    assert [head.key for head in world.heads.values() if head.workflow == "cell"] == ["x", "7"]
    assert world.kernel.counts["unrouted"] == 1


def test_a_route_without_a_path_leads_to_the_only_instance():
    world = governed(order=["enforce", {"cell": "1"}, [["made", "cell"]]])
    world.start("a", ["announce", "made", {}], ["announce", "made", {"key": "x"}])
    world.run()

    assert world.heard("", "cell") == ["Started", "Message made"]


def test_routes_of_workflows_come_before_those_of_the_manifest_in_its_order():
    router = Router()
    router.subscribe("flow", [Subscription("made", "key")])
    router.enforce(
        Rules("", {}, (FactRoute("made", "b", "key"), FactRoute("other", "c"), FactRoute("made", "a", "key")))
    )

    addresses = router.route(Fact("made", encode({"key": "k"})))

    assert [address.workflow for address in addresses] == ["flow", "b", "a"]


def test_another_manifest_takes_the_place_of_the_one_before():
    world = governed(Cell("later"))
    world.tell(RULER, ["enforce", {"later": "1"}, [["made", "later", "key"]]], name="sys/apply")
    world.run()
    world.start("a", ["announce", "made", {"key": "x"}])
    ticket = route(world, cell("new"), ["note"])
    world.run()

    assert world.heard("x", "later") == ["Started"]
    assert isinstance(world.answers[ticket], Refused)


def test_the_manifest_in_force_survives_a_restart():
    world = governed()
    world.restart()
    world.start("a", ["announce", "made", {"key": "x"}])
    world.run()

    assert world.kernel.router.rules.hash == "of a test"
    assert world.heard("x", "cell") == ["Started"]


def test_only_the_world_itself_may_enforce():
    world = World(Told(), Cell("cell"))
    world.start("main", GOVERNED)
    world.run()

    assert world.kernel.router.rules is NO_RULES


def test_a_rule_is_a_barrier_nothing_is_decided_beside_it():
    """What came before it meets the old manifest, what came behind it the new one, though all are of one round."""
    world = governed(Cell("cell", version="2"))
    keys = [f"k{n}" for n in range(ROUND // 2)]
    rule = Message("sys/apply", encode([["enforce", {"cell": "2"}, []]]))
    # New, so that all are at hand.
    new = [Offer(cell(key), Message("m", encode([["note"]]), "", ROUTED), new=True) for key in keys]
    for offer in [*new[:5], Offer(RULER, rule), *new[5:]]:
        world.kernel.offer(offer)
    world.run()

    versions = {head.key: head.version for head in world.heads.values() if head.workflow == "cell"}
    assert versions == {key: "1" if key in keys[:5] else "2" for key in keys}
    ruled = world.entries("main", "sys/world")[-1].seq
    before = [world.id(key, "cell") < ruled for key in keys]
    assert before == [key in keys[:5] for key in keys]


def test_events_for_the_world_that_are_no_rules_hold_nobody_up():
    world = governed()
    world.tell(RULER, ["note"], name="placed")
    for n in range(5):
        route(world, cell(f"k{n}"), ["note"])
    batch = world.build()

    assert len(batch.journal) == 6


# ---- exact versions --------------------------------------------------------------------------------------------


def test_an_instance_is_made_on_the_version_in_force_not_on_the_newest():
    world = governed(Cell("cell", version="2"))
    route(world, cell(), ["note"])
    world.run()

    assert world.instance("k", "cell").definition == "1"


def test_a_governed_instance_stays_on_its_version_when_another_is_in_force():
    world = governed(Cell("cell", version="2"))
    route(world, cell(), ["note"])
    world.run()
    world.tell(RULER, ["enforce", {"cell": "2"}, []], name="sys/apply")
    route(world, cell(), ["note"])
    route(world, cell("new"), ["note"])
    world.run()

    assert world.instance("k", "cell").definition == "1"
    assert world.instance("new", "cell").definition == "2"
    assert len(world.entries("k", "cell")) == 2


@pytest.mark.parametrize("version", ["0", "2"])
def test_a_governed_instance_whose_version_is_not_here_is_not_run_on_another(version):
    world = governed()
    route(world, cell(), ["note"])
    world.run()
    world.workflows = (Told(), Told("sys/world", policy=WORLD_POLICY), Cell("cell", version=version))
    world.restart()

    ticket = route(world, cell(), ["note"])
    world.run()

    answer = world.answers[ticket]
    assert isinstance(answer, Refused) and answer.code == "unknown-version"
    assert len(world.entries("k", "cell")) == 1


def test_what_others_caused_waits_for_an_engine_that_has_the_version():
    world = governed()
    route(world, cell(), ["note"])
    world.run()
    cells = Told(), Told("sys/world", policy=WORLD_POLICY), Cell("cell", version="2")
    known, world.workflows = world.workflows, cells
    world.restart()
    world.start("a", ["announce", "made", {"key": "k"}])
    world.run()
    assert len(world.inbox) == 1

    world.workflows = known
    world.restart().run()

    assert world.heard("k", "cell") == ["Started", "Message made"]
    assert world.inbox == {}


def test_a_workflow_that_no_manifest_names_still_runs_on_the_newest():
    world = governed()
    world.start("a", ["wait", "w", None])
    world.run()
    world.workflows = (Told(version="2"), Told("sys/world", policy=WORLD_POLICY), Cell("cell"))
    world.restart()
    ticket = world.tell("a", ["note"])
    world.run()

    assert isinstance(world.answers[ticket], Accepted)


# ---- ids and states of decisions ---------------------------------------------------------------------------------


def test_the_ids_of_a_decision_are_the_ids_of_its_intents():
    world = World()
    world.start("a", ["call", "x"], ["timer", "y", 5_000], ["ids", "id of x", "id of y"])
    world.run()

    assert list(world.instance("a").open) == [b"id of x", b"id of y"]
    assert list(world.folded(world.id("a")).open) == [b"id of x", b"id of y"]
    assert [publication.intent for publication in world.started] == [b"id of x"]
    assert list(world.work) == [b"id of y"]
    world.restart().run()
    world.offer(world.id("a"), ReceiptArrived(b"id of x", DONE))
    world.run()
    assert world.open("a") == ["y"]


@pytest.mark.parametrize(
    "orders",
    [
        [["call", "x"], ["ids", "1", "2"]],
        [["call", "x"], ["call", "y"], ["ids", "1"]],
        [["call", "x"], ["call", "y"], ["ids", "1", "1"]],
        [["ids", "1"]],
    ],
    ids=["too many", "too few", "twice the same", "of nothing"],
)
def test_ids_that_do_not_fit_what_is_opened_are_refused_whole(orders):
    world = World()
    world.start("a", ["note"])
    world.run()
    world.tell("a", *orders)
    world.run()

    assert world.status("a") == "stuck"
    assert world.started == []


def test_an_id_that_is_open_cannot_be_opened_again():
    world = World()
    world.start("a", ["call", "x"], ["ids", "1"])
    world.tell("a", ["call", "y"], ["ids", "1"])
    world.run()

    assert world.status("a") == "stuck"
    assert world.open("a") == ["x"]


def test_another_state_is_a_divergence():
    told = Told()
    world = World(told)
    world.start("a", ["state", "before"], ["wait", "w", None])
    world.run()
    rebuild(world.folded(world.id("a")), told)

    told.renamed = {"before": "after"}
    with pytest.raises(Divergence, match="told/a, entry 1"):
        rebuild(world.folded(world.id("a")), told)


def test_other_ids_are_a_divergence():
    told = Told()
    world = World(told)
    world.start("a", ["call", "x"], ["ids", "1"])
    world.run()
    (entry,) = world.entries("a")
    instance = world.folded(world.id("a"))
    assert instance.tail is not None

    assert entry.decision.ids == (b"1",)
    assert told.differs(entry.decision, type(entry.decision)(open=entry.decision.open, ids=(b"2",)))


# ---- keys and the written form ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("k", "k"),
        ("", ""),
        (7, "7"),
        (-7, "-7"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (True, None),
        (None, None),
        (1.5, None),
        (b"k", None),
        (["k"], None),
    ],
)
def test_how_a_key_stands_in_a_name(value, text):
    assert key_text(value) == text


def test_a_manifest_can_be_read_back():
    manifest = Rules("h", {"cell": "1"}, (FactRoute("made", "cell", "a.b"), FactRoute("made", "other")))

    assert decode_rules(manifest.encode()) == manifest
    assert decode_rules(None) is NO_RULES
