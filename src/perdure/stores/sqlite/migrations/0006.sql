-- Snapshots of a whole world: blobs, and here which of them are retained.

CREATE TABLE world_snapshots (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    hash BLOB NOT NULL,
    taken_at INTEGER NOT NULL,
    inbox BLOB NOT NULL,
    base INTEGER NOT NULL
) STRICT;
