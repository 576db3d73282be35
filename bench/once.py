"""One pass of one workload, in a process of its own: no pass inherits the memory or the warm code of another.

    python -m bench.once W1 perdure DIRECTORY

prints the measures as JSON. A peer may need other packages; then this is what its own interpreter runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.workloads import BY_NAME


def main(name: str, system: str, place: str) -> None:
    print(json.dumps(BY_NAME[name].systems[system](Path(place))))


if __name__ == "__main__":
    main(*sys.argv[1:])
