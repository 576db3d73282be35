"""The example of the page against real services: an HTTP server, a PostgreSQL, a database file, processes of the CLI."""

import asyncio
import json
import os
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from tests.executors.site import Site, says

EXAMPLE = Path(__file__).parent / "example.yaml"


class Depot:
    """Shelves by pages, one answer that says busy, and notes. Only who has the token is answered."""

    def __init__(self):
        self.busy = 1
        self.notes = []
        self.told = asyncio.Event()
        self.below = set()

    def answers(self):
        return {**{f"/shelves/{shop}": self.shelf for shop in ("north", "south", "quay")}, "/notes": self.note}

    async def shelf(self, asked, writer):
        url = urlsplit(asked.line.split(" ")[1])
        shop, query = url.path.rpartition("/")[2], parse_qs(url.query)
        self.below.add(query["below"][0])
        if asked.headers.get("authorization") != "Bearer canary-token":
            return await says(b"", "401 Unauthorized")(asked, writer)
        if shop == "quay" and self.busy:
            self.busy -= 1
            return await says(b"", "503 Busy")(asked, writer)
        page: dict[str, object] = {"rows": [f"{shop}-{query.get('after', ['1'])[0]}"]}
        if shop == "south" and "after" not in query:
            page["next"] = "2"
        await says(json.dumps(page).encode(), content_type="application/json")(asked, writer)

    async def note(self, asked, writer):
        self.notes.append(json.loads(asked.body)["text"])
        self.told.set()
        await says(b"{}", content_type="application/json")(asked, writer)


@pytest.fixture
def orders(postgres_server):
    """A database with a table of orders."""
    name = f"orders_{os.getpid()}"
    postgres_server.execute(f"CREATE SCHEMA {name}", f"CREATE TABLE {name}.orders (lines text[])")
    yield f"{postgres_server.url}{'&' if '?' in postgres_server.url else '?'}options=-csearch_path%3D{name}"
    postgres_server.execute(f"DROP SCHEMA {name} CASCADE")


async def begun(*words, env):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "perdure", *words, env={**os.environ, **env}, stdout=-1, stderr=-1
    )


async def perdure(*words, env):
    process = await begun(*words, env=env)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_example_runs_against_real_services(tmp_path, orders):
    depot, db = Depot(), str(tmp_path / "shop.db")
    env = {"PERDURE_SECRET_DEPOT_TOKEN": "canary-token", "PERDURE_SECRET_DEPOT_DSN": orders, "PERDURE_DB": db}
    async with Site(depot.answers()) as site:
        run = ["run", str(EXAMPLE), "--set", f"depot={site.url('')}", "--set", "floor=3", "--key", "monday"]
        run += ["--allow", "127.0.0.1"]
        assert (await perdure("check", str(EXAMPLE), env=env))[0] == 0
        first = await begun(*run, env=env)
        await asyncio.wait_for(depot.told.wait(), 60)
        first.kill()
        await first.communicate()
        why = json.loads((await perdure("why", "monday", "--json", env=env))[1])
        (gate,) = [each for each in why["reasons"] if each["kind"] == "gate"]
        assert "perdure playbooks patch shelf-restock/monday approved=true" in gate["todo"]
        code, _, err = await perdure("playbooks", "patch", "monday", "approved=true", env=env)
        assert code == 0, err
        code, out, err = await perdure(*run, "--json", env=env)

    assert code == 0, err
    told = json.loads(out)
    assert told["result"]["runs"] == 5
    assert (depot.below, set(depot.notes)) == ({"3"}, {"Restock is coming"})
    connection = await asyncpg.connect(orders.partition("options=")[0].rstrip("?&"))
    try:
        rows = await connection.fetch(f"SELECT lines FROM orders_{os.getpid()}.orders")
    finally:
        await connection.close()
    assert [row["lines"] for row in rows] == [["north-1", "south-1", "south-2", "quay-1"]]
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"canary-token" not in kept
