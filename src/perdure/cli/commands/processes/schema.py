"""`perdure processes schema`: the JSON Schema of a definition, for editors."""

from __future__ import annotations

import json

from perdure.processes.model import json_schema

from ...console import Console
from ...console import command as define
from ...text import joined


@define("processes schema", db="none")
def command(console: Console) -> None:
    found = json_schema()
    console.answer(found, joined(json.dumps(found, indent=2).split("\n")))
