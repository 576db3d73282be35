"""The runtime: the loop around a kernel. `loop.py` is THE loop; start there."""
