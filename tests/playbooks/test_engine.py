"""Playbooks in a real engine: real tools, real files, crashes."""

import asyncio
import textwrap

import perdure
from perdure.app.playbooks import load_playbook
from tests.playbooks.stage import HEAD


def book(body):
    return load_playbook(HEAD + textwrap.dedent(body))


async def start(playbook, url=":memory:", key="k", input=None, **options):
    async with perdure.open(url, workflows=[playbook], **options) as engine:
        handle = await engine.start(playbook, input or {}, key=key)
        return await asyncio.wait_for(handle.result(), 20)


async def test_a_playbook_moves_rows_between_databases(tmp_path):
    playbook = book(
        f"""
        workflow:
          - step: load
            tool:
              - {{name: make, kind: sqlite, dsn: {tmp_path}/a.db, script: "create table t (n int); insert into t values (1), (2), (3)"}}
              - {{name: read, kind: sqlite, dsn: {tmp_path}/a.db, query: "select n from t where n > :least", params: {{least: 1}}}}
              - {{name: sum, kind: duckdb, query: "select sum(n)::int as total from (select unnest(:ns) as n)",
                  params: {{ns: "{{{{ read.rows | map(attribute='n') | list }}}}"}}}}
              - {{name: ask, kind: python, args: {{x: "{{{{ sum.rows[0].total }}}}"}}, code: "return x * 2"}}
              - {{name: say, kind: shell, command: "echo total {{{{ ask }}}}"}}
        """
    )

    assert await start(playbook) == "total 10"
