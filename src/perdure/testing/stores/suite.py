"""The whole suite. Each part has its file; they stand on `harness.py`, `rows.py`, `scripted.py` and `stories.py`."""

from .blobs import Blobs
from .checks import Checks
from .commits import Commits
from .forgetting import Forgetting
from .inbox import Inbox
from .leases import Leases
from .lists import Lists
from .loading import Loading
from .reads import Reads
from .tasks import Tasks
from .work import Work
from .world_snapshots import WorldSnapshots


class StoreConformance(
    Commits, Leases, Loading, Work, Inbox, Reads, Lists, Tasks, Blobs, WorldSnapshots, Forgetting, Checks
):
    """What every store keeps."""
