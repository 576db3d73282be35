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
          - {{name: one, kind: shell, script: "echo $$ >> {log}; test -e {log}.go || sleep 600; echo \\"$word\\"", args: {{word: "{{{{ keychain.k.word }}}}"}},
              spec: {{policy: {{rules: [{{when: outcome.status == 'error', then: {{do: fail}}}}, {{else: {{then: {{do: continue}}}}}}]}}}}}}
          - {{name: big, kind: python, code: "result = ['x' * 100] * 2000"}}
          - {{name: told, kind: noop, result: "{{{{ one }}}} {{{{ big | length }}}}"}}
"""


async def worker(url):
    command = ["-m", "perdure", "worker", "--queue", "far", "--tools", "--db", url]
    environment = {**os.environ, "PERDURE_SECRET_WORD": "canary-word-1"}
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, env=environment, stderr=asyncio.subprocess.DEVNULL
    )


async def line_of(file, number):
    """The line of a file, when it is there."""
    async with asyncio.timeout(60):
        while not os.path.exists(file) or len(lines_of(file)) < number:
            await asyncio.sleep(0.05)
    return lines_of(file)[number - 1]


def lines_of(file):
    with open(file) as stream:
        return stream.read().split()


async def test_the_action_of_a_killed_worker_is_done_by_another(url, tmp_path):
    log = tmp_path / "log"
    playbook = book(FAR.format(log=log))
    async with perdure.open(url, workflows=[playbook]) as engine:
        first = await worker(url)
        handle = await engine.start(playbook, {}, key="k")
        await line_of(log, 1)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        (tmp_path / "log.go").touch()
        second = await worker(url)
        try:
            assert await asyncio.wait_for(handle.result(), 90) == "<secret word> 2000"
        finally:
            second.terminate()
            await second.wait()
    os.kill(int(lines_of(log)[0]), signal.SIGKILL)
