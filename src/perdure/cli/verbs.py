"""The verbs, in one table: what people can ask of perdure. Help needs nothing but this.

A verb of two words belongs to a group: `perdure cells ls` is the module `commands/cells/ls.py`.
"""

from typing import Final, NamedTuple


class Verb(NamedTuple):
    """`help` is one line; `example` is a whole command that could be typed as it stands."""

    name: str
    help: str
    example: str


GROUPS: Final = {
    "cells": "Cells: what there is, what state they have, and what events led to.",
    "db": "Databases: make one, bring it up to date, or go on without a damaged log.",
    "journal": "The journal: the one total order of all that happened.",
    "manifest": "Manifests: the definitions that a world of cells runs.",
    "playbooks": "Playbooks: write, draw, try, test and register them.",
    "snapshot": "Snapshots of a whole world: take them, go on from one, free what none needs.",
}

VERBS: Final = {
    verb.name: verb
    for verb in (
        Verb(
            "run",
            "Run a flow or a playbook here and print its result.",
            """perdure run shop:order --input '{"order_id": "o-17"}' --db shop.db --key o-17""",
        ),
        Verb(
            "start",
            "Start an instance in the engine of another process.",
            """perdure start order --input '{"order_id": "o-18"}' --key o-18 --db shop.db""",
        ),
        Verb(
            "worker",
            "Perform the steps of queues, for engines elsewhere.",
            "perdure worker shop --queue images --concurrency 8 --db postgresql://shop@db.example/shop",
        ),
        Verb(
            "copy",
            "Copy a stopped world into another database.",
            "perdure copy shop.db postgresql://shop@db.example/shop",
        ),
        Verb("check", "Check flows and playbooks.", "perdure check shop:order"),
        Verb("ls", "List instances, newest first.", "perdure ls --status waiting --db shop.db"),
        Verb("show", "Show one instance: its state, result or error.", "perdure show order/o-17 --db shop.db"),
        Verb("history", "Tell what happened to an instance.", "perdure history order/o-17 --db shop.db"),
        Verb(
            "send",
            "Send a message to an instance.",
            """perdure send order/o-17 decision '{"approved": true}' --db shop.db""",
        ),
        Verb(
            "cancel",
            "Ask an instance to stop.",
            "perdure cancel order/o-17 --reason 'ordered twice' --db shop.db",
        ),
        Verb("wake", "End the sleep of an instance.", "perdure wake order/o-17 --db shop.db"),
        Verb("retry", "Let a stuck or failed instance try again.", "perdure retry order/o-17 --db shop.db"),
        Verb("rewind", "Let an instance go back.", "perdure rewind order/o-17 charge --db shop.db"),
        Verb(
            "fork",
            "Go on from an instance's past in another one.",
            """perdure fork order/o-17 ship --edit 'price=4200' --db shop.db""",
        ),
        Verb(
            "settle",
            "Answer for a step whose outcome is unknown.",
            """perdure settle order/o-17 charge ok '"c-123"' --db shop.db""",
        ),
        Verb(
            "replay",
            "Replay what happened on the code, without effects.",
            "perdure replay --against shop --db shop.db",
        ),
        Verb(
            "export",
            "Write the history of an instance to a file, for tests.",
            "perdure export order/o-17 -o tests/histories/o-17.json --db shop.db",
        ),
        Verb("why", "Say what an instance waits for, in words.", "perdure why order/o-17 --db shop.db"),
        Verb(
            "debug",
            "Open the code at an entry of its history, under pdb.",
            "perdure debug order/o-17 --against shop --at 2 --db shop.db",
        ),
        Verb("diff", "Compare the histories of two instances.", "perdure diff order/o-17 order/o-18 --db shop.db"),
        Verb("cells ls", "List cells, newest first.", "perdure cells ls com.acme/order --db shop.db"),
        Verb("cells show", "Show the state of a cell.", "perdure cells show com.acme/order o-17 --at 120 --db shop.db"),
        Verb(
            "cells tail", "Tell the last entries of a cell.", "perdure cells tail com.acme/order o-17 -f --db shop.db"
        ),
        Verb("cells trace", "Tell what an event led to.", "perdure cells trace request-4711 --db shop.db"),
        Verb(
            "cells send",
            "Send a domain event to the cells that take it.",
            """perdure cells send com.acme/OrderCreated@1 '{"order_id": "o-17", "cents": 4200}' --db shop.db""",
        ),
        Verb("journal head", "Tell where the journal ends.", "perdure journal head --db shop.db"),
        Verb("journal tail", "Tell the last entries of the journal.", "perdure journal tail -n 20 --db shop.db"),
        Verb("manifest build", "Write the manifest of a module's cells.", "perdure manifest build shop -o shop.yaml"),
        Verb("manifest check", "Check a manifest, and its code.", "perdure manifest check shop.yaml"),
        Verb("manifest diff", "Compare two manifests.", "perdure manifest diff shop.db shop.yaml"),
        Verb("manifest propose", "Propose another manifest.", "perdure manifest propose shop --db shop.db"),
        Verb("manifest proposals", "List proposals.", "perdure manifest proposals --db shop.db"),
        Verb(
            "manifest shadow",
            "Try a manifest on a copy of the live world.",
            "perdure manifest shadow 1 --against shop --mode migrate --db shop.db",
        ),
        Verb("manifest approve", "Approve a proposal.", "perdure manifest approve 1 --db shop.db"),
        Verb("manifest reject", "Reject a proposal.", 'perdure manifest reject 1 --reason "not now" --db shop.db'),
        Verb("manifest apply", "Put a manifest into force.", "perdure manifest apply 1 --mode migrate --db shop.db"),
        Verb("manifest migrate", "Let all cells go over.", "perdure manifest migrate --db shop.db"),
        Verb("playbooks fmt", "Write a playbook in its one canonical form.", "perdure playbooks fmt restock.yaml"),
        Verb("playbooks draw", "Draw the net of a playbook.", "perdure playbooks draw restock.yaml -o restock.svg"),
        Verb(
            "playbooks render",
            "Show the rendered fields of an action.",
            "perdure playbooks render restock.yaml scan/page --set floor=3",
        ),
        Verb(
            "playbooks simulate",
            "Run a playbook on stubs, in virtual time.",
            "perdure playbooks simulate restock.yaml --runs 100 --crash",
        ),
        Verb("playbooks test", "Run the tests of playbooks.", "perdure playbooks test restock.test.yaml"),
        Verb("playbooks put", "Register a playbook.", "perdure playbooks put restock.yaml --db shop.db"),
        Verb(
            "playbooks activate",
            "Choose the version of new instances.",
            "perdure playbooks activate shelf-restock c144489622f7 --db shop.db",
        ),
        Verb("playbooks ls", "List registered playbooks.", "perdure playbooks ls --db shop.db"),
        Verb(
            "playbooks patch",
            "Change ctx of an instance: open its gates.",
            "perdure playbooks patch monday approved=true --by ann --db shop.db",
        ),
        Verb("snapshot take", "Take a snapshot of a world.", "perdure snapshot take --against shop --db shop.db"),
        Verb("snapshot ls", "List snapshots.", "perdure snapshot ls --db shop.db"),
        Verb("snapshot restore", "Make a new database from one.", "perdure snapshot restore copy.db --db shop.db"),
        Verb("snapshot gc", "Free what nothing needs.", "perdure snapshot gc --keep 7 --dry-run --db shop.db"),
        Verb(
            "db upgrade",
            "Make a database, or bring it up to date.",
            "perdure db upgrade postgresql://shop@db.example/shop --shards 16",
        ),
        Verb("db recover", "Go on without a damaged log.", "perdure db recover shop.db"),
        Verb("doctor", "Check this installation, and a database.", "perdure doctor --db shop.db"),
    )
}
