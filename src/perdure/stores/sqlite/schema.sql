-- The whole schema. Migrations end here: tests/stores/test_schema.py proves it.
--
-- The journal is the truth. `instances`, `tags`, `counts`, `open_work`, `jobs`, `published`, `tasks` and
-- `task_candidates` can be rebuilt from it (stores/rebuild.py).
-- The inbox holds what was accepted and is not recorded yet. There are no foreign keys: rows are written in
-- batches by one writer whose bookkeeping the conformance suite checks, and every key would cost a lookup per row.

-- One row per entry. A body over 64 KiB stands in `large_bodies`; the row then has a zero byte and the digest.
-- `snapshot` is what was left beside the entry when it was written: its instance after it. Most have none.
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    instance INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    snapshot BLOB
) STRICT;

-- An index ends with the row's key, so this one is (instance, seq): one instance's history, in order.
CREATE INDEX journal_by_instance ON journal (instance);

-- Only for the journal, and never deleted. (The quotes are what SQLite writes when a table is renamed: migration 4.)
CREATE TABLE "large_bodies" (
    digest BLOB PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- What anybody keeps by content: `digest` is the SHA-256 of the body, `at` when it was last put. Blobs that nothing
-- refers to are deleted, the young ones excepted.
CREATE TABLE blobs (
    digest BLOB PRIMARY KEY,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Snapshots of a whole world that are retained, by the last entry in each; the rest of them is in `blobs`. Where `base`
-- is 1, this database was restored from it: the journal has no entry before, but for instances that are no cells.
CREATE TABLE world_snapshots (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    hash BLOB NOT NULL,
    taken_at INTEGER NOT NULL,
    inbox BLOB NOT NULL,
    base INTEGER NOT NULL
) STRICT;

-- One row per instance, written when it starts and when its status changes.
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
    outcome BLOB,
    root INTEGER NOT NULL DEFAULT 0,
    ended_at INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE UNIQUE INDEX instances_by_name ON instances (workflow, key, generation);

-- Newest first (an index ends with the id): all, and those of a workflow that have a status. Lists of a workflow merge its
-- six statuses, those of a status all workflows (stores/lists.py). So is found what was running when an engine died.
CREATE INDEX instances_by_start ON instances (started_at);
CREATE INDEX instances_by_standing ON instances (workflow, status, started_at);

-- Those that wait, are stuck or have failed, the last changed first.
CREATE INDEX instances_by_change ON instances (workflow, status, changed_at)
    WHERE status IN ('failed', 'stuck', 'waiting');

-- Children and families. Most instances have no parent and cost nothing here.
CREATE INDEX instances_by_parent ON instances (parent, started_at) WHERE parent <> 0;
CREATE INDEX instances_by_root ON instances (root, started_at) WHERE parent <> 0;

-- Families that have ended, the earliest first: what retention may remove.
CREATE INDEX instances_by_end ON instances (ended_at) WHERE ended_at <> 0 AND parent = 0 AND reason <> '(forgotten)';

-- The tags of instances, newest first for each.
CREATE TABLE tags (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    instance INTEGER NOT NULL,
    PRIMARY KEY (name, value, started_at, instance)
) STRICT, WITHOUT ROWID;

-- How many instances there are.
CREATE TABLE counts (
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    status TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (workflow, version, status)
) STRICT, WITHOUT ROWID;

-- What somebody must pick up: when it is due, or whoever is asked outside.
CREATE TABLE open_work (
    intent BLOB PRIMARY KEY,
    instance INTEGER NOT NULL,
    kind TEXT NOT NULL,
    due INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX open_work_by_due ON open_work (due);

-- What waits for somebody outside, by who that is. Timers and deadlines cost nothing here.
CREATE INDEX open_work_outside ON open_work (kind) WHERE kind NOT IN ('timer', 'deadline');

-- Open calls of queues. Here the engine that has the file serves them itself: who has claimed which is in its memory.
CREATE TABLE jobs (
    intent BLOB PRIMARY KEY,
    instance INTEGER NOT NULL,
    queue TEXT NOT NULL,
    function TEXT NOT NULL,
    delivery INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Events on their way, in the order of their arrival. AUTOINCREMENT: a number is never used twice, so that the
-- engine can remember how far it has looked.
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

-- The newest snapshot of an instance that does not stand beside its entry in the journal. The newer of the two counts.
CREATE TABLE snapshots (
    instance INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- The last value of each published name; sealed, as every body is.
CREATE TABLE published (
    instance INTEGER NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (instance, name)
) STRICT, WITHOUT ROWID;

-- Who writes. The epoch is the fence; owner, pid, host and since (unix seconds) only tell people who it is, and `figures`
-- (JSON) what it has measured of its own work.
CREATE TABLE shards (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    since INTEGER NOT NULL,
    figures TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO shards VALUES (0, 0, '', 0, '', 0, '');

-- What the last engine ran, for clients that know workflows by name only: each version, and the parameters that a start
-- by name is checked against (empty: not known), and its policy (kernel/policy.py) as JSON.
CREATE TABLE workflows (
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    parameters BLOB NOT NULL,
    policy TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- One row per task, open or ended. What a list is ordered by stands in `task_candidates`.
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    key TEXT NOT NULL,
    location TEXT NOT NULL,
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    status TEXT NOT NULL,
    assignee TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    due INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    ended_by TEXT NOT NULL,
    outcome TEXT NOT NULL,
    reference TEXT NOT NULL,
    labels TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX tasks_by_owner ON tasks (workflow, key);

-- The names by which lists find a task: kernel/task.py has them. Three orders, and each ends with the task: a page is
-- read from one place of one index.
CREATE TABLE task_candidates (
    task INTEGER NOT NULL,
    who TEXT NOT NULL,
    held INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    due INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    PRIMARY KEY (task, who)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_candidates_by_creation ON task_candidates (who, held, created_at, task);
CREATE INDEX task_candidates_by_due ON task_candidates (who, held, due, task);
CREATE INDEX task_candidates_by_rank ON task_candidates (who, held, rank, task);
