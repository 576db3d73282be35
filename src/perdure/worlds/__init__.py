"""Worlds of cells as a whole: their manifest and its change, shadow runs, snapshots.

files.py        manifest files
governance.py   how people change the manifest of a running world
shadow.py       what a manifest would do, on a copy
snapshots/      a whole world at an entry: taken, checked, restored
"""
