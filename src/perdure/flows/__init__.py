"""Flows: durable async functions. The dialect of ordinary Python.

`author.py` what is written, `context.py` what its body may ask for, `machine.py` how it is driven, `loop.py`
the deterministic event loop, `log.py` and `rewind.py` how it is rebuilt, `source.py` what should not stand in it.
"""
