-- Queues: what waits for whoever serves one, or is with them.

CREATE TABLE jobs (
    intent BLOB PRIMARY KEY,
    instance INTEGER NOT NULL,
    queue TEXT NOT NULL,
    function TEXT NOT NULL,
    delivery INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
