-- Tasks, and who has to do with them.

-- One row per task, open or ended. What a list is ordered by stands in `task_candidates`, while the task has not ended.
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
CREATE INDEX tasks_ended ON tasks (status, created_at) WHERE status NOT IN ('open', 'assigned');

-- Who has to do with a task that has not ended: kernel/task.py says by which names. Three orders, and each ends with the
-- task: a page is read from one place of one index.
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
