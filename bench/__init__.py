"""How fast is perdure? `python -m bench`; see docs/explanation/performance.md for what the numbers mean.

Two laws. A machine that runs other things gives other numbers, so what counts is a ratio to the floor
(SQLite's own commits), measured beside it in the same run, in passes that take turns. And a run that loses
anything has failed: every workload checks its results before it reports a time. Nothing here asserts a
time.
"""
