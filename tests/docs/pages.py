"""Reading the documentation as a machine: pages, their fenced blocks, their links.

The rules for authors of pages (tests/docs/test_snippets.py enforces them):

- ```python                     runs; the snippets of a page are one script, from top to bottom
- ```python file=shop.py        is written to that file, for the commands that follow; so is ```yaml file=shop.yaml
- ```text prints                is exactly what the snippets above it, since the last such block, print
- ```console                    `$ ` lines run in bash; the others are what they print (`...`: anything)
- <!-- not run: reason -->      on the line before a block: it does not run, and this is why

Pages in docs/operate find the URL of a PostgreSQL database in PERDURE_DB, where nothing has been made yet.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OWN = [page for page in PAGES if "decisions" not in page.parts]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_NOT_RUN = re.compile(r"<!-- not run: *(?P<reason>.*?) *-->")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass
class Block:
    page: Path
    line: int  # of its first line of text, from 1
    language: str
    options: list[str]
    text: str
    not_run: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        return next((option[5:] for option in self.options if option.startswith("file=")), None)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == "```")
        language, *options = opened["info"].split() or [""]
        body = textwrap.dedent("\n".join(lines[number + 1 : end]))
        before = next((line for line in reversed(lines[:number]) if line.strip()), "")
        skipped = _NOT_RUN.search(before)
        reason = skipped["reason"] if skipped is not None else None
        found.append(Block(page, number + 2, language, options, body, reason))
        number = end + 1
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    kept, inside = [], False
    for line in page.read_text().splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def links(page: Path) -> list[str]:
    return [found["target"] for found in _LINK.finditer(prose(page))]


def anchors(page: Path) -> set[str]:
    """The names that a heading gets on the usual web pages for Markdown."""
    titles = [line.lstrip("#").strip() for line in prose(page).splitlines() if line.startswith("#")]
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}
