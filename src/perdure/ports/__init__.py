"""Ports: protocols only. What the runtime needs of a store, an executor and a clock, and nothing of how they do it."""
