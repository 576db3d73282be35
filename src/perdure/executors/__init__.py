"""Executors: inline (a task of the engine's loop), thread, process. They perform calls and answer with receipts."""
