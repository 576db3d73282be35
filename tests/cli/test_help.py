"""Help is quick, complete, and says the same as the reference."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from perdure.cli.exits import MEANING
from perdure.cli.verbs import GROUPS, VERBS, place_of
from perdure.verbs import table

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
COMMANDS = Path(sys.modules["perdure.cli"].__path__[0]) / "commands"
WITHOUT_DATABASE = {
    *("check", "copy", "db recover", "db upgrade", "manifest build", "manifest check", "manifest diff"),
    *("playbooks fmt", "playbooks render", "playbooks simulate", "playbooks test"),
    *("processes functions", "processes schema"),
}


def test_help_lists_every_verb_and_exit_code(world):
    text = world.perdure("--help").stdout

    for verb in VERBS.values():
        assert re.search(rf"^  {verb.name} +{re.escape(verb.help)}", text, re.MULTILINE)
    for code in MEANING:
        assert re.search(rf"^  {int(code)} ", text, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))
def test_help_of_a_verb_has_an_example_and_the_shared_options(world, verb):
    result = world.perdure(*verb.name.split(), "--help")

    assert result.exit_code == 0
    assert verb.example in result.stdout
    assert verb.example.startswith(f"perdure {verb.name} ")
    for option in ("--json", "--debug"):
        assert option in result.stdout
    for option in ("--db", "PERDURE_DB"):
        assert (option in result.stdout) == (verb.name not in WITHOUT_DATABASE)


def test_the_table_and_the_modules_name_the_same_verbs():
    modules = {place_of(row)[0] for row in VERBS.values()}

    assert {f"perdure.cli.commands.{file.stem}" for file in COMMANDS.glob("[a-z]*.py")} <= modules
    assert {name.partition(" ")[0] for name in VERBS if " " in name} == set(GROUPS)
    for module in modules:
        found = {id(each) for each in vars(import_module(module)).values() if isinstance(each, click.Command)}
        assert found == {id(command_of(name)) for name, row in VERBS.items() if place_of(row)[0] == module}
    for name in VERBS:
        assert command_of(name).name == name.split()[-1]


def test_every_verb_that_all_faces_share_is_a_command():
    assert set(table.VERBS) - set(VERBS) == {"trace"}  # `perdure cells trace`


def command_of(verb):
    module, name = place_of(VERBS[verb])
    return getattr(import_module(module), name)


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_lists_its_verbs(world, group):
    text = world.perdure(group, "--help").stdout

    for verb in VERBS.values():
        if verb.name.startswith(f"{group} "):
            assert re.search(rf"^  {verb.name.split()[1]} +{re.escape(verb.help)}", text, re.MULTILINE)


def test_help_imports_neither_the_engine_nor_its_database():
    code = (
        "import sys\nfrom perdure.cli import cli\n"
        "try: cli(['--help'], prog_name='perdure')\nexcept SystemExit: pass\n"
        "heavy = {'apsw', 'asyncio', 'msgspec', 'cbor2', 'perdure.app', 'perdure.kernel'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"


def test_the_public_names_are_all_there():
    import perdure

    assert all(getattr(perdure, name) is not None for name in perdure.__all__)
    assert set(perdure.__all__) <= set(dir(perdure))
    assert not hasattr(perdure, "flwo")


def test_the_version_is_told(world):
    assert re.fullmatch(r"perdure \d+\.\d+\.\d+\S*\n", world.perdure("--version").stdout)


def test_the_console_script_is_installed():
    script = Path(sys.executable).parent / "perdure"

    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("perdure ")


def test_colours_are_for_terminals_and_respect_no_color(world, monkeypatch):
    world.perdure("run", "flows:order", "--input", '["a"]')
    from click.testing import CliRunner

    from perdure.cli import cli

    def ls(color, no_color):
        env = {"PERDURE_DB": world.db, "NO_COLOR": no_color}
        return CliRunner().invoke(cli, ["ls"], env=env, color=color).stdout

    assert "\x1b[32m" in ls(color=True, no_color=None)
    assert "\x1b" not in ls(color=False, no_color=None)
    assert "\x1b" not in ls(color=True, no_color="1")
    assert "\x1b" not in world.call("ls", PERDURE_DB=world.db)[1]


def test_the_reference_has_every_verb_option_and_exit_code():
    text = REFERENCE.read_text()

    for name in VERBS:
        _, found, section = text.partition(f"\n## perdure {name}\n")
        assert found, f"docs/reference/cli.md says nothing of {name}"
        section = section.partition("\n## ")[0]
        for parameter in command_of(name).params:
            if parameter.name not in ("json", "debug", "db", "server"):
                assert _mentioned(parameter, section), f"{name}: {parameter.name}"
    for code, meaning in MEANING.items():
        assert f"| {int(code)} | {meaning} |" in text


def _mentioned(parameter, section):
    names = parameter.opts if parameter.param_type_name == "option" else [parameter.name.upper()]
    return parameter.metavar in section if "MODULE" in (parameter.metavar or "") else names[0] in section
