-- The first schema.

CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    instance INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX journal_by_instance ON journal (instance);

CREATE TABLE blobs (
    digest BLOB PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE instances (
    id INTEGER PRIMARY KEY,
    workflow TEXT NOT NULL,
    key TEXT NOT NULL,
    generation INTEGER NOT NULL,
    version TEXT NOT NULL,
    status TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    input_hash BLOB NOT NULL,
    tags TEXT NOT NULL,
    outcome BLOB
) STRICT;

CREATE UNIQUE INDEX instances_by_name ON instances (workflow, key, generation);

CREATE INDEX instances_by_workflow ON instances (workflow);
CREATE INDEX instances_by_status ON instances (status);

CREATE INDEX instances_by_parent ON instances (parent) WHERE parent <> 0;

CREATE TABLE open_work (
    intent BLOB PRIMARY KEY,
    instance INTEGER NOT NULL,
    kind TEXT NOT NULL,
    due INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX open_work_by_due ON open_work (due);

CREATE TABLE inbox (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    key TEXT NOT NULL,
    instance INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX inbox_by_name ON inbox (workflow, key);

CREATE TABLE snapshots (
    instance INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE published (
    instance INTEGER NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (instance, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE shards (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    since INTEGER NOT NULL
) STRICT;

CREATE TABLE workflows (
    name TEXT PRIMARY KEY,
    version TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO shards VALUES (0, 0, '', 0, '', 0);
