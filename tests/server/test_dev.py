"""`perdure dev` as real processes: it runs, takes over new code, and keeps the old code where the new one is bad."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import pytest

SHOP = """
import perdure

@perdure.flow
async def order(ctx: perdure.Context, order_id: str) -> str:
    print("an order", order_id)
    message = await ctx.receive("decision")
    return "first " + message.body
"""
ON = "/api/v1/instances/order/first"


@contextmanager
def developed(folder, *words):
    env = {**os.environ, "PERDURE_SERVER_SECRET": "a secret for this test", "XDG_STATE_HOME": str(folder)}
    command = [sys.executable, "-m", "perdure", "dev", *words, "--listen", "127.0.0.1:0", "--no-open", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        told = json.loads(line)
        client = httpx.Client(base_url=told["url"], headers={"x-perdure": "1"}, trust_env=False, timeout=120)
        client.headers["origin"] = told["url"]
        assert client.post("/login", json={"token": told["login"].split("#")[1].split("?")[0]}).status_code == 200
        yield client, process, told
    finally:
        process.terminate()
        process.communicate(timeout=120)


def shop(folder, text=SHOP):
    (folder / "shop.py").write_text(text)


def until(process, sign):
    """The next lines that it tells, up to one with this sign."""
    found = []
    for line in process.stderr:
        found.append(line)
        if sign in line:
            return "".join(found)
    raise AssertionError("".join(found))


def test_dev_takes_over_new_code_and_keeps_running_instances(tmp_path):
    shop(tmp_path)
    with developed(tmp_path, "shop.py", "--start", "order", "--input", '{"order_id": "1"}') as (client, process, told):
        assert client.get(ON).json()["status"] == "waiting"
        assert told["login"].endswith("?/instances/order/first")
        assert "an order 1" in until(process, "an order")

        shop(tmp_path, SHOP.replace('"first "', '"second "'))
        until(process, "the new code has taken over")

        assert client.post(f"{ON}/-/messages", json={"name": "decision", "body": "yes"}).status_code == 200
        assert client.get(f"{ON}/-/result?wait=60").json()["result"] == "second yes"


def test_dev_shows_a_divergence_and_a_broken_file_and_keeps_the_old_code(tmp_path):
    shop(tmp_path)
    with developed(tmp_path, "shop.py", "--start", "order", "--input", '{"order_id": "1"}') as (client, process, _):
        for key in "abcdefg":
            client.post("/api/v1/instances", json={"workflow": "order", "key": key, "input": {"order_id": key}})
        shop(tmp_path, SHOP.replace('"decision"', '"other"'))
        diverges = until(process, "would diverge, too")
        shop(tmp_path, "x = 1 +\n")
        broken = until(process, "SyntaxError")
        with client.stream("GET", "/api/v1/stream?channels=fleet") as stream:
            shown = next(line for line in stream.iter_lines() if "SyntaxError" in line)
        client.post(f"{ON}/-/messages", json={"name": "decision", "body": "yes"})

        assert diverges.count("would diverge: ") == 1 and " and 2 more would diverge, too" in diverges
        assert "would diverge: entry " in diverges, "its id stands before that, once"
        assert "shop.py:1" in broken and "shop.py:1" in shown
        assert client.get(f"{ON}/-/result?wait=60").json()["result"] == "first yes"

        os.kill(client.get("/api/v1/fleet").json()["engines"][0]["pid"], signal.SIGKILL)
        told = until(process, "perdure dev goes on from the journal")
        assert "the process of the engine was ended by SIGKILL" in told
        assert process.wait(60) == 1


def test_dev_tells_which_live_instances_the_new_code_leaves(tmp_path):
    shop(tmp_path)
    with developed(tmp_path, "shop.py", "--start", "order", "--input", '{"order_id": "1"}') as (client, process, _):
        shop(tmp_path, SHOP.replace("async def order", "async def purchase"))
        told = until(process, "the new code has taken over")

        assert "order: the new code does not have it; its live instances wait (1)" in told
        assert client.get(ON).json()["status"] == "waiting"


PLAYBOOK = """apiVersion: perdure/v1
kind: Playbook
metadata: {name: greet}
workflow:
  - step: start
    tool: {kind: noop, result: first}
"""


def test_dev_runs_the_file_of_a_playbook_and_takes_over_its_next_version(tmp_path):
    file = tmp_path / "greet.yaml"
    file.write_text(PLAYBOOK)
    with developed(tmp_path, "greet.yaml", "--start", "greet") as (client, process, _):
        versions = [client.get("/api/v1/workflows/greet").json()["versions"]]
        assert client.get("/api/v1/instances/greet/first/-/result?wait=60").json()["status"] == "completed"

        file.write_text(PLAYBOOK.replace("noop", "nopp"))
        assert "there is no kind nopp; did you mean noop?" in until(process, "the old code goes on")
        file.write_text(PLAYBOOK.replace("first", "second"))
        until(process, "the new code has taken over")
        versions.append(client.get("/api/v1/workflows/greet").json()["versions"])

    assert [len(each) for each in versions] == [1, 2]


def test_dev_watches_the_files_of_definitions_that_its_module_loads(tmp_path):
    file = tmp_path / "greet.yaml"
    file.write_text(PLAYBOOK)
    shop(tmp_path, 'import perdure\ngreet = perdure.load_playbook("greet.yaml")\n')
    with developed(tmp_path, "shop.py", "--start", "greet") as (client, process, _):
        file.write_text(PLAYBOOK.replace("noop", "nopp"))
        broken = until(process, "the old code goes on")
        file.write_text(PLAYBOOK.replace("first", "second"))
        until(process, "the new code has taken over")
        versions = client.get("/api/v1/workflows/greet").json()["versions"]

    assert "greet.yaml:6:18: there is no kind nopp; did you mean noop?" in broken
    assert f"at {tmp_path / 'shop.py'}:2" in broken
    assert len(versions) == 2


@pytest.mark.slow
def test_dev_runs_a_postgres_of_its_own(tmp_path):
    shop(tmp_path)
    with developed(tmp_path, "shop.py", "--postgres", "--start", "order", "--input", '{"order_id": "1"}') as (
        client,
        *_,
    ):
        while client.get(ON).status_code == 404:  # a shard is taken up a moment later
            time.sleep(0.1)
        assert client.post(f"{ON}/-/messages", json={"name": "decision", "body": "yes"}).status_code == 200
        assert client.get(f"{ON}/-/result?wait=50").json()["result"] == "first yes"
        fleet = client.get("/api/v1/fleet").json()

    assert len(fleet["entries"]) > 1
    assert fleet["engines"][0]["name"].startswith("perdure dev")
    assert not list((tmp_path / ".perdure" / "postgres").glob("postmaster.pid"))


def test_dev_is_for_this_machine(tmp_path):
    command = [sys.executable, "-m", "perdure", "dev", "--listen", "0.0.0.0:0", "--no-open"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, "use perdure serve" in ended.stderr) == (2, True)


def test_without_a_module_the_demo_runs_and_each_page_has_something_to_show(tmp_path):
    with developed(tmp_path) as (client, process, _):
        workflows = client.get("/api/v1/workflows").json()["items"]
        stuck = until(process, "refund/o-12 is stuck")
        limit = time.monotonic() + 60
        while not (queues := client.get("/api/v1/queues").json()["items"]) and time.monotonic() < limit:
            pass  # the job comes after the loop of its parent
        traces = client.get("/api/v1/trace/demo-7").json()["traces"]  # of the newest event, as the README says
        titles = [each["title"] for each in client.get("/api/v1/tasks").json()["items"]]

    nouns = {each["noun"] for each in workflows}
    assert {"flow", "process", "cell", "playbook", "graph"} <= nouns
    assert "shop/shelf/nails is stuck" in stuck
    assert [queue["name"] for queue in queues] == ["printer"]
    assert "shop/buyer/glue" in json.dumps(traces)
    assert "Approve the purchase from acme" in titles
    assert (tmp_path / ".perdure" / "dev.db").exists()


HANDLED = """
import perdure

class Asked(perdure.Record, name="shop/Asked@1"):
    name: str

class Look(perdure.Effect, name="shop/look@1"):
    class Receipt(perdure.Record):
        found: str

@perdure.cell("shop/desk@1", key="name", effects=[Look])
def desk(state: Asked | None, event: Asked | perdure.ReceiptOf[Look], ctx: perdure.CellContext) -> perdure.Next:
    return perdure.Next(event, effects=[Look()]) if isinstance(event, Asked) else perdure.Next(Asked(event.value.found))

@perdure.effect_handler(Look)
async def look(params: Look, call: perdure.Call) -> Look.Receipt:
    return Look.Receipt("it")
"""


def test_the_handlers_of_cells_are_those_of_their_module(tmp_path):
    shop(tmp_path, HANDLED)
    with developed(tmp_path, "shop.py") as (client, _, _):
        sent = client.post("/api/v1/events", json={"name": "shop/Asked@1", "data": {"name": "a"}})
        assert sent.status_code < 300, sent.text
        limit = time.monotonic() + 60
        while "it" not in (text := client.get("/api/v1/cells/shop/desk/a").text) and time.monotonic() < limit:
            pass
    assert '"it"' in text
