"""The kernel: events in, decisions out, one journal. Pure: no async, no I/O, no clock, no randomness.

Read in this order: `status`, `events`, `effects`, `decision`, `machine` (THE contract), `apply` (the only state
change), `kernel` (offer and advance), `replay`.
"""
