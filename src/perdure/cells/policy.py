"""What may be done with cells, and with the world that they are in."""

from typing import Final

from perdure.kernel.policy import Policy

NO_CELLS: Final = "this database has no cells: open it with perdure.open(url, workflows=[a cell])"
NEVER_BACK: Final = "a cell: its state is what its events made of it; it does not go back"

POLICY: Final = Policy(
    "cell",
    created="message",
    place="fixed",
    exact=True,
    send=False,
    retry=False,
    rewind=False,
    fork=False,
    wake=False,
    why={
        "start": "a cell: the first event that is routed to it makes it: client.send(event), or `perdure cells send`",
        "send": "a cell: its events are routed to it: client.send(event), or `perdure cells send`",
        "retry": "a cell: one that has failed is made again by the next event that is routed to it",
        "rewind": NEVER_BACK,
        "fork": NEVER_BACK,
        "wake": "a cell: what it asked for is answered when it is due, and not before",
    },
)

APPLY: Final = "sys/apply"
"""The message that puts a manifest into force. The runtime adds what it counted, and the world judges by that."""

_LASTS: Final = "the world of this database: it takes the events of cells, and lasts as long"

WORLD_POLICY: Final = Policy(
    "world",
    created="engine",
    place="fixed",
    only="main",
    cancel=False,
    rewind=False,
    fork=False,
    wake=False,
    counted=APPLY,
    why=dict.fromkeys(("start", "cancel", "rewind", "fork", "wake"), _LASTS),
)
