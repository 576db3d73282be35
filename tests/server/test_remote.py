"""The command line against a server: the same documents as from the database."""

import asyncio
import json
import re

import pytest
from click.testing import CliRunner

from perdure.cli import cli
from perdure.cli.console import Console
from tests.server.site import OPERATOR, VIEWER, run

READS = [
    ("ls",),
    ("ls", "--status", "failed"),
    ("show", "order/o-1"),
    ("show", "o-1"),
    ("history", "order/o-1"),
    ("why", "order/o-1"),
    ("why", "approval/a"),
    ("diff", "order/o-1", "order/o-2"),
]


async def perdure(*words, token="", **env):
    given = {"PERDURE_TOKEN": token, **env}
    result = await asyncio.to_thread(CliRunner().invoke, cli, [*words, "--json"], prog_name="perdure", env=given)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def key_of(client):
    return client.headers["authorization"].removeprefix("Bearer ")


async def filled(site):
    for key in ("o-1", "o-2"):
        await (await site.engine.start("order", key=key, cents=int(key[-1]))).until("waiting")
    await (await site.engine.start("broken", key="b")).until("failed")


def test_cli_and_http_give_one_document(tmp_path):
    database = str(tmp_path / "shop.db")

    async def story(site):
        await filled(site)
        await (await site.engine.start("approval", key="a")).until("waiting")
        token = key_of(await site.key(VIEWER))
        found = []
        for words in READS:
            here = await perdure(*words, "--db", database)
            there = await perdure(*words, "--server", site.url, token=token)
            found.append((words, here, there))
        return found

    for words, here, there in run(story, url=database):
        assert here.exit_code == there.exit_code, (words, there.stdout, there.stderr)
        told, asked = json.loads(here.stdout), json.loads(there.stdout)
        if words[0] == "why":  # sentences say how long it waits
            todo = asked["reasons"][0]["todo"]
            assert "perdure tasks" not in todo  # no server is asked by that
            assert words[1] != "approval/a" or re.fullmatch(r"to complete it: http://[^ ]+/tasks/\d+", todo)
            told, asked = told["status"], asked["status"]
        assert told == asked, words


def test_a_change_goes_through_the_server_and_names_the_actor_of_the_key():
    async def story(site):
        await filled(site)
        token = key_of(await site.key(OPERATOR, actor="crm"))
        sent = await perdure("send", "order/o-1", "decision", '"yes"', "--server", site.url, token=token)
        started = await perdure("start", "order", "--key", "o-9", "--server", site.url, token=token)
        await site.engine.handle("order/o-1").result(60)
        entries = await (await site.key(VIEWER)).get("/api/v1/instances/order/o-1/-/history")
        return sent, started, entries.json()["asked"]

    sent, started, asked = run(story)

    assert (sent.exit_code, started.exit_code) == (0, 0), sent.stderr + started.stderr
    assert json.loads(sent.stdout) == {"id": "order/o-1", "sent": "decision"}
    assert "crm" in {each["by"] for each in asked.values()}


@pytest.mark.parametrize(
    ("words", "role", "exit"),
    [
        (("show", "order/none"), "viewer", 3),
        (("cancel", "order/o-1"), "viewer", 7),
        (("show", "order/o-1"), "", 7),
        (("retry", "order/o-1"), "operator", 4),
        (("start", "order", "--key", "o-1", "--input", '{"cents": 99}'), "operator", 4),
        (("ls", "--workflow", "order", "--follow"), "viewer", 2),
    ],
)
def test_refusals_of_a_server_are_those_of_a_database(words, role, exit, tmp_path):
    database = str(tmp_path / "shop.db")

    async def story(site):
        await filled(site)
        token = key_of(await site.key({"viewer": VIEWER, "operator": OPERATOR}[role])) if role else "pdk_wrong"
        here = await perdure(*words, "--db", database) if exit in (3, 4) else None
        return await perdure(*words, "--server", site.url, token=token), here

    done, here = run(story, url=database)

    assert done.exit_code == exit, done.stdout + done.stderr
    assert here is None or here.stdout == done.stdout
    assert role or "it is wrong, expired or revoked" in done.stdout


@pytest.mark.parametrize(
    ("words", "env", "says"),
    [
        (("ls",), {}, "--db"),
        (("tasks", "ls"), {"PERDURE_SERVER": "http://s"}, "'--db': PERDURE_SERVER is set, but this command asks"),
        (
            ("tasks", "ls", "--server", "http://s"),
            {},
            "this command asks the database itself, no server; give --db",
        ),
        (("ls", "--server", "http://s", "--db", "x.db"), {}, "--db and --server were both given"),
        (("ls", "--db", "none.db"), {"PERDURE_SERVER": "http://s"}, "none.db"),
        (("doctor",), {"PERDURE_SERVER": "http://s"}, "asks no server: give --db"),
    ],
)
def test_what_is_missing_or_given_twice_is_told(words, env, says):
    done = asyncio.run(perdure(*words, **{"PERDURE_DB": "", "PERDURE_SERVER": "", **env}))

    assert done.exit_code == {"none.db": 6, "doctor": 0}.get(words[-1], 2)
    assert says in done.stdout + done.stderr


def test_a_command_that_asks_no_server_is_proposed_with_a_database():
    console = Console(None, json=False, debug=False, db_given=False, server="http://s")

    assert console.command("why", "order/o") == "perdure why order/o --server http://s"
    assert console.command("bulk", "show", "7") == "perdure bulk show 7 --server http://s"
    assert console.command("debug", "order/o") == "perdure debug order/o --db DB"
