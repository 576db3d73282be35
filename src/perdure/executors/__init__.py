"""Executors: inline (a task of the engine's loop), thread, process. They perform calls and answer with receipts.

Beside them is what calls to the outside need: HTTP requests (`http.py`, guarded by `address.py`), signatures of
receipts (`signatures.py`), secrets by reference (`secrets.py`, `redaction.py`).
"""
