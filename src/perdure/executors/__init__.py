"""Executors: inline (a task of the engine's loop), thread, process. Each performs calls and answers with receipts."""
