"""`perdure db upgrade` and `perdure doctor` on both kinds of databases."""

import hashlib
from pathlib import Path

import apsw

from perdure.stores.postgres.schema import VERSION
from tests.postgres import Server, changed


def test_a_postgresql_database_is_made_once(world, postgres_server: Server):
    postgres_server.execute("DROP SCHEMA IF EXISTS made CASCADE")
    url = changed(postgres_server.url, schema="made")

    first = world.perdure("db", "upgrade", url, "--shards", "4")
    again = world.perdure("db", "upgrade", postgres_server.url, "--schema", "made", "--json")
    other = world.perdure("db", "upgrade", url, "--shards", "8")
    doctor = world.perdure("doctor", "--db", url)

    assert first.exit_code == 0 and first.stdout.endswith(f"was made: schema {VERSION}, 4 shards\n")
    assert f'"before": {VERSION}, "schema": {VERSION}, "shards": 4' in again.stdout
    assert other.exit_code == 2 and "has 4 shards, and not 8" in other.stderr
    assert "shards              4" in doctor.stdout and "engine              nobody" in doctor.stdout
    postgres_server.execute("DROP SCHEMA made CASCADE")


def test_the_sql_is_printed_and_nothing_is_changed(world, postgres_server: Server):
    url = changed(postgres_server.url, schema="printed")

    printed = world.perdure("db", "upgrade", url, "--sql", "--shards", "2")
    without_server = world.perdure("db", "upgrade", "--sql", "--shards", "2", "--schema", "printed")
    absent = world.perdure("ls", "--db", url)

    assert printed.stdout == without_server.stdout
    assert printed.stdout.startswith('CREATE SCHEMA "printed";')
    assert absent.exit_code == 6
    assert "perdure db upgrade postgresql://" in absent.stderr
    postgres_server.execute(printed.stdout)
    assert "nothing to do" in world.perdure("db", "upgrade", url, "--sql").stderr
    assert world.perdure("ls", "--db", url).exit_code == 0
    postgres_server.execute("DROP SCHEMA printed CASCADE")


def test_a_sqlite_file_is_made_and_brought_up_to_date(world):
    made = world.perdure("db", "upgrade", "new.db")
    again = world.perdure("db", "upgrade", "sqlite:///new.db")

    assert made.stdout.startswith("new.db was made: schema ")
    assert again.stdout.startswith("new.db has the newest schema already: ")


def test_what_cannot_be_upgraded_is_told(world):
    for arguments, exit_code, text in (
        ((), 2, "which database?"),
        (("x.db", "--sql"), 2, "--sql, --shards and --schema are for PostgreSQL"),
        ((":memory:",), 2, "there is nothing to bring up to date"),
        (("mysql://localhost/x",), 6, "mysql:// databases are not supported"),
        (("postgresql://a:secret@127.0.0.1:1/x",), 6, "nobody answers there"),
        (("postgresql://a@127.0.0.1:1/x", "--shards", "0"), 2, "a database has 1 to 1024 shards, not 0"),
    ):
        result = world.perdure("db", "upgrade", *arguments)
        assert (result.exit_code, text in result.stderr) == (exit_code, True), result.stderr
        assert "Traceback" not in result.stderr and "secret" not in result.stderr


def test_a_damaged_log_is_told_by_every_command_and_left_behind_by_one(world):
    world.perdure("db", "upgrade", "new.db")
    whole = world.perdure("db", "recover", "new.db")
    damage_the_log(world.directory / "new.db")

    doctor = world.perdure("doctor", "--db", "new.db")
    listed = world.perdure("ls", "--db", "new.db")
    done = world.perdure("db", "recover", "new.db")
    after = world.perdure("doctor", "--db", "new.db")

    assert "there is nothing to recover" in whole.stdout
    assert doctor.exit_code == 6 and "new.db-wal is damaged in frame 1" in doctor.stderr
    assert listed.exit_code == 6 and "perdure db recover" in listed.stderr
    assert done.exit_code == 0 and "new.db goes on at entry 0. The damaged log is kept as" in done.stdout
    assert after.exit_code == 0, after.stderr


def damage_the_log(path: Path) -> None:
    """As an engine leaves it that was killed, and one bit of the first of two commits is another one."""
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    for number in (1, 2):
        connection.execute("INSERT INTO blobs VALUES (?, 0, x'00')", (hashlib.sha256(bytes([number])).digest(),))
    connection.close()
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
