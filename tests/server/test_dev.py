"""`perdure dev` as real processes: it runs, takes over new code, and keeps the old code where the new one is bad."""

import json
import os
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

        shop(tmp_path, SHOP.replace('"first "', '"second "'))
        until(process, "the new code has taken over")

        assert client.post(f"{ON}/-/messages", json={"name": "decision", "body": "yes"}).status_code == 200
        assert client.get(f"{ON}/-/result?wait=60").json()["result"] == "second yes"


def test_dev_shows_a_divergence_and_a_broken_file_and_keeps_the_old_code(tmp_path):
    shop(tmp_path)
    with developed(tmp_path, "shop.py", "--start", "order", "--input", '{"order_id": "1"}') as (client, process, _):
        shop(tmp_path, SHOP.replace('"decision"', '"other"'))
        diverges = until(process, "the old code goes on")
        shop(tmp_path, "x = 1 +\n")
        broken = until(process, "SyntaxError")
        with client.stream("GET", "/api/v1/stream?channels=fleet") as stream:
            shown = next(line for line in stream.iter_lines() if "SyntaxError" in line)
        client.post(f"{ON}/-/messages", json={"name": "decision", "body": "yes"})

        assert "order/first would diverge" in diverges
        assert "shop.py:1" in broken and "shop.py:1" in shown
        assert client.get(f"{ON}/-/result?wait=60").json()["result"] == "first yes"


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


def test_without_a_module_the_demo_runs(tmp_path):
    with developed(tmp_path) as (client, _, _):
        names = {each["name"] for each in client.get("/api/v1/workflows").json()["items"]}

    assert names == {"order", "parcel", "expense", "article", "restock"}
    assert (tmp_path / ".perdure" / "dev.db").exists()
