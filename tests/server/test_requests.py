"""Random requests: whatever is asked, the answer is never an error of ours, and fits the document."""

import json
import random
import re
import tomllib
from importlib.metadata import distribution, requires
from pathlib import Path
from typing import Any

import jsonschema_rs

from perdure.server.openapi import document
from perdure.server.routes import ROUTES
from tests.server.site import ADMIN, run

API = "/api/v1"
TEXTS = [
    "",
    "order",
    "order/o-1",
    "o-1",
    "@1",
    "@99999999999999999999",
    "a/-/b",
    "é\u202e",
    "\x00",
    "x" * 600,
    "0",
    "-1",
    "%",
    "..",
    "a=b",
]
VALUES: list[Any] = [
    *TEXTS,
    None,
    True,
    -1,
    0,
    1,
    2**70,
    1.5,
    [],
    {},
    [1, "a"],
    {"a": {"b": []}},
    "2026-11-18T00:00:00Z",
    "not-a-time",
]
SEED = 20261118


def named(route, dice):
    path = route.path
    for name in route.in_path:
        text = dice.choice(["order/o-1", "order", "1", "decided", *TEXTS])
        path = path.replace(f"{{{name}}}", text.replace("%", "%25").replace("\x00", "%00") or "x")
    return path


def given(route, dice):
    from msgspec.structs import fields

    names = [field.encode_name for field in fields(route.params)]
    found = {name: dice.choice(VALUES) for name in names if name not in route.in_path and dice.random() < 0.6}
    if dice.random() < 0.1:
        found["unknown"] = 1
    return found


def test_random_requests_find_no_500():
    async def story(site):
        client = await site.key(ADMIN)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        site.server._buckets._rate = site.server._buckets._burst = 1e9
        dice, wrong = random.Random(SEED), []
        for route in ROUTES:
            for _ in range(15):
                path, said = named(route, dice), given(route, dice)
                more = {"params": {n: str(v) for n, v in said.items()}} if route.read else {"json": said}
                if route.name in ("result", "ask"):
                    more = {"params": {"wait": "0"}} if route.read else {"json": {"name": "n", "wait": 0.01}}
                answer = await client.request(route.method, API + path, **more)
                if answer.status_code >= 500 and answer.json()["code"] not in ("no-engine", "not-answered"):
                    wrong.append((route.name, path, said, answer.text[:300]))
        return wrong

    found = run(story)

    assert found == [], "\n".join(map(str, found[:5]))


def test_every_answer_of_a_read_fits_the_document():
    def schema_of(name):
        whole = document()
        for item in whole["paths"].values():
            for operation in item.values():
                if operation["operationId"] == name:
                    answer = operation["responses"].get("200") or operation["responses"]["201"]
                    return {**answer["content"]["application/json"]["schema"], "components": whole["components"]}
        raise AssertionError(name)

    async def story(site):
        client = await site.key(ADMIN)
        handle = await site.engine.start("order", key="o-1")
        await handle.until("waiting")
        await (await site.engine.start("approval", key="a-1")).until("waiting")
        task = (await client.get(f"{API}/tasks")).json()["items"]
        told = {}
        for route in ROUTES:
            if not route.read or route.name in (
                "drawing",
                "workflow drawing",
                "read",
                "ask verb",
                "trace",
                "bulk show",
                "bookmark show",
                "list export",
                "ctx",
                "tokens",
                "report",
                "effects ls",
                "manifest show",
                "manifest proposals",
                "manifest diff",
                "queue show",
                "queue jobs",
                "cells show",
                "version export",
                "version drawing",
            ):
                continue
            path = route.path.replace("{id}", "order/o-1").replace("{name}", "order").replace("{entry}", "1")
            path = path.replace("{version}", "1").replace("{dialect}", "process")
            path = path.replace("{task}", task[0]["id"] if task else "1")
            query = {"a": "order/o-1", "b": "order/o-1"} if route.name == "diff" else {}
            told[route.name] = await client.get(API + path, params=query)
        return told

    for name, answer in run(story).items():
        assert answer.status_code in (200, 202), (name, answer.text)
        schema = schema_of(name.replace(" ", "_"))
        problems = [str(each) for each in jsonschema_rs.validator_for(schema).iter_errors(answer.json())]
        assert not problems, (name, problems[:2])


def test_the_document_only_grows():
    """What the recorded document has stays: paths, methods, parameters, and fields of answers."""
    recorded = json.loads((Path(__file__).parent / "openapi.json").read_text())
    now = json.loads(json.dumps(document()))
    for path, item in recorded["paths"].items():
        for method, operation in item.items():
            names = {each["name"] for each in now["paths"][path][method]["parameters"]}
            assert {each["name"] for each in operation["parameters"]} <= names, (method, path)
    for name, schema in recorded["components"]["schemas"].items():
        assert set(schema.get("properties", {})) <= set(now["components"]["schemas"][name].get("properties", {})), name


def test_server_adds_at_most_8_packages_and_6_megabytes():
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    base = closure({name_of(line) for line in extras["dependencies"]})
    asked = closure({name_of(line) for line in extras["optional-dependencies"]["server"]})
    added = {name: size for name, size in asked.items() if name not in base}

    assert "uvicorn" in added
    assert len(added) <= 8 and sum(added.values()) <= 6_000_000, added


def name_of(requirement):
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0].lower()


def closure(names):
    """Packages with all that they need, and their bytes."""
    found: dict[str, int] = {}
    while names:
        name = names.pop()
        if name in found:
            continue
        files = [Path(str(each.locate())) for each in distribution(name).files or []]
        found[name] = sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc")
        names |= {name_of(line) for line in requires(name) or [] if ";" not in line}
    return found
