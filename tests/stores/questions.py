"""What a list asks a database that has many instances: the plans of these questions are looked at."""

from itertools import chain

from perdure.ports.store import Filter
from perdure.stores.lists import TEMPLATES, ListQuestion, listing

LISTS = {"workflow_names", *filter(None, chain(*TEMPLATES.values()))}
"""The named queries that `stores/lists.py` uses."""

FILTERS = [
    Filter(),
    Filter(before=(5, 5)),
    Filter(started=(1, 9)),
    Filter(workflow="order"),
    Filter(status="stuck"),
    Filter(workflow="order", status="stuck", before=(5, 5)),
    Filter(version="2", ended=(1, 9)),
    Filter(parent=1),
    Filter(root=1, status="running"),
    Filter(tags={"team": "red"}),
    Filter(tags={"team": "red", "size": "big"}),
    Filter(workflow="order", tags={"team": "red"}, version="2", before=(5, 5)),
    Filter(by_change=True),
    Filter(by_change=True, status="stuck", before=(5, 5)),
    Filter(by_change=True, workflow="order", status="waiting", tags={"team": "red"}),
    Filter(ranges={"amount": (("1", "2"), ("5", "6"))}),
]

NAMED = [
    Filter(key="o-17"),
    Filter(workflow="order", key="o-17", status="failed"),
    Filter(key_prefix="o-"),
    Filter(key_prefix="o-", status="failed", before=(5, 5)),
]


def questions(filter: Filter) -> list[ListQuestion]:
    """The questions of a list for heads and places, where every index has more rows than are read at once, and there is
    one workflow."""
    found: list[ListQuestion] = []
    asking = listing(filter, bounded=True)
    try:
        question = next(asking)
        while True:
            if question.statement == "workflows":
                question = asking.send([("order",)])
                continue
            found.append(question)
            question = asking.send([(5, 5)] if question.statement != "heads" else [])
    except StopIteration:
        return found
