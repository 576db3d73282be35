"""Snapshots of whole worlds, beside a running engine or without one."""

from .blobs import StoredBlobs, in_thread
from .snapshots import Collected, Restored, Snapshots, Taken
from .verify import Verified, WorldDifference

__all__ = [
    "Collected",
    "Restored",
    "Snapshots",
    "StoredBlobs",
    "Taken",
    "Verified",
    "WorldDifference",
    "in_thread",
]
