"""The commands of `perdure playbooks`."""
