"""The command line against a server: the same documents as from the database."""

import asyncio
import json
import re

import pytest
from click.testing import CliRunner

from perdure import Governance, manifest
from perdure.access.model import Grant
from perdure.app.ours import load_playbook
from perdure.cli import cli
from perdure.cli.console import ASKED, Console
from perdure.cli.verbs import VERBS as COMMANDS
from perdure.processes import Complete, Process, Receive
from perdure.worlds.snapshots import Snapshots
from tests.server.site import ADMIN, ALL, OPERATOR, VIEWER, run
from tests.server.test_definitions import PLAYBOOK as STOCK
from tests.server.test_dev import PLAYBOOK
from tests.server.test_world import first, placed, referring, second

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


async def perdure(*words, token="", form=("--json",), **env):
    given = {"PERDURE_TOKEN": token, **env}
    result = await asyncio.to_thread(CliRunner().invoke, cli, [*words, *form], prog_name="perdure", env=given)
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
        (("retention", "run"), {"PERDURE_SERVER": "http://s"}, "'--db': PERDURE_SERVER is set, but this command asks"),
        (
            ("retention", "run", "--server", "http://s"),
            {},
            "this command asks the database itself, no server; give --db",
        ),
        (("ls", "--server", "http://s", "--db", "x.db"), {}, "--db and --server were both given"),
        (("ls", "--db", "none.db"), {"PERDURE_SERVER": "http://s"}, "none.db"),
        (("tasks", "ls", "--as", "mia"), {"PERDURE_SERVER": "http://s"}, "the actor of the API key acts"),
        (("playbooks", "patch", "i", "a=1", "--by", "mia"), {"PERDURE_SERVER": "http://s"}, "leave out --by"),
        (("cells", "tail", "c", "-f"), {"PERDURE_SERVER": "http://s"}, "give --db"),
        (("cells", "show", "c", "--against", "m"), {"PERDURE_SERVER": "http://s"}, "leave out --against"),
        (("manifest", "shadow", "1", "--against", "m"), {"PERDURE_SERVER": "http://s"}, "leave out --against"),
    ],
)
def test_what_is_missing_or_given_twice_is_told(words, env, says):
    done = asyncio.run(perdure(*words, **{"PERDURE_DB": "", "PERDURE_SERVER": "", **env}))

    assert done.exit_code == {"none.db": 6}.get(words[-1], 2)
    assert says in done.stdout + done.stderr


def test_a_command_that_asks_no_server_is_proposed_with_a_database():
    console = Console(None, json=False, debug=False, db_given=False, server="http://s")

    assert console.command("why", "order/o") == "perdure why order/o --server http://s"
    assert console.command("bulk", "show", "7") == "perdure bulk show 7 --server http://s"
    assert console.command("debug", "order/o") == "perdure debug order/o --db DB"


GROUPS = (
    ("tasks", "ls", "--workflow", "approval"),
    ("tasks", "show", "TASK"),
    ("access", "keys"),
    ("access", "grants"),
    ("access", "audit", "-n", "3"),
    ("doctor",),
)
"""Reads of groups. TASK stands for the number of a task."""


def test_the_commands_of_groups_tell_the_same_of_a_server(tmp_path):
    database = str(tmp_path / "shop.db")

    async def story(site):
        await (await site.engine.start("approval", key="a", amount=9)).until("waiting")
        token = key_of(await site.key(ADMIN, actor="mia", roles=["manager"]))

        async def asked(*words, token=token):
            return await perdure(*words, "--server", site.url, token=token)

        task = json.loads((await asked("tasks", "ls")).stdout)["tasks"][0]["id"]
        found = []
        for words in GROUPS:
            given = [task if word == "TASK" else word for word in words]
            acts = ["--as", "mia", "--role", "manager", "--admin"] if words[0] == "tasks" else []
            found.append((words, await perdure(*given, "--db", database, *acts), await asked(*given)))
        verbs: list[tuple[str, ...]] = [
            ("claim",),
            ("comment", "seen"),
            ("change", "--priority", "80"),
            ("complete", '{"outcome": "yes"}'),
        ]
        acted = [await asked("tasks", verb, task, *rest) for verb, *rest in [*verbs, ("release",)]]
        made = json.loads((await asked("access", "key", "crm", "--grant", "viewer order")).stdout)
        denied = await asked("access", "keys", token=made["key"])
        changed = [
            await asked("access", *words)
            for words in (("revoke", made["id"]), ("grant", "bob", "--grant", "viewer"), ("link",))
        ]
        return found, acted, denied, changed, site.url

    found, acted, denied, changed, url = run(story, url=database)

    for words, here, there in found:
        assert (here.exit_code, there.exit_code) == (0, 0), (words, here.stderr, there.stderr)
        told, asked = json.loads(here.stdout), json.loads(there.stdout)
        for each in (told, asked) if words[0] == "doctor" else ():
            del each["database"]["size_bytes"], each["database"]["disk_free_bytes"]  # both change meanwhile
        assert told == asked, words
    assert [each.exit_code for each in acted] == [0, 0, 0, 0, 4], [each.stdout for each in acted]
    assert json.loads(acted[3].stdout)["outcome"] == "yes"
    assert denied.exit_code == 7
    assert [each.exit_code for each in changed] == [0, 0, 0], [each.stdout for each in changed]
    assert json.loads(changed[2].stdout)["login"].startswith(f"{url}/login#")


def test_definitions_events_and_proposals_go_through_a_server(tmp_path):
    database = str(tmp_path / "shop.db")
    process, playbook = tmp_path / "referring.yaml", tmp_path / "greet.yaml"
    process.write_text(referring.export("yaml"))
    playbook.write_text(PLAYBOOK)
    wanted = tmp_path / "second.json"
    wanted.write_text(json.dumps(manifest(second).manifest.data()))

    async def story(site):
        rules = Governance(site.engine)
        await rules.apply(manifest(first))
        ann, token = [key_of(await site.key(ADMIN, actor=actor)) for actor in ("ann", "bob")]
        proposed = await perdure("manifest", "propose", str(wanted), "--server", site.url, token=ann)
        lines = await perdure("manifest", "propose", str(wanted), "--server", site.url, token=ann, form=())
        await rules.shadow(1, mode="migrate")
        acted = [
            await perdure(*words, "--server", site.url, token=token)
            for words in (
                ("cells", "send", "w/Placed@1", '{"id": "a"}', "--id", "e-1"),
                ("processes", "put", str(process)),
                ("processes", "activate", "referring", "1.0.0"),
                ("playbooks", "put", str(playbook)),
                ("manifest", "approve", "1"),
                ("manifest", "apply", "1", "--mode", "migrate"),
                ("manifest", "migrate"),
            )
        ]
        both = [
            await perdure("manifest", "proposals", *place, token=token)
            for place in (("--db", database), ("--server", site.url))
        ]
        return [*acted, proposed], both, lines.stdout

    acted, both, lines = run(story, url=database, workflows=[*ALL, first, second])

    assert [each.exit_code for each in acted] == [0] * 8, [each.stdout + each.stderr for each in acted]
    sent, put, active, greet, approved, applied, migrated, proposed = (json.loads(each.stdout) for each in acted)
    assert sent == {"sent": "w/Placed@1", "id": "e-1", "correlation": ""}
    assert (put["digest"], active) == (referring.hash, {"name": "referring", "active": "1.0.0"})
    assert greet["name"] == "greet" and (approved["proposal"], approved["status"]) == (1, "approved")
    assert (proposed["proposal"], proposed["status"]) == (1, "proposed")
    assert lines.startswith("proposal 2\n") and "+ cell w/total@2" in lines
    assert applied == {"hash": manifest(second).manifest.hash, "mode": "migrate"} and "migrated" in migrated
    assert json.loads(both[0].stdout) == json.loads(both[1].stdout)


TOLD = (
    *(("cells", "ls"), ("cells", "ls", "w/total@1", "--limit", "1"), ("cells", "show", "w/total", "a")),
    *(("cells", "show", "w/total", "a", "--at", "ENTRY"), ("cells", "tail", "w/total", "a"), ("cells", "trace", "e-a")),
    *(("journal", "head"), ("journal", "tail", "-n", "50")),
    *(("processes", "ls"), ("processes", "versions", "referring"), ("processes", "show", "referring")),
    *(("processes", "show", "referring", "--version", "1.0.0"), ("processes", "export", "referring")),
    *(("processes", "draw", "referring"), ("processes", "draw", "referring/r-1", "--format", "json")),
    ("processes", "draw", "referring/r-1", "--at", "ENTRY"),
    ("processes", "activate", "referring", "2.0.0", "--dry-run"),
    ("processes", "migrate", "referring", "2.0.0", "--dry-run"),
    *(("playbooks", "ls"), ("playbooks", "draw", "FILE", "--instance", "p-1")),
    ("playbooks", "activate", "stock", "VERSION", "--dry-run"),
    *(("manifest", "proposals"), ("snapshot", "ls"), ("snapshot", "gc", "--keep", "1", "--grace", "0", "--dry-run")),
    # What is refused: unknown names and versions.
    *(("cells", "ls", "w/totl"), ("cells", "show", "w/totl", "a"), ("cells", "show", "w/total", "z")),
    *(("cells", "tail", "w/total", "z"), ("cells", "trace", "e-9"), ("cells", "ls", "--before", "7")),
    *(("processes", "show", "referrin"), ("processes", "show", "referring", "--version", "9")),
    *(
        ("processes", "versions", "nothing"),
        ("processes", "export", "nothing"),
        ("processes", "draw", "referring/none"),
    ),
    *(("processes", "activate", "referring", "9", "--dry-run"), ("processes", "migrate", "referring", "9")),
    *(("playbooks", "patch", "none", "a=1"), ("playbooks", "patch", "p-1", "a=1", "--if-version", "9")),
    *(("manifest", "approve", "9"), ("manifest", "reject", "9")),
)
"""ENTRY stands for an entry of the journal, FILE for a playbook and VERSION for its version."""

LOCAL = (("processes", "schema"), ("processes", "functions"), ("playbooks", "simulate", "FILE", "--runs", "3"))


async def a_world(site, folder):
    """Cells with a proposal and two snapshots, a process with two versions, and a playbook, each with an instance."""
    rules = Governance(site.engine)
    await rules.apply(manifest(first))
    for id in ("a", "b"):
        await placed(site, id, id=f"e-{id}")
        await Snapshots(site.engine).take()
    for _ in range(3):
        await rules.propose(manifest(second))
    newer = Process("referring", version="2.0.0", steps=[Receive("wait", "go"), Complete("done")])
    for each in (referring, newer):
        await site.engine.processes.put(each)
    await site.engine.processes.activate("referring", "1.0.0")
    version = await site.engine.playbooks.put(load_playbook(STOCK))
    for name, key, given in (("referring", "r-1", {"id": "x"}), ("stock", "p-1", {})):
        await (await site.engine.start_plain(name, given, key=key)).until("waiting")
    (folder / "stock.yaml").write_text(STOCK)
    (folder / "second.json").write_text(json.dumps(manifest(second).manifest.data()))
    names = {
        "FILE": str(folder / "stock.yaml"),
        "WANTED": str(folder / "second.json"),
        "VERSION": version,
        "ENTRY": str(await site.engine.queries.height()),
    }
    return lambda words: [names.get(each, each) for each in words]


def test_worlds_and_definitions_are_told_alike_by_a_database_and_a_server(tmp_path):
    database = str(tmp_path / "shop.db")

    async def story(site):
        key, viewer = key_of(await site.key(ADMIN, actor="bob")), key_of(await site.key(VIEWER, actor="vi"))
        named = await a_world(site, tmp_path)
        asked = [(words, ["--server", site.url], ["--db", database]) for words in TOLD]
        asked += [(words, ["--server", site.url], []) for words in LOCAL]
        asked.append((("manifest", "diff", "WANTED"), [site.url], [database]))
        found = []
        for words, there, here in asked:
            at_server = await perdure(*named(words), *there, token=key)
            found.append((words, at_server, await perdure(*named(words), *here)))
        denied = [
            await perdure(*named(words), "--server", site.url, token=viewer)
            for words in (("snapshot", "ls"), ("playbooks", "patch", "p-1", "go=true"), ("manifest", "reject", "1"))
        ]
        return found, denied

    found, denied = run(story, url=database, workflows=[*ALL, first, second])

    for words, there, here in found:
        assert there.exit_code == here.exit_code, (words, there.stdout + there.stderr, here.stdout + here.stderr)
        told, asked = json.loads(here.stdout), json.loads(there.stdout)
        if "error" in told:  # each has words of its own
            told, asked = told["error"]["exit"], asked["error"]["exit"]
        elif words[:2] == ("manifest", "diff"):
            del told["b"]["target"], asked["b"]["target"]
        assert told == asked, words
        assert here.exit_code or here.stderr == there.stderr, words
    assert [each.exit_code for each in denied] == [7, 7, 7], [each.stdout for each in denied]


WRITES = (
    *(("manifest", "shadow", "1", "--mode", "migrate", "CODE"), ("snapshot", "take", "CODE")),
    *(("snapshot", "gc", "--keep", "1"), ("manifest", "reject", "PROPOSAL", "--reason", "not now")),
    *(
        ("playbooks", "patch", "p-1", "go=false", "--reason", "it stays"),
        ("processes", "migrate", "referring", "2.0.0"),
    ),
)
"""CODE stands for the code, which a server has; PROPOSAL for the number of one that was not rejected yet."""


OF_ONE_RUN = (
    *("taken_at", "written", "proposal", "ctx_version", "snapshots", "blobs", "bytes", "kept", "migrated"),
    *("entries", "statuses"),  # of a shadow run: a server has the code of all workflows
)


def test_worlds_and_definitions_are_changed_alike_by_a_database_and_a_server(tmp_path):
    database = str(tmp_path / "shop.db")
    code = ["--against", "tests.server.test_world:second"]

    async def story(site):
        key = key_of(await site.key(ADMIN, actor="bob"))
        await a_world(site, tmp_path)
        found = []
        for words in WRITES:
            both = []
            for number, place in (("2", ["--db", database]), ("3", ["--server", site.url])):
                if words[1] == "migrate":  # each migrates an instance that no other migration has reached
                    await (await site.engine.start_plain("referring", {"id": number}, key=number)).until("waiting")
                given = [number if word == "PROPOSAL" else word for word in words if word != "CODE"]
                given += code if words[-1] == "CODE" and number == "2" else []
                both.append(await perdure(*given, *place, token=key))
            found.append((words, *both))
        entries = await (await site.key(VIEWER)).get("/api/v1/instances/stock/p-1/-/history")
        return found, entries.json()["asked"]

    found, asked = run(story, url=database, workflows=[*ALL, first, second])

    for words, here, there in found:
        assert (here.exit_code, there.exit_code) == (0, 0), (words, here.stdout + here.stderr, there.stdout)
        told, answered = json.loads(here.stdout), json.loads(there.stdout)
        for each in told, answered:
            for name in OF_ONE_RUN:
                each.pop(name, None)
        assert told == answered and told, words
    assert json.loads(found[-1][2].stdout)["migrated"] == ["referring/3"]
    assert [each["reason"] for each in asked.values()] == ["it stays"]


def test_a_server_without_an_engine_tells_the_same_and_says_what_needs_one(tmp_path):
    database = str(tmp_path / "shop.db")

    async def begun(site):
        await a_world(site, tmp_path)
        limited = await site.key(Grant("viewer", ("order",)), actor="vi")
        return key_of(await site.key(ADMIN, actor="bob")), key_of(limited)

    key, limited = run(begun, url=database, workflows=[*ALL, first, second])

    async def alone(site):
        asked = [(words, 0) for words in TOLD if words in (("cells", "ls"), ("processes", "ls"), ("playbooks", "ls"))]
        told = []
        for words, exit in [*asked, (("manifest", "approve", "1"), 4)]:
            here = await perdure(*words, "--db", database)
            told.append((exit, here, await perdure(*words, "--server", site.url, token=key)))
        shown = await perdure("cells", "show", "w/total", "a", "--server", site.url, token=key)
        hidden = [
            await perdure(*words, "--server", site.url, token=limited)
            for words in (
                ("cells", "show", "w/total", "a"),
                ("manifest", "proposals"),
                ("processes", "show", "referring"),
            )
        ]
        return told, shown, hidden

    told, shown, hidden = run(alone, url=database, connect=True)

    for exit, here, there in told:
        assert (here.exit_code, there.exit_code) == (exit, exit), here.stdout + there.stdout
        assert exit or here.stdout == there.stdout
    assert shown.exit_code == 4 and "ask a server that has it" in shown.stdout
    assert [each.exit_code for each in hidden] == [3, 3, 3], [each.stdout for each in hidden]
    assert "no cell is named 'w/total' (there are: none)" in hidden[0].stdout
    assert "there is no world of cells" in hidden[1].stdout


def test_each_command_asks_a_server_or_says_that_it_asks_the_database():
    for name in COMMANDS:
        output = CliRunner().invoke(cli, [*name.split(), "--server", "http://127.0.0.1:9"]).output
        assert (name in ASKED) == ("No such option" not in output and "no server" not in output), name
