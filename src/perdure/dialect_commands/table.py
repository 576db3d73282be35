"""The commands of dialects, in one table: the command line shows them among its own. Help needs nothing but this."""

from typing import Final

from perdure.ports.commands import CommandGroup, CommandRow

DIALECT_GROUPS: Final = (
    CommandGroup(
        "cells",
        "Cells: what there is, what state they have, and what events led to.",
        "perdure.dialect_commands.cells",
        (
            CommandRow("cells ls", "List cells, newest first.", "perdure cells ls com.acme/order --db shop.db"),
            CommandRow(
                "cells show",
                "Show the state of a cell.",
                "perdure cells show com.acme/order o-17 --at 120 --db shop.db",
            ),
            CommandRow(
                "cells tail",
                "Tell the last entries of a cell.",
                "perdure cells tail com.acme/order o-17 -f --db shop.db",
            ),
            CommandRow("cells trace", "Tell what an event led to.", "perdure cells trace request-4711 --db shop.db"),
            CommandRow(
                "cells send",
                "Send a domain event to the cells that take it.",
                """perdure cells send com.acme/OrderCreated@1 '{"order_id": "o-17", "cents": 4200}' --db shop.db""",
            ),
        ),
    ),
    CommandGroup(
        "processes",
        "Processes: definitions that are data, their versions and their pictures.",
        "perdure.dialect_commands.processes",
        (
            CommandRow("processes ls", "List the processes that a database has.", "perdure processes ls --db shop.db"),
            CommandRow(
                "processes versions",
                "Tell who registered which version.",
                "perdure processes versions purchase --db shop.db",
            ),
            CommandRow(
                "processes show", "Show what a definition is and needs.", "perdure processes show purchase --db shop.db"
            ),
            CommandRow(
                "processes put",
                "Keep a definition, and run it.",
                "perdure processes put shop.yaml --as ann --db shop.db",
            ),
            CommandRow(
                "processes activate",
                "Choose the version that new instances run on.",
                "perdure processes activate purchase 1.1.0 --as ann --db shop.db",
            ),
            CommandRow(
                "processes migrate",
                "Let live instances go on under another version.",
                "perdure processes migrate purchase 1.1.0 --map decision=verdict --dry-run --db shop.db",
            ),
            CommandRow(
                "processes export",
                "Write a definition as JSON, YAML or Python.",
                "perdure processes export purchase --format yaml --db shop.db",
            ),
            CommandRow(
                "processes draw",
                "Draw a definition or an instance.",
                "perdure processes draw purchase/o-17 --format svg --db shop.db",
            ),
            CommandRow("processes schema", "Print the JSON Schema of a definition.", "perdure processes schema --json"),
            CommandRow(
                "processes functions", "List the functions of expressions.", "perdure processes functions --json"
            ),
        ),
    ),
    CommandGroup(
        "manifest",
        "Manifests: the definitions that a world of cells runs.",
        "perdure.dialect_commands.manifest",
        (
            CommandRow(
                "manifest build", "Write the manifest of a module's cells.", "perdure manifest build shop -o shop.yaml"
            ),
            CommandRow("manifest check", "Check a manifest, and its code.", "perdure manifest check shop.yaml"),
            CommandRow("manifest diff", "Compare two manifests.", "perdure manifest diff shop.db shop.yaml"),
            CommandRow("manifest propose", "Propose another manifest.", "perdure manifest propose shop --db shop.db"),
            CommandRow("manifest proposals", "List proposals.", "perdure manifest proposals --db shop.db"),
            CommandRow(
                "manifest shadow",
                "Try a manifest on a copy of the live world.",
                "perdure manifest shadow 1 --against shop --mode migrate --db shop.db",
            ),
            CommandRow("manifest approve", "Approve a proposal.", "perdure manifest approve 1 --db shop.db"),
            CommandRow(
                "manifest reject", "Reject a proposal.", 'perdure manifest reject 1 --reason "not now" --db shop.db'
            ),
            CommandRow(
                "manifest apply", "Put a manifest into force.", "perdure manifest apply 1 --mode migrate --db shop.db"
            ),
            CommandRow("manifest migrate", "Let all cells go over.", "perdure manifest migrate --db shop.db"),
        ),
    ),
    CommandGroup(
        "playbooks",
        "Playbooks: write, draw, try, test and register them.",
        "perdure.dialect_commands.playbooks",
        (
            CommandRow(
                "playbooks fmt", "Write a playbook in its one canonical form.", "perdure playbooks fmt restock.yaml"
            ),
            CommandRow(
                "playbooks draw", "Draw the net of a playbook.", "perdure playbooks draw restock.yaml -o restock.svg"
            ),
            CommandRow(
                "playbooks render",
                "Show the rendered fields of an action.",
                "perdure playbooks render restock.yaml scan/page --set floor=3",
            ),
            CommandRow(
                "playbooks simulate",
                "Run a playbook on stubs, in virtual time.",
                "perdure playbooks simulate restock.yaml --runs 100 --crash",
                "perdure.testing.playbook_commands",
            ),
            CommandRow(
                "playbooks test",
                "Run the tests of playbooks.",
                "perdure playbooks test restock.test.yaml",
                "perdure.testing.playbook_commands",
            ),
            CommandRow("playbooks put", "Register a playbook.", "perdure playbooks put restock.yaml --db shop.db"),
            CommandRow(
                "playbooks activate",
                "Choose the version of new instances.",
                "perdure playbooks activate shelf-restock c144489622f7 --db shop.db",
            ),
            CommandRow("playbooks ls", "List registered playbooks.", "perdure playbooks ls --db shop.db"),
            CommandRow(
                "playbooks patch",
                "Change ctx of an instance: open its gates.",
                "perdure playbooks patch monday approved=true --by ann --db shop.db",
            ),
        ),
    ),
    CommandGroup(
        "snapshot",
        "Snapshots of a whole world: take them, go on from one, free what none needs.",
        "perdure.dialect_commands.snapshot",
        (
            CommandRow(
                "snapshot take", "Take a snapshot of a world.", "perdure snapshot take --against shop --db shop.db"
            ),
            CommandRow("snapshot ls", "List snapshots.", "perdure snapshot ls --db shop.db"),
            CommandRow(
                "snapshot restore", "Make a new database from one.", "perdure snapshot restore copy.db --db shop.db"
            ),
            CommandRow(
                "snapshot gc", "Free what nothing needs.", "perdure snapshot gc --keep 7 --dry-run --db shop.db"
            ),
        ),
    ),
)
