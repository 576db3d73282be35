"""The only wiring: the place that builds stores and executors, and knows which dialects there are.

engine.py     perdure.open: an engine on a file, in memory, or as a member of a fleet
clients.py    perdure.connect, perdure.run
dialects.py   what users pass to workflows=, by dialect
effects.py    who performs named effects
urls.py       which store a URL names
fleets.py     engines and clients of a server
workers.py    queues, and workers that serve them
dispatch.py   queues that a cluster serves
runner.py     what the machines of a cluster call
copy.py       a stopped world into another database
"""

from .clients import connect, run, run_async
from .dispatch import Dispatch
from .engine import Engine, open
from .urls import is_server

__all__ = ["Dispatch", "Engine", "connect", "is_server", "open", "run", "run_async"]
