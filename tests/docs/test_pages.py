"""Links lead somewhere, names in the architecture exist, the reference is complete."""

import ast
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

import perdure
from perdure import errors
from perdure.flows.author import StepOptions
from perdure.testing import World, WorldHandle, crash_test
from tests.docs.pages import OWN, PAGES, ROOT, anchors, links, name_of, prose

ARCHITECTURE = ROOT / "docs" / "architecture.md"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
FLOWS = ROOT / "docs" / "flows" / "reference.md"
ELSEWHERE = ROOT / "docs" / "flows" / "coming-from-elsewhere.md"
TESTING = ROOT / "docs" / "reference" / "testing.md"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_page_and_a_heading(page: Path):
    broken = []
    for link in links(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


def test_every_page_can_be_reached_from_the_readme():
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
        ahead += [target for target in targets if target.suffix == ".md" and target not in reached]

    assert {name_of(page) for page in PAGES} <= {name_of(page) for page in reached}


def test_every_file_that_the_architecture_names_exists():
    named = set(re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", prose(ARCHITECTURE)))

    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("section", ["## Follow one event", "## Follow one request"])
def test_every_function_of_the_five_hops_exists_in_the_file_that_is_named_for_it(section: str):
    hops = prose(ARCHITECTURE).partition(section)[2].partition("\n## ")[0]
    missing = []
    place: dict[str, str] = {}  # where a class was last said to live
    for name, path in re.findall(r"`(\w+(?:\.\w+)?)`(?:\s+\(`(src/[\w/.]+)`\))?", hops):
        owner = name.partition(".")[0]
        if path:
            place[owner] = path
        if owner in place and name not in definitions(ROOT / place[owner]):
            missing.append(f"{name} in {place[owner]}")

    assert missing == []
    assert len(place) >= 7
    assert hops.count("\n1. ") + hops.count("\n5. ") == 2


def definitions(path: Path) -> set[str]:
    """Functions and classes of a module, and methods as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


def test_every_error_is_in_the_reference_with_the_text_of_its_docstring():
    sections = dict(re.findall(r"(?ms)^### (\w+)\n(.*?)(?=^##|\Z)", ERRORS.read_text()))

    assert sorted(sections) == sorted(errors.__all__)
    for name, text in sections.items():
        kind = getattr(errors, name)
        assert (inspect.getdoc(kind) or "?") in text, name
        assert all(f"`{base.__name__}`" in text for base in kind.__bases__), name


def test_every_operation_of_the_context_is_in_the_reference():
    operations = [name for name in dir(perdure.Context) if not name.startswith("_")]

    assert [name for name in operations if f"ctx.{name}" not in FLOWS.read_text()] == []


@pytest.mark.parametrize("kind", [perdure.Handle, perdure.Client], ids=lambda kind: kind.__name__)
def test_every_method_of_handle_and_client_is_in_the_reference(kind: type):
    text = FLOWS.read_text()
    methods = [name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")]

    assert [name for name in methods if f"`{name}(" not in text and f"await {name}(" not in text] == []


@pytest.mark.parametrize("function", [perdure.open, perdure.connect, perdure.run], ids=lambda f: f.__name__)
def test_every_parameter_of_open_connect_and_run_is_in_the_reference_with_its_default(function):
    heading = next(
        line for line in FLOWS.read_text().splitlines() if line.startswith(f"### `perdure.{function.__name__}(")
    )

    for parameter in inspect.signature(function).parameters.values():
        assert parameter.name in heading
        if parameter.default is not parameter.empty:
            shown = repr(parameter.default).replace("'", '"')
            assert f"{parameter.name}={shown}" in heading


def test_every_option_of_step_and_flow_is_in_the_reference():
    text = FLOWS.read_text()
    options = [*StepOptions.__struct_fields__, *inspect.signature(perdure.flow).parameters]

    assert [name for name in options if name != "function" and f"| `{name}` |" not in text] == []


def test_what_the_words_of_other_systems_become_exists_here():
    """The last cell of each row is ours: what it calls must be there."""
    homes = {"ctx": perdure.Context, "handle": perdure.Handle, "engine": perdure.Engine, "perdure": perdure}
    rows = [line for line in prose(ELSEWHERE).splitlines() if line.startswith("| ")]
    named = [found for row in rows for found in re.findall(r"\b(\w+)\.(\w+)\b", row.split(" | ")[-1])]
    known = [(home, name) for home, name in named if home in homes]

    assert len(known) > 40
    assert [f"{home}.{name}" for home, name in known if not hasattr(homes[home], name)] == []


def test_six_operations_of_other_systems_are_shown_side_by_side():
    headings = re.findall(r"(?m)^### (.+)$", prose(ELSEWHERE))

    assert headings == ["listen", "waitForSignal", "Side effect", "Continue-as-new", "patched", "Saga"]


def test_pages_name_no_machine():
    """No paths of somebody's home, no hosts but public ones."""
    found = [
        f"{name_of(page)}: {match}"
        for page in OWN
        for match in re.findall(r"/(?:home|root|Users|work|tmp)/\S+", page.read_text())
    ]

    assert found == []


@pytest.mark.parametrize("kind", [World, WorldHandle], ids=lambda kind: kind.__name__)
def test_every_member_of_worlds_and_their_handles_is_in_the_reference(kind: type):
    text = TESTING.read_text()
    members = [name for name in dir(kind) if not name.startswith("_")]

    assert [name for name in members if f"`{name}(" not in text and f"`{name}`" not in text] == []


def test_every_option_of_a_crash_test_is_in_the_reference_with_its_default():
    text = TESTING.read_text()
    heading = next(line for line in text.splitlines() if line.startswith("## `crash_test("))

    for parameter in inspect.signature(crash_test).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            shown = repr(parameter.default).replace("'", '"')
            assert f"{parameter.name}={shown}" in heading
            assert f"| `{parameter.name}` |" in text


@pytest.mark.parametrize("page", OWN, ids=name_of)
def test_no_list_names_a_page_twice(page: Path):
    rows = re.findall(r"^(?:\| |- )\[[^]]*\]\(([^)]+)\)", page.read_text(), re.MULTILINE)

    assert [target for target, times in Counter(rows).items() if times > 1] == []
