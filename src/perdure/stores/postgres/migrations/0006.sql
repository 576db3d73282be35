-- Tasks, and who has to do with them.

-- One row per task, open or ended. What a list is ordered by stands in `task_candidates`, while the task has not ended.
CREATE TABLE perdure.tasks (
    id bigint PRIMARY KEY,
    owner bigint NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    location text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    title text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    assignee text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    created_at bigint NOT NULL,
    due bigint NOT NULL,
    expires bigint NOT NULL,
    ended_at bigint NOT NULL,
    ended_by text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    labels text COLLATE "C" NOT NULL,
    body bytea NOT NULL
);

CREATE INDEX tasks_by_owner ON perdure.tasks (workflow, key);
CREATE INDEX tasks_ended ON perdure.tasks (status, created_at, id) WHERE status NOT IN ('open', 'assigned');

-- Who has to do with a task that has not ended: kernel/task.py says by which names. Three orders, and each ends with the
-- task: a page is read from one place of one index.
CREATE TABLE perdure.task_candidates (
    task bigint NOT NULL,
    who text COLLATE "C" NOT NULL,
    held bigint NOT NULL,
    created_at bigint NOT NULL,
    due bigint NOT NULL,
    rank bigint NOT NULL,
    PRIMARY KEY (task, who)
);

CREATE INDEX task_candidates_by_creation ON perdure.task_candidates (who, held, created_at, task);
CREATE INDEX task_candidates_by_due ON perdure.task_candidates (who, held, due, task);
CREATE INDEX task_candidates_by_rank ON perdure.task_candidates (who, held, rank, task);
