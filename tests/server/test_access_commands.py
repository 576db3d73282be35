"""`perdure access …`: keys and grants from the command line, as a server knows them."""

import asyncio
import json

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli import cli
from tests.server.site import site

API = "/api/v1"


@pytest.fixture
def access(tmp_path):
    def call(*words, code=0):
        found = CliRunner().invoke(cli, ["access", *words, "--db", str(tmp_path / "shop.db"), "--json"])
        assert found.exit_code == code, found.output
        return json.loads(found.stdout) if found.stdout and not code else found.stderr

    call.path = str(tmp_path / "shop.db")  # type: ignore[attr-defined]
    asyncio.run(made(call.path))  # type: ignore[attr-defined]
    return call


async def made(path):
    """A database, as an engine makes it."""
    async with perdure.open(path, drain=0):
        pass


@pytest.mark.parametrize(
    "words", [("key", "crm", "--grant", "operator *"), ("revoke", "x"), ("grant", "ann", "--grant", "admin"), ("keys",)]
)
def test_a_database_that_does_not_exist_is_refused_and_not_made(tmp_path, words):
    path = tmp_path / "typo.db"

    found = CliRunner().invoke(cli, ["access", *words, "--db", str(path)])

    assert (found.exit_code, found.stdout) == (6, "")
    assert "there is no database" in found.stderr and not path.exists()


def test_the_audit_says_what_was_refused_and_why(access):
    access("revoke", "nothing", code=3)

    (entry,) = access("audit")["entries"]

    assert (entry["what"], entry["details"]) == (
        "key revoke",
        {"id": "nothing", "refused": "there is no key 'nothing'"},
    )


def test_a_key_of_the_command_line_is_a_login_until_it_is_revoked(access):
    made = access("key", "crm", "--grant", "operator order,refund* no-values", "--role", "clerk", "--days", "1")
    bearer = {"authorization": f"Bearer {made['key']}"}

    async def asked():
        async with site(access.path) as found:
            return await found.client(headers=bearer).get(f"{API}/whoami")

    before = asyncio.run(asked())
    listed = access("keys")["keys"]
    access("revoke", made["id"])
    after = asyncio.run(asked())

    assert before.json()["grants"] == [{"role": "operator", "workflows": ["order", "refund*"], "values": False}]
    assert before.json()["roles"] == ["clerk"]
    assert [(each["id"], each["actor"]) for each in listed] == [(made["id"], "crm")]
    assert made["key"] not in json.dumps(listed) and "digest" not in json.dumps(listed)
    assert after.status_code == 401
    assert access("keys")["keys"][0]["revoked_at"] is not None


def test_grants_are_given_listed_and_taken_and_the_audit_knows(access):
    access("grant", "ann", "--grant", "admin")
    access("grant", "bob", "--grant", "viewer order", "--role", "manager")
    before = access("grants")["people"]
    access("grant", "bob")
    last = access("grant", "ann", code=4)

    assert before["bob"] == {
        "grants": [{"role": "viewer", "workflows": ["order"], "values": True}],
        "roles": ["manager"],
    }
    assert set(access("grants")["people"]) == {"ann"}
    assert "last admin" in last
    assert [each["what"] for each in access("audit")["entries"]] == ["grant"] * 4


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("key", "crm"), 2),
        (("key", "crm", "--grant", "king"), 2),
        (("key", "crm", "--grant", "viewer", "--days", "0"), 2),
        (("key", "crm", "--grant", "viewer", "--executor", "x"), 2),
        (("revoke", "nothing"), 3),
    ],
)
def test_what_makes_no_sense_is_refused(access, words, code):
    access(*words, code=code)


def test_people_read_tables(access, tmp_path):
    access("key", "crm", "--grant", "viewer")
    access("grant", "ann", "--grant", "admin", "--role", "boss")

    def said(*words):
        return CliRunner().invoke(cli, ["access", *words, "--db", access.path]).stdout

    assert "crm" in said("keys") and "viewer *" in said("keys")
    assert "admin *; role boss" in said("grants")
    assert "key add" in said("audit")
