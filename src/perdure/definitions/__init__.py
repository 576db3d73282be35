"""Definitions that are data, kept in the journal: who registered which bytes when, and which version is active.

A definition lives in the built-in instance `perdure.definition/<name>`. There is no table of definitions: the machine
publishes each version's bytes, and `load.py` reads them there. Processes and playbooks use this package.
"""
