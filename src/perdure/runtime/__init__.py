"""The runtime: the loop around a kernel. `shard.py` is THE loop; start there."""
