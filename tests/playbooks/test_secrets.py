"""Secrets of playbooks: values reach the tool, and no byte that is kept has them."""

import json
import sys
from pathlib import Path

import pytest

import perdure
from tests.executors.site import Site
from tests.playbooks.test_engine import book, start

CANARIES = {f"s{number}": f"canary-{number:02d}-äö\"'{number * 7919}" for number in range(50)}


async def echo(asked, writer):
    """All that was sent, and much more than fits into a receipt."""
    body = json.dumps(
        {"headers": asked.headers, "body": asked.body.decode(), "pad": "x" * 100_000}, ensure_ascii=False
    ).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def kept_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_fifty_canaries_are_in_no_byte_kept(tmp_path):
    fields = ", ".join(f"{name}: {name}" for name in CANARIES)
    texts = ", ".join(f'{name}: "<{{{{ keychain.k.{name} }}}}>"' for name in CANARIES)
    async with Site({"/": echo}) as site:
        playbook = book(
            f"""
            keychain: [{{name: k, map: {{{fields}}}}}]
            workflow:
              - step: a
                tool:
                  - {{name: ask, kind: http, method: POST, url: "{site.url()}", json: {{{texts}}}}}
                  - {{name: look, kind: noop, result: "{{{{ ask.body }}}}"}}
                  - {{name: err, kind: python, args: {{t: "{{{{ keychain.k.s7 }}}}"}}, code: "raise ValueError(t)",
                      spec: {{policy: {{rules: [{{else: {{then: {{do: skip, set_ctx: {{e: "{{{{ outcome.error.message }}}}"}}}}}}}}]}}}}}}
                  - {{name: last, kind: noop, result: "{{{{ look | length }}}}"}}
            """
        )
        url = tmp_path / "p.db"
        assert await start(playbook, url, secrets=CANARIES, allow=["127.0.0.1"]) > 500

    sent = json.loads(site.asked[0].body)
    assert sent == {name: f"<{value}>" for name, value in CANARIES.items()}
    kept = kept_bytes(tmp_path)
    for value in CANARIES.values():
        assert value[:10].encode() not in kept
    assert b"<secret s7>" in kept


async def test_a_caller_cannot_name_a_secret(tmp_path):
    playbook = book(
        """
        workload: {who: orders}
        workflow: [{step: a, tool: {kind: sqlite, auth: "{{ workload.who }}", query: "select 1 as n"}}]
        """
    )
    connections = {"orders": perdure.Secret("orders-dsn")}
    secrets = {"orders-dsn": str(tmp_path / "o.db"), "other": "never"}

    found = await start(playbook, secrets=secrets, connections=connections)
    assert found["rows"] == [{"n": 1}]
    try:
        await start(playbook, input={"who": "other"}, secrets=secrets, connections=connections)
        raise AssertionError("no connection has this name")
    except perdure.InstanceFailed as failed:
        assert "auth: a/a_task: the engine has no connection other" in str(failed)


async def test_a_secret_that_is_missing_is_an_error_that_rules_can_tell():
    playbook = book(
        """
        keychain: [{name: k, map: {t: nowhere}}]
        workflow: [{step: a, tool: {kind: shell, argv: [echo, "{{ keychain.k.t }}"]}, next: [{step: b, when: outcome.error.kind == 'secret_missing'}]},
                   {step: b, tool: {kind: noop, result: told}}]
        """
    )

    async with perdure.open(":memory:", workflows=[playbook], secrets=Forgetful()) as engine:
        handle = await engine.start(playbook, key="k")

        assert await handle.result(timeout=60) == "told"


class Forgetful:
    """It has a secret once: as the instance starts, and never again."""

    asked = 0

    def get(self, name):
        self.asked += 1
        if self.asked > 1:
            raise perdure.SecretMissing(name, "it was taken away")
        return "here"


async def test_a_missing_secret_is_told_at_the_start_unless_workers_have_it():
    text = "keychain: [{name: k, map: {t: nowhere}}]\nworkflow: [{step: a, tool: {kind: shell, argv: [echo, '{{ keychain.k.t }}']}}]"
    async with perdure.open(":memory:", workflows=[book(text)], secrets={}) as engine:
        with pytest.raises(perdure.SecretMissing, match="nowhere"):
            await engine.start("p", key="k")
    async with perdure.open(
        ":memory:", workflows=[book("executor: {spec: {queue: far}}\n" + text)], secrets={}
    ) as engine:
        assert (await engine.start("p", key="k")).key == "k"


async def test_a_tool_is_a_step_of_a_flow(tmp_path):
    @perdure.flow
    async def ask(ctx: perdure.Context) -> object:
        return await ctx.step("ask", perdure.tools.sqlite, auth="orders", query="select :n as n", params={"n": 4})

    connections = {"orders": perdure.Secret("orders-dsn")}
    async with perdure.open(
        ":memory:", workflows=[ask], connections=connections, secrets={"orders-dsn": str(tmp_path / "o.db")}
    ) as engine:
        handle = await engine.start(ask, key="k")
        assert await handle.result() == {"rows": [{"n": 4}], "row_count": 1, "columns": ["n"]}


async def test_the_result_of_a_tool_that_a_flow_calls_has_no_secret(tmp_path):
    @perdure.flow
    async def ask(ctx: perdure.Context) -> object:
        shown = {"t": perdure.Secret("token")}
        return await ctx.step("ask", perdure.tools.shell, argv=["sh", "-c", "echo $t"], env=shown)

    async with perdure.open(tmp_path / "o.db", workflows=[ask], secrets={"token": "canary-17"}) as engine:
        handle = await engine.start(ask, key="k")
        assert await handle.result() == "<secret token>"

    assert b"canary-17" not in kept_bytes(tmp_path)


async def test_a_package_that_is_missing_is_told_at_the_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)  # as if it were not installed
    async with perdure.open(
        ":memory:", workflows=[book("workflow: [{step: a, tool: {kind: duckdb, query: select 1}}]")]
    ) as engine:
        with pytest.raises(perdure.NotInstalled, match="duckdb"):
            await engine.start("p", key="k")
