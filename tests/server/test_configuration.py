"""Settings of a server: which place wins, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.errors import CallerError
from perdure.server import Settings
from perdure.server.configuration import OPTIONS, configured, told
from perdure.server.settings import secret_of

DOCS = Path(__file__).parents[2] / "docs" / "server" / "README.md"


def test_a_flag_wins_over_the_environment_over_a_file_over_the_default(tmp_path):
    (tmp_path / "perdure.toml").write_text(
        '[server]\nlisten = "a:1"\nread_only = true\nhosts = ["x.example"]\nui = false\n'
    )
    environ = {"PERDURE_LISTEN": "b:2", "PERDURE_READ_ONLY": "0", "PERDURE_QUEUES": "images=8; mail=2"}

    found = configured({"listen": "c:3"}, environ, tmp_path)

    assert found["listen"] == ("c:3", "the flag --listen")
    assert found["read_only"] == (False, "PERDURE_READ_ONLY")
    assert found["queues"] == (("images=8", "mail=2"), "PERDURE_QUEUES")
    assert found["hosts"] == (("x.example",), "perdure.toml")
    assert found["ui"] == (False, "perdure.toml")
    assert found["connect"] == (False, "default")


def test_pyproject_has_settings_where_perdure_toml_has_none(tmp_path):
    (tmp_path / "perdure.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text('[tool.perdure.server]\nlisten = "a:1"\n')

    assert configured({}, {}, tmp_path)["listen"] == ("a:1", "pyproject.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('lisen = "a:1"', "did you mean 'listen'?"),
        ("listen = 7373", "listen is a text, found 7373"),
        ('hosts = "a.example"', "hosts is a list of texts"),
        ("hosts = [1]", "hosts is a list of texts"),
        ('read_only = "yes"', "read_only is true or false"),
        ('secret = "in plain sight"', "set PERDURE_SERVER_SECRET, or write file:PATH"),
        ('secret = "file:/nowhere/secret"', "cannot be read from /nowhere/secret"),
        ('db = "postgresql://ann:pw@db/shop"', "set PERDURE_DB instead"),
        ("listen", "cannot be read"),
        ('[servr]\nlisten = "a:1"', "no table is named 'servr'; did you mean 'server'?"),
    ],
)
def test_what_a_file_may_not_say_is_refused(tmp_path, text, says):
    (tmp_path / "perdure.toml").write_text(f"[server]\n{text}\n")

    with pytest.raises(CallerError) as refused:
        configured({}, {}, tmp_path)

    assert says in str(refused.value)
    assert "pw" not in str(refused.value)


def test_a_variable_that_is_nearly_one_of_a_setting_is_refused_and_others_are_left_alone(tmp_path):
    others = ("TOKEN", "SERVER", "DEBUG", "ACTOR", "ROLES", "SECRET_BANK", "TEST_POSTGRES", "FUZZ", "IDEMPOTENCY_KEY")
    configured({}, {f"PERDURE_{name}": "x" for name in others} | {"READONLY": "1"}, tmp_path)

    for name, meant in (("PERDURE_READONLY", "PERDURE_READ_ONLY"), ("PERDURE_HOST", "PERDURE_HOSTS")):
        with pytest.raises(CallerError, match=f"no setting has the variable {name}; did you mean {meant}"):
            configured({}, {name: "1"}, tmp_path)


def test_a_switch_in_the_environment_is_1_or_0(tmp_path):
    with pytest.raises(CallerError, match="PERDURE_UI is 1 or 0"):
        configured({}, {"PERDURE_UI": "perhaps"}, tmp_path)


def test_a_secret_comes_from_the_environment_or_a_file_and_is_not_told(tmp_path):
    (tmp_path / "secret").write_text("a secret in a file\n")
    option = next(option for option in OPTIONS if option.name == "secret")

    plain = configured({}, {"PERDURE_SERVER_SECRET": "a secret of the environment"}, tmp_path)["secret"]
    filed = configured({}, {"PERDURE_SERVER_SECRET": f"file:{tmp_path / 'secret'}"}, tmp_path)["secret"]

    assert (plain.value, filed.value) == ("a secret of the environment", "a secret in a file")
    assert told(option, plain.value) == "set"


def test_a_secret_that_no_place_gives_is_made_once_for_this_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("PERDURE_SERVER_SECRET", raising=False)

    made, again = secret_of(Settings()), secret_of(Settings())

    file = tmp_path / "perdure" / "server.secret"
    assert made == again == file.read_bytes()
    assert len(made) == 64 and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CallerError, match="at least 16"):
        secret_of(Settings(secret="short"))


def test_config_tells_each_setting_and_its_origin(tmp_path):
    (tmp_path / "perdure.toml").write_text('[server]\nlisten = "127.0.0.1:99"\n')
    env = {**os.environ, "PERDURE_DB": "postgresql://ann:pw@db/shop", "PERDURE_SERVER_SECRET": "not to be shown"}
    command = [sys.executable, "-m", "perdure", "config", "--json"]

    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout

    found = json.loads(said)
    assert found["listen"] == {"value": "127.0.0.1:99", "origin": "perdure.toml"}
    assert found["db"] == {"value": "postgresql://ann@db/shop", "origin": "PERDURE_DB"}
    assert found["secret"]["value"] == "set"
    assert set(found) == {option.name for option in OPTIONS}
    assert "not to be shown" not in said


def test_serve_takes_its_settings_from_a_file(tmp_path):
    (tmp_path / "perdure.toml").write_text('[server]\ndb = "shop.db"\nlisten = "0.0.0.0:0"\n')
    env = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    command = [sys.executable, "-m", "perdure", "serve"]

    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, "0.0.0.0 is reached from elsewhere" in ended.stderr) == (2, True)


def test_the_page_of_the_server_has_every_setting():
    text = DOCS.read_text()

    for option in OPTIONS:
        flag = f"`{option.flag}`" if option.flag else ""
        assert f"| `{option.name}` | {flag} | `{option.variable}` |".replace("|  |", "| |") in text, option.name
