"""How much each workload does. One place, because perdure and its peers must do the same."""

from __future__ import annotations

from typing import Final

W1_STEPS: Final = 1_000
W2_RUNS: Final = 1_000
W2_STEPS: Final = 5
W3_RUNS: Final = 300
W4_RUNS: Final = 1_000
W4_SECONDS: Final = 1.0
W5_MESSAGES: Final = 200
W6_RUNS: Final = 1_000
W6_STEPS: Final = 10
W6_DONE: Final = 5
"""Steps of each run that are recorded when the process is killed."""

W9_STEPS: Final = {100: 600, 1_000: 600, 10_000: 400, 100_000: 200, 1_000_000: 60}
"""Bytes of a result: how many steps with such a result one run does."""

WARM: Final = 20
"""Steps or runs before the measured ones, where something must get warm first."""
G1_WIDE: Final = 300
G2_LONG: Final = 100
GRAPH_ROUNDS: Final = 5
