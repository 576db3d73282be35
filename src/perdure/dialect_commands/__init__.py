"""Commands of single dialects, and the demo: what `cli` does not know. `table.py` names them; a group has a module."""
