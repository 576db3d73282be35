"""The commands, in one table: what people can type, and where it is. Help needs nothing but this.

A command of two words belongs to a group: `perdure tasks ls` is `ls` in `commands/tasks.py`. Dialects bring groups of
their own.
"""

from typing import Final

from perdure.dialect_commands.table import DIALECT_GROUPS
from perdure.ports.commands import CommandRow

MODULES: Final = {
    **dict.fromkeys(
        ("start", "send", "cancel", "wake", "pause", "resume", "retry", "rewind", "fork", "settle", "tag"), "act"
    ),
    **dict.fromkeys(("ls", "show", "history", "why", "diff", "export"), "read"),
    **dict.fromkeys(("check", "replay"), "code"),
    **dict.fromkeys(("db", "copy", "doctor"), "database"),
}
"""Of a command or a group, the module of `commands` that has it; one that is not here has a module of its name."""

GROUPS: Final = {
    "access": "Access: logins, keys and grants of a server, and the audit.",
    "bulk": "Bulk work: one verb on many instances.",
    "db": "Databases: make one, bring it up to date, or go on without a damaged log.",
    "journal": "The journal: the one total order of all that happened.",
    "retention": "Retention: remove instances that ended long ago.",
    "tasks": "Tasks: what people are asked for.",
    **{group.name: group.help for group in DIALECT_GROUPS},
}

_HOMES: Final = {group.name: group.module for group in DIALECT_GROUPS}


def place_of(row: CommandRow) -> tuple[str, str]:
    """The module of a command, and its name there."""
    group, _, name = row.name.rpartition(" ")
    first = group or name
    return row.module or _HOMES.get(first) or f"perdure.cli.commands.{MODULES.get(first, first)}", name


VERBS: Final = {
    verb.name: verb
    for verb in (
        CommandRow(
            "run",
            "Run a flow or a playbook here and print its result.",
            """perdure run shop:order --input '{"order_id": "o-17"}' --db shop.db --key o-17""",
        ),
        CommandRow(
            "start",
            "Start an instance in the engine of another process.",
            """perdure start order --input '{"order_id": "o-18"}' --key o-18 --db shop.db""",
        ),
        CommandRow(
            "worker",
            "Perform the steps of queues, for engines elsewhere.",
            "perdure worker shop --queue images --concurrency 8 --db postgresql://shop@db.example/shop",
        ),
        CommandRow(
            "dispatch",
            "Hand the steps of a queue to a Dask cluster.",
            "perdure dispatch gpu --dask tcp://scheduler:8786 --db postgresql://shop@db.example/shop",
        ),
        CommandRow(
            "serve",
            "Run an engine with a server: HTTP API and web UI.",
            "perdure serve shop --db shop.db",
        ),
        CommandRow("config", "Tell the settings of a server.", "perdure config --json"),
        CommandRow(
            "dev",
            "Run a module with server and UI; reload.",
            """perdure dev shop.py --start order --input '{"order_id": "o-17"}'""",
        ),
        CommandRow("access link", "Make a login link that works once.", "perdure access link --db shop.db"),
        CommandRow(
            "access key",
            "Make an API key.",
            "perdure access key crm --grant 'operator order,refund*' --days 30 --db shop.db",
        ),
        CommandRow("access keys", "List API keys.", "perdure access keys --db shop.db"),
        CommandRow("access revoke", "Revoke an API key.", "perdure access revoke 3fa81c09b2de --db shop.db"),
        CommandRow(
            "access grant",
            "Say what an actor may do.",
            "perdure access grant ann --grant 'viewer *' --role manager --db shop.db",
        ),
        CommandRow("access grants", "List what actors may do.", "perdure access grants --db shop.db"),
        CommandRow("access audit", "Tell who changed access.", "perdure access audit -n 50 --db shop.db"),
        CommandRow(
            "copy",
            "Copy a stopped world into another database.",
            "perdure copy shop.db postgresql://shop@db.example/shop",
        ),
        CommandRow("check", "Check flows, graphs, processes and playbooks.", "perdure check shop:order"),
        CommandRow("ls", "List instances, newest first.", "perdure ls --status waiting --db shop.db"),
        CommandRow("show", "Show one instance: its state, result or error.", "perdure show order/o-17 --db shop.db"),
        CommandRow("history", "Tell what happened to an instance.", "perdure history order/o-17 --db shop.db"),
        CommandRow(
            "send",
            "Send a message to an instance.",
            """perdure send order/o-17 decision '{"approved": true}' --db shop.db""",
        ),
        CommandRow(
            "cancel",
            "Ask an instance to stop.",
            "perdure cancel order/o-17 --reason 'ordered twice' --db shop.db",
        ),
        CommandRow("wake", "End the sleep of an instance.", "perdure wake order/o-17 --db shop.db"),
        CommandRow(
            "pause",
            "Stop what would begin in an instance of a playbook.",
            "perdure pause monday --reason 'the bank is down' --db shop.db",
        ),
        CommandRow("resume", "Let an instance of a playbook go on.", "perdure resume monday --db shop.db"),
        CommandRow("retry", "Let a stuck or failed instance try again.", "perdure retry order/o-17 --db shop.db"),
        CommandRow("rewind", "Let an instance go back.", "perdure rewind order/o-17 charge --db shop.db"),
        CommandRow(
            "fork",
            "Go on from an instance's past in another one.",
            """perdure fork order/o-17 ship --edit 'price=4200' --db shop.db""",
        ),
        CommandRow(
            "settle",
            "Answer for a step whose outcome is unknown.",
            """perdure settle order/o-17 charge ok '"c-123"' --db shop.db""",
        ),
        CommandRow(
            "tag",
            "Give an instance a tag, or take one away.",
            "perdure tag order/o-17 priority high --db shop.db",
        ),
        CommandRow(
            "replay",
            "Replay what happened on the code, without effects.",
            "perdure replay --against shop --db shop.db",
        ),
        CommandRow(
            "export",
            "Write the history of an instance to a file, for tests.",
            "perdure export order/o-17 -o tests/histories/o-17.json --db shop.db",
        ),
        CommandRow("why", "Say what an instance waits for, in words.", "perdure why order/o-17 --db shop.db"),
        CommandRow(
            "debug",
            "Open the code at an entry of its history, under pdb.",
            "perdure debug order/o-17 --against shop --at 2 --db shop.db",
        ),
        CommandRow(
            "diff", "Compare the histories of two instances.", "perdure diff order/o-17 order/o-18 --db shop.db"
        ),
        CommandRow(
            "retention run",
            "Remove ended instances that are kept no longer.",
            "perdure retention run --dry-run --db shop.db",
        ),
        CommandRow(
            "bulk start",
            "Do one thing to all instances of a selection.",
            "perdure bulk start retry --where 'workflow:order status:failed' --dry-run --db shop.db",
        ),
        CommandRow("bulk ls", "List bulks, newest first.", "perdure bulk ls --db shop.db"),
        CommandRow("bulk show", "Show how far a bulk is.", "perdure bulk show 7c1d0a55e2b9 --db shop.db"),
        CommandRow("bulk cancel", "Leave alone what a bulk has left.", "perdure bulk cancel 7c1d0a55e2b9 --db shop.db"),
        CommandRow("tasks ls", "List tasks.", "perdure tasks ls --as ann --role manager --candidate --db shop.db"),
        CommandRow("tasks show", "Show a task: data, form, history.", "perdure tasks show 1042 --db shop.db"),
        CommandRow("tasks claim", "Take a task.", "perdure tasks claim 1042 --as ann --role manager --db shop.db"),
        CommandRow("tasks release", "Give a task back.", "perdure tasks release 1042 --as ann --db shop.db"),
        CommandRow(
            "tasks assign",
            "Give a task to a person.",
            "perdure tasks assign 1042 bob --as max --role boss --override --db shop.db",
        ),
        CommandRow(
            "tasks complete",
            "Answer a task.",
            """perdure tasks complete 1042 '{"outcome": "approve"}' --as ann --role manager --db shop.db""",
        ),
        CommandRow(
            "tasks change",
            "Change priority and times of a task.",
            "perdure tasks change 1042 --priority 80 --as max --role boss --db shop.db",
        ),
        CommandRow(
            "tasks comment",
            "Say something in the history of a task.",
            "perdure tasks comment 1042 'I ask the supplier' --as ann --role manager --db shop.db",
        ),
        CommandRow(
            "tasks escalate",
            "Add candidates to a task, make it urgent.",
            "perdure tasks escalate 1042 --add-role director --priority 90 --as max --role boss --db shop.db",
        ),
        CommandRow(
            "tasks cancel",
            "End a task without an answer.",
            "perdure tasks cancel 1042 --reason 'bought elsewhere' --as max --role boss --db shop.db",
        ),
        CommandRow("journal head", "Tell where the journal ends.", "perdure journal head --db shop.db"),
        CommandRow("journal tail", "Tell the last entries of the journal.", "perdure journal tail -n 20 --db shop.db"),
        *(row for group in DIALECT_GROUPS for row in group.rows),
        CommandRow(
            "db upgrade",
            "Make a database, or bring it up to date.",
            "perdure db upgrade postgresql://shop@db.example/shop --shards 16",
        ),
        CommandRow("db recover", "Go on without a damaged log.", "perdure db recover shop.db"),
        CommandRow("doctor", "Check this installation, and a database.", "perdure doctor --db shop.db"),
    )
}
