"""Other engines, each in a virtual environment of its own under bench/.venvs, made at the first use.

A peer's file runs in the interpreter of that environment, where there is no perdure, and prints measures as JSON:

    python -m bench.peers.dbos W1 DIRECTORY URL async 1000
"""
