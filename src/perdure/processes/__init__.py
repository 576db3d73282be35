"""Processes: declarative workflows with human tasks."""
