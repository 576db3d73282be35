-- Blobs are now what anybody may keep by content, and can be deleted. The large bodies of the journal cannot: their
-- table gets a name of its own.

ALTER TABLE blobs RENAME TO large_bodies;

CREATE TABLE blobs (
    digest BLOB PRIMARY KEY,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
