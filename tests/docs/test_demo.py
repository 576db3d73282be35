"""The demo is a promise and a test: it exits with 0 only if nothing was lost and nothing was repeated."""

import subprocess
import sys

from tests.docs.pages import ROOT


def test_the_demo_keeps_its_promise():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.count("kill -9") == 2
    assert "BROKEN" not in done.stdout
