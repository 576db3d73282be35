"""Processes on the command line: definitions, pictures, references, `why`, people at a terminal."""

import json

import pytest

from tests.cli.test_tasks import ANN, at_a_terminal
from tests.cli.world import eventually

SHOP = """
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import perdure
from perdure.processes import (
    Activate, Call, Complete, Process, Receive, Reference, Set, Task, python, result, start, state, tasks,
)

@dataclass
class Order:
    order: str
    amount: int = 5

@dataclass
class Verdict:
    outcome: Literal["approve", "reject"]
    comment: str = ""

@perdure.step
async def reserve(order: str) -> str:
    return f"r-{order}"

def made(version, *more):
    return Process(
        "purchase", version=version, title="Purchases", input=Order, reference=Reference(start.order),
        tasks=[Task("approve", answer=Verdict, title="Approve it", roles=["manager"])],
        retention=perdure.Retention(completed=timedelta(days=30)),
        steps=[
            Set("amount", start.amount),
            Call("reserve", python("shop:reserve"), {"order": start.order}, result="held"),
            Activate("approve"),
            *more,
            Complete([result.held, tasks.approve.outcome]),
        ])

purchase = made("1.0.0")
newer = made("1.1.0", Receive("delivery", "delivered", timeout=timedelta(days=9)))
"""

OTHER = """
format: perdure.process/1
name: purchase
version: 2.0.0
steps: [{kind: receive, name: "yes", message: approve}]
"""

BAD = """
format: perdure.process/1
name: bad
version: 1.0.0
steps:
  - {kind: activate, task: nobody}
  - {kind: set, key: x, value: {expr: "fn.uper('a')"}}
"""


@pytest.fixture
def shop(world):
    """A database with one purchase that waits for its approval, and no engine."""
    (world.directory / "shop.py").write_text(SHOP)
    (world.directory / "bad.yaml").write_text(BAD)
    world.perdure("run", "shop:purchase", "--input", '{"order": "o-17"}', "--key", "a", "--timeout", "1")
    return world


def test_a_purchase_is_approved_at_a_terminal(shop):
    engine = shop.process("run", "shop:purchase", "--input", '{"order": "o-17"}', "--key", "a", "--db", "shop.db")
    eventually(lambda: shop.json("doctor")["database"]["engine"])
    (task,) = shop.json("tasks", "ls", "--reference", "o-17")["tasks"]

    screen = at_a_terminal(shop.directory, ["tasks", "complete", task["id"], *ANN, "--db", "shop.db"], ["approve", ""])

    assert "Approve it" in screen and "completed, approve" in screen
    code, out = shop.ended(engine)
    assert (code, json.loads(out)) == (0, ["r-o-17", "approve"])
    shown = shop.json("show", "purchase/a")
    assert shown["state"] == {"amount": 5} and shown["kept_until"]
    assert "kept until" in shop.perdure("show", "purchase/a").stdout
    assert shop.json("retention", "run", "--dry-run") == {"families": 0, "instances": 0, "dry_run": True}
    assert "0 families were due" in shop.perdure("retention", "run").stdout


def test_show_why_and_history_speak_of_steps_values_and_people(shop):
    shown = shop.perdure("show", "purchase/a").stdout
    assert '{"amount": 5}' in shown and "reference=o-17" in shown and "approve" in shown
    why = shop.perdure("why", "purchase/a").stdout
    assert "for the task approve" in why and "role manager" in why
    history = shop.perdure("history", "purchase/a").stdout
    assert "reserve" in history and "task approve" in history


def test_an_instance_is_found_by_its_reference(shop):
    assert [each["id"] for each in shop.json("ls", "--reference", "o-17")["instances"]] == ["purchase/a"]
    assert shop.json("ls", "--reference", "o-18")["instances"] == []
    refused = shop.perdure("show", "purchas/b")  # the definition of purchase is an instance, too, and never meant
    assert refused.exit_code == 3 and "perdure.definition" not in refused.stderr


def test_definitions_are_put_listed_shown_activated_and_exported(shop):
    assert "purchase 1.1.0 is kept" in shop.perdure("processes", "put", "shop:newer", "--as", "ann").stdout
    assert shop.json("processes", "ls")["processes"] == [
        {"name": "purchase", "active": "1.1.0", "versions": ["1.0.0", "1.1.0"]}
    ]
    seen = shop.json("processes", "activate", "purchase", "1.0.0", "--dry-run")
    assert (seen["live"], seen["safe"], seen["unfit"], seen["stay"]) == (1, 1, [], True)
    assert "1 of 1 live instances" in shop.perdure("processes", "activate", "purchase", "1.1.0", "--dry-run").stdout
    assert shop.json("processes", "ls")["processes"][0]["active"] == "1.1.0"
    shop.perdure("processes", "activate", "purchase", "1.0.0", "--as", "ann")
    versions = shop.json("processes", "versions", "purchase")
    assert versions["active"] == "1.0.0"
    assert "Receive" in shop.perdure("processes", "show", "purchase", "--version", "1.1.0").stdout
    assert "shop" in shop.perdure("processes", "show", "purchase").stdout
    for format in ("json", "yaml", "python"):
        assert "purchase" in shop.perdure("processes", "export", "purchase", "--format", format).stdout


def test_live_instances_migrate_and_what_does_not_fit_is_told(shop):
    (shop.directory / "other.yaml").write_text(OTHER)
    for target in ("shop:newer", "other.yaml"):
        shop.perdure("processes", "put", target)
    bad = shop.perdure("processes", "migrate", "purchase", "2.0.0", "--map", "approve=yes", "--dry-run")
    assert bad.exit_code == 4
    assert "purchase/a stays: approve: version 2.0.0 has a receive approve at yes, and this is a task" in bad.stdout
    assert shop.perdure("processes", "migrate", "purchase", "1.1.0", "--map", "nonsense").exit_code == 2
    wrong = shop.perdure("processes", "migrate", "purchase", "1.1.0", "--map", "aprove=sign", "--dry-run")
    assert "no step is named 'aprove'; did you mean 'approve'?" in wrong.stderr

    planned = shop.json("processes", "migrate", "purchase", "1.1.0", "--dry-run")
    named = shop.perdure("processes", "migrate", "purchase", "1.1.0", "--dry-run")
    done = shop.perdure("processes", "migrate", "purchase", "1.1.0", "--key", "a", "--as", "ann", "--reason", "later")
    engine = shop.process("run", "shop:purchase", "--input", '{"order": "o-17"}', "--key", "a", "--db", "shop.db")
    eventually(lambda: shop.json("show", "purchase/a")["version"].startswith("1.1.0+"))

    assert named.stdout.endswith("\n  purchase/a\n"), named.stdout
    assert (planned["migrated"], planned["left"], planned["dry_run"]) == (["purchase/a"], [], True)
    assert "1 instance of purchase migrates to 1.1.0" in done.stdout
    told = shop.perdure("history", "purchase/a").stdout
    assert 'migrated "1.1.0+' in told and " by ann (later)" in told, told
    engine.kill()
    shop.ended(engine)


def test_other_bytes_under_one_version_are_a_conflict(shop):
    text = shop.perdure("processes", "export", "purchase", "--format", "json").stdout
    (shop.directory / "other.json").write_text(text.replace('"Purchases"', '"Other"'))

    done = shop.perdure("processes", "put", "other.json")

    assert done.exit_code == 4 and "title" in done.stderr


def test_a_definition_and_an_instance_are_drawn(shop):
    shop.perdure("processes", "draw", "purchase", "-o", "purchase.svg")
    assert (shop.directory / "purchase.svg").read_text().startswith("<svg")
    assert "flowchart" in shop.perdure("processes", "draw", "shop:newer", "--format", "mermaid", db=False).stdout
    drawn = json.loads(shop.perdure("processes", "draw", "purchase/a", "--format", "json").stdout)
    states = {node["title"]: node["state"] for node in drawn["nodes"]}
    assert states["reserve"] == "done" and "not reached" in states.values()
    assert "open" in states.values()
    assert "a picture is svg" in shop.perdure("processes", "draw", "purchase", "-o", "purchase.png").stderr


def test_check_tells_all_problems_of_a_process_and_exits_with_1(shop):
    done = shop.perdure("check", "bad.yaml", db=False)

    assert done.exit_code == 1
    said = done.stdout + done.stderr
    assert "PD010" in said and "PD014" in said and "bad.yaml" in said
    assert shop.perdure("check", "shop:purchase", db=False).exit_code == 0


CALLS = """
from perdure.processes import Call, Complete, Process, python, service, transport

@transport("erp")
async def erp(request): ...

p = Process("p", version="1.0.0", steps=[
    Call("x", service("erpp", "charge")), Call("y", service("erp", "charge")), Call("z", python("np:nope")),
    Complete({}),
])
"""


def test_check_tells_what_cannot_be_imported_and_warns_of_what_another_module_may_bring(world):
    (world.directory / "calls.py").write_text(CALLS)
    (world.directory / "nameless.yaml").write_text("format: perdure.process/1\nsteps: [{kind: complete}]\n")

    told = world.perdure("check", "calls", db=False)
    fine = world.json("check", "calls", db=False, exit=1)
    nameless = world.perdure("check", "nameless.yaml", db=False)

    assert told.exit_code == nameless.exit_code == 1
    error, warning, *_ = told.stdout.splitlines()
    assert "PD060: np:nope is no function with @perdure.step" in error and "warning" not in error
    assert "warning: PD030: no transport is named erpp here; did you mean erp?" in warning
    assert [each["code"] for each in fine["problems"]] == ["PD060"]
    assert nameless.stdout.startswith("a process without a name: ") and "?" not in nameless.stdout


def test_what_is_no_expression_has_its_line_in_the_file_and_its_column_in_the_text(world):
    (world.directory / "leave.yaml").write_text(
        LEAVE.replace("SPAN", "{value: [duration, PT1S]}").replace("fn.upper(start.who)", "start.who +")
    )

    line, *_ = world.perdure("check", "leave.yaml", db=False).stdout.splitlines()

    assert line.startswith("leave: steps[2].output.expr (leave.yaml:10:31): PD003: column 12 of the text: expected an ")


def test_schema_and_functions_are_told(world):
    schema = json.loads(world.perdure("processes", "schema", db=False).stdout)
    assert schema["type"] == "object"
    assert "coalesce" in world.perdure("processes", "functions", db=False).stdout


LEAVE = """
format: perdure.process/1
name: leave
version: 1.0.0
tasks:
  approve: {title: Leave, roles: [boss], exclude: [{expr: meta.started_by}]}
steps:
  - {kind: activate, task: approve}
  - {kind: timer, name: short, after: SPAN}
  - {kind: complete, output: {expr: "fn.upper(start.who)"}}
"""


def test_a_process_in_a_file_is_run_and_who_starts_it_is_told(world):
    (world.directory / "leave.yaml").write_text(LEAVE.replace("SPAN", "{value: [duration, PT0.01S]}"))
    world.perdure("processes", "put", "leave.yaml")
    world.perdure("start", "leave", "--input", '{"who": "bob"}', "--key", "b", "--as", "bob")
    engine = world.process("run", "leave.yaml", "--input", '{"who": "bob"}', "--key", "b", "--db", "shop.db")
    (task,) = eventually(lambda: world.json("tasks", "ls")["tasks"])

    refused = world.perdure("tasks", "complete", task["id"], "--as", "bob", "--role", "boss")
    assert refused.exit_code != 0
    world.perdure("tasks", "complete", task["id"], "--as", "max", "--role", "boss")

    assert world.ended(engine) == (0, '"BOB"\n')


def test_problems_of_a_file_are_told_in_lines_and_say_how_a_duration_is_written(world):
    (world.directory / "leave.yaml").write_text(LEAVE.replace("SPAN", "1s"))

    done = world.perdure("run", "leave.yaml")

    assert done.exit_code == 2
    first, second = done.stderr.rstrip("\n").split("\n")
    assert first == "perdure: leave 1.0.0 has 1 problem:"
    assert "PD016" in second and "{value: [duration, PT1H]}" in second


def test_why_of_a_failed_process_advises_nothing_that_is_refused(world):
    text = LEAVE.partition("tasks:")[0] + 'steps:\n  - {kind: fail, code: rejected, message: "not now"}\n'
    (world.directory / "leave.yaml").write_text(text)
    assert world.perdure("run", "leave.yaml", "--key", "f").exit_code == 1

    why = world.perdure("why", "leave/f").stdout

    assert "rejected: not now" in why and "--reuse failed" in why
    assert "perdure retry" not in why and "perdure debug" not in why


RECEIVES = """
format: perdure.process/1
name: order
version: 1.0.0
reference: {key: {expr: start.order}, parts: {company: {expr: start.company}}}
steps:
  - {kind: receive, name: paid, message: paid, result: sum}
  - {kind: complete, output: {expr: result.sum}}
"""


def test_a_message_is_sent_by_reference(world):
    (world.directory / "order.yaml").write_text(RECEIVES)
    for key, company in (("a", "acme"), ("b", "zeta")):
        given = json.dumps({"order": "o-1", "company": company})
        world.perdure("run", "order.yaml", "--input", given, "--key", key, "--timeout", "0")

    several = world.perdure("send", "paid", "7", "--reference", "o-1")
    assert several.exit_code == 4 and "order/a" in several.stderr and "order/b" in several.stderr
    none = world.perdure("send", "paid", "--reference", "o-2")
    assert none.exit_code == 3 and "no live instance has the reference 'o-2'" in none.stderr
    assert world.perdure("send", "a", "paid", "7", "--part", "company=acme").exit_code == 2
    assert world.perdure("send", "a", "paid", "7", "--reference", "o-1").exit_code == 2

    sent = world.perdure("send", "paid", "7", "--reference", "o-1", "--part", "company=zeta")

    assert sent.stdout == "sent paid to order/b\n"
    again = world.perdure("run", "order.yaml", "--input", given, "--key", "b")
    assert (again.exit_code, again.stdout) == (0, "7\n")
