"""Cells: keyed reducers. `(state, event, context) -> next state, domain events, effects`, and nothing else.

author.py     what a person writes: records, effects, `@cell`, `Next`
manifest.py   the same as data: schemas, effects, cells, routing; one hash
load.py       manifest files: JSON and YAML
compare.py    what differs between two manifests
check.py      what must hold of a manifest before anything runs
bind.py       a manifest joined with its code: the workflows that the kernel runs
machine.py    one cell
world.py      the one instance that takes events from outside and rules over the manifest
effects.py    effects that every world has
index.py      the states of many cells under one root
"""
