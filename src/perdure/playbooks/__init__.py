"""Playbooks: workflows written in YAML as Petri nets."""
