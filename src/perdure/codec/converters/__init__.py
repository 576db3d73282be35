"""One converter for each kind of annotation; `table.py` lists them."""
