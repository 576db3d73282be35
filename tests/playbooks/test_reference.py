"""The reference of playbooks is made from the code: `python -m tests.playbooks.test_reference` writes its tables."""

from pathlib import Path

from perdure.playbooks.keys import KEYS
from perdure.playbooks.kinds import OURS
from perdure.playbooks.problem import CODES, WARNINGS
from perdure.tools import described

PAGE = Path(__file__).parents[2] / "docs" / "playbooks" / "reference.md"


def keys() -> str:
    parts = []
    for place, known in KEYS.items():
        rows = "\n".join(f"| `{key}` | {about} |" for key, about in known.items())
        parts.append(f"### `{place}`\n\n| key | meaning |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def kinds() -> str:
    parts = []
    for name, kind in OURS.items():
        rows = "\n".join(
            f"| `{key}` | {field.about}{' (needed)' if field.required else ''} |" for key, field in kind.fields.items()
        )
        parts.append(f"### `{name}`\n\n{kind.about}\n\n| parameter | meaning |\n|---|---|\n{rows}\n")
    for name, tool in described().items():
        rows = "\n".join(
            f"| `{key}` | {field['about']}{' (needed)' if field['required'] else ''} |"
            for key, field in tool["fields"].items()
        )
        parts.append(f"### `{name}`\n\n{tool['about']}\n\n| parameter | meaning |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def codes() -> str:
    problems = "\n".join(f"| `{code}` | {about} |" for code, about in CODES.items())
    warned = "\n".join(f"| `{code}` | {about} |" for code, about in WARNINGS.items())
    return f"| problem | meaning |\n|---|---|\n{problems}\n\n| warning | meaning |\n|---|---|\n{warned}\n"


TABLES = {"keys": keys, "kinds": kinds, "codes": codes}


def written(text: str) -> str:
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def test_the_reference_has_every_key_kind_and_code():
    assert PAGE.read_text() == written(PAGE.read_text()), "run: python -m tests.playbooks.test_reference"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
