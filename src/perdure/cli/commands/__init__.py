"""The commands, a module for each group of them. `cli/verbs.py` says where a command is; its name there is its verb."""
