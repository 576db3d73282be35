"""Workers as real processes perform the tools of playbooks."""

import asyncio
import os
import signal
import sys

import perdure
from tests.playbooks.test_engine import book

FAR = """
    executor: {{spec: {{queue: far}}}}
    keychain: [{{name: k, map: {{word: word}}}}]
    workflow:
      - step: a
        tool:
          - {{name: one, kind: shell, script: "test -e {began}.go || (echo $$ > {began}; sleep 600); test -e {began}.again || {{ touch {began}.again; exit 3; }}; echo \\"$word\\"", args: {{word: "{{{{ keychain.k.word }}}}"}},
              spec: {{policy: {{rules: [{{when: outcome.status == 'error', then: {{do: retry, attempts: 2, delay: 0, set_ctx: {{code: "{{{{ outcome.error.kind }}}}"}}}}}}, {{else: {{then: {{do: continue}}}}}}]}}}}}}
          - {{name: big, kind: python, code: "result = ['x' * 100] * 2000"}}
          - {{name: told, kind: noop, result: "{{{{ ctx.code }}}} {{{{ one }}}} {{{{ big | length }}}}"}}
"""


async def worker(url):
    command = ["-m", "perdure", "worker", "--queue", "far", "--tools", "--db", url]
    environment = {**os.environ, "PERDURE_SECRET_WORD": "canary-word-1"}
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, env=environment, stderr=asyncio.subprocess.DEVNULL
    )


def _first_line(fifo):
    with open(fifo) as stream:
        return stream.readline()


async def test_the_action_of_a_killed_worker_is_done_by_another_and_its_policy_survives(url, tmp_path):
    began = tmp_path / "began"
    os.mkfifo(began)
    playbook = book(FAR.format(began=began))
    async with perdure.open(url, workflows=[playbook]) as engine:
        first = await worker(url)
        handle = await engine.start(playbook, {}, key="k")
        pid = int(await asyncio.to_thread(_first_line, began))
        first.send_signal(signal.SIGKILL)
        await first.wait()
        (tmp_path / "began.go").touch()
        second = await worker(url)
        try:
            assert await asyncio.wait_for(handle.result(), 90) == "exit_code <secret word> 2000"
        finally:
            second.terminate()
            await second.wait()
    os.kill(pid, signal.SIGKILL)
