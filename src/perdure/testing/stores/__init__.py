"""What every store keeps, as tests: derive a class from `StoreConformance`, give it a harness, run pytest.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

A harness stands for one empty database. The batches come from the real kernel wherever the story is about
workflows, driven by `SmallShard`, the smallest shard there can be; the rest is rows by hand. The memory store is
the model: after the same random story, every read of the store under test must equal the memory store's.
"""

from .harness import FullStore, Harness, MemoryHarness, ask, flipped
from .rows import batch, entry, head, message
from .suite import StoreConformance

__all__ = [
    "FullStore",
    "Harness",
    "MemoryHarness",
    "StoreConformance",
    "ask",
    "batch",
    "entry",
    "flipped",
    "head",
    "message",
]
