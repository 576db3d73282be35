"""PgBouncer before the server: session mode is as good as the server, the other modes are refused.

The program is that of Debian's package (`apt-get install pgbouncer`); where it is missing, these tests are skipped.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

import perdure
from perdure.errors import CannotOpen
from perdure.stores.postgres import PostgresDatabase, upgrade
from perdure.stores.postgres.connections import QUICK
from tests.fleet.processes import until
from tests.postgres import Server

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no PgBouncer here: apt-get install pgbouncer")


@contextmanager
def pgbouncer(server: Server, url: str, mode: str) -> Iterator[str]:
    """The URL of a schema by way of a PgBouncer."""
    assert PROGRAM is not None
    parts = urlsplit(server.url)
    host = parts.hostname or parse_qs(parts.query)["host"][0]
    login = f"user={parts.username}" + (f" password={parts.password}" if parts.password else "")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "pgbouncer.ini")
        config.write_text(
            f"[databases]\n* = host={host} port={parts.port or 5432} {login}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {mode}\ndefault_pool_size = 40\n"
        )
        command = [PROGRAM, str(config)]
        if os.geteuid() == 0:  # it does not run as root; who owns the data may use the socket of the server
            user = server.data.owner() if server.data is not None else "nobody"
            shutil.chown(directory, user)
            command += ["-u", user]
        with Path(directory, "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                wait_for(process, port)
                yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?schema={url.partition('schema=')[2]}"
            finally:
                process.terminate()


def wait_for(process: "subprocess.Popen[bytes]", port: int) -> None:
    while True:
        assert process.poll() is None, "PgBouncer has ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            os.sched_yield()
        else:
            return


@perdure.flow
async def waits(ctx: perdure.Context, text: str) -> str:
    return text + str((await ctx.receive("go")).body)


async def test_an_engine_and_a_client_work_by_way_of_a_pooler_in_session_mode(postgres: str, postgres_server: Server):
    with pgbouncer(postgres_server, postgres, "session") as url:
        async with perdure.open(url, workflows=[waits]) as engine, perdure.connect(url) as client:
            handles = [await engine.start(waits, "a", key=str(n)) for n in range(20)]
            for handle in handles:
                await client.handle("waits", handle.address.key).send("go", 1)

            assert [await handle.result(60) for handle in handles] == ["a1"] * 20
            assert len(await client.instances(status="completed")) == 20


async def test_sessions_by_way_of_a_pooler_have_their_settings_and_hear_hints(postgres: str, postgres_server: Server):
    with pgbouncer(postgres_server, postgres, "session") as url:
        database = await PostgresDatabase.open(url)
        heard = asyncio.Event()
        database.listen(lambda hint: heard.set())
        async with database.engine.one() as connection:
            for name, value in {**QUICK, "application_name": "perdure", "synchronous_commit": "on"}.items():
                assert await connection.fetchval(f"SHOW {name}") == value
        async with asyncio.timeout(60):
            await until(lambda: database._listener is not None and database._listener.ready.is_set())
            heard.clear()
            await postgres_server.execute_now(f"NOTIFY {postgres.partition('schema=')[2]}, 'shard 0'")
            await heard.wait()
        await database.close()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_shares_sessions_is_refused(postgres: str, postgres_server: Server, mode: str):
    with pgbouncer(postgres_server, postgres, mode) as url:
        for opening in (perdure.open(url, workflows=[waits]), perdure.connect(url)):
            with pytest.raises(CannotOpen, match=r"is a pooler in transaction or statement mode.* pool_mode = session"):
                async with opening:
                    pass
        with pytest.raises(CannotOpen, match="is a pooler in transaction or statement mode"):
            await upgrade(url)


async def test_a_pooler_that_shares_sessions_is_refused_while_others_use_it(postgres: str, postgres_server: Server):
    with pgbouncer(postgres_server, postgres, "transaction") as url:
        others = [await asyncpg.connect(url.partition("?")[0], statement_cache_size=0) for _ in range(3)]
        for other in others[1:]:
            await other.execute("BEGIN")  # sessions of their own, until they end
        for other in others[1:]:
            await other.execute("ROLLBACK")

        with pytest.raises(CannotOpen, match="is a pooler in transaction or statement mode"):
            await PostgresDatabase.open(url)
        for other in others:
            await other.close()
