-- The tables. Migrations end here: tests/stores/test_postgres_schema.py proves it. The functions are in functions.sql.
--
-- They are those of the SQLite store (stores/sqlite/schema.sql), for many shards. A shard's entries are numbered from
-- shard * 2^48 on, and an instance's id is the number of its first entry: so `id >> 48` is its shard, and most tables
-- need no column for it (kernel/placement.py).
--
-- The journal is the truth. `instances`, `tags`, `counts`, `open_work`, `jobs`, `published`, `tasks` and
-- `task_candidates` can be rebuilt from it (stores/rebuild.py).
-- Texts are compared by their bytes (COLLATE "C"), so that every store gives the same order.

-- Which migrations were made.
CREATE TABLE perdure.migrations (
    version integer PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now()
);

-- One row per entry. Large bodies are kept apart by PostgreSQL itself (TOAST). `snapshot` is what was left beside the
-- entry when it was written: its instance after it. Most have none.
CREATE TABLE perdure.journal (
    seq bigint PRIMARY KEY,
    instance bigint NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL,
    snapshot bytea
);

-- One instance's history, in order.
CREATE INDEX journal_by_instance ON perdure.journal (instance, seq);

-- What anybody keeps by content: `digest` is the SHA-256 of the body, `at` when it was last put. Blobs that nothing
-- refers to are deleted, the young ones excepted.
CREATE TABLE perdure.blobs (
    digest bytea PRIMARY KEY,
    at bigint NOT NULL,
    body bytea NOT NULL
);

-- Snapshots of a whole world that are retained, by the last entry in each; the rest of them is in `blobs`. Where `base`
-- is true, this database was restored from it.
CREATE TABLE perdure.world_snapshots (
    seq bigint PRIMARY KEY,
    at bigint NOT NULL,
    hash bytea NOT NULL,
    taken_at bigint NOT NULL,
    inbox bytea NOT NULL,
    base boolean NOT NULL
);

-- One row per instance, written when it starts and when its status changes.
CREATE TABLE perdure.instances (
    id bigint PRIMARY KEY,
    workflow text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    version text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    parent bigint NOT NULL,
    input_hash bytea NOT NULL,
    tags text COLLATE "C" NOT NULL,
    outcome bytea,
    root bigint NOT NULL DEFAULT 0,
    ended_at bigint NOT NULL DEFAULT 0,
    reason text COLLATE "C" NOT NULL DEFAULT ''
);

CREATE UNIQUE INDEX instances_by_name ON perdure.instances (workflow, key, generation);

-- Newest first: all, and those of a workflow that have a status. Lists of a workflow merge its six statuses, those of a
-- status all workflows (stores/lists.py).
CREATE INDEX instances_by_start ON perdure.instances (started_at, id);
CREATE INDEX instances_by_standing ON perdure.instances (workflow, status, started_at, id);

-- Those that wait, are stuck or have failed, the last changed first.
CREATE INDEX instances_by_change ON perdure.instances (workflow, status, changed_at, id)
    WHERE status IN ('failed', 'stuck', 'waiting');

-- What may have calls open, by shard: read when an engine takes one.
CREATE INDEX instances_running ON perdure.instances (id) WHERE status IN ('running', 'stuck');

-- Children and families. Most instances have no parent and cost nothing here.
CREATE INDEX instances_by_parent ON perdure.instances (parent, started_at, id) WHERE parent <> 0;
CREATE INDEX instances_by_root ON perdure.instances (root, started_at, id) WHERE parent <> 0;

-- Families that have ended, the earliest first: what retention may remove.
CREATE INDEX instances_by_end ON perdure.instances (ended_at, id)
    WHERE ended_at <> 0 AND parent = 0 AND reason <> '(forgotten)';

-- The tags of instances, newest first for each.
CREATE TABLE perdure.tags (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    instance bigint NOT NULL,
    PRIMARY KEY (name, value, started_at, instance)
);

-- How many instances there are. Each shard has rows of its own, so that no commit waits for that of another; whoever
-- reads adds them up. There is room on the page for new versions of a row: most commits of a head make some.
CREATE TABLE perdure.counts (
    shard integer NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (shard, workflow, version, status)
) WITH (fillfactor = 50);

-- What somebody must pick up: when it is due, or whoever is asked outside.
CREATE TABLE perdure.open_work (
    intent bytea PRIMARY KEY,
    instance bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    due bigint NOT NULL
);

-- By shard, in the order in which it is due.
CREATE INDEX open_work_by_due ON perdure.open_work ((instance >> 48), due, intent);

-- What waits for somebody outside, by who that is. Timers and deadlines cost nothing here.
CREATE INDEX open_work_outside ON perdure.open_work (kind, intent) WHERE kind NOT IN ('timer', 'deadline');

-- Open calls of queues. `taken` counts the claims of a job, and so is the fence; `worker` has it since then, if there is
-- one. `answered`: its receipt is in the inbox, or was there. `lost`: the claim ran out, and until the owner of the
-- instance has recorded what becomes of it nobody may take it. For people: when it was `claimed`, and a `note` that says
-- why no worker takes it.
-- What changes while a worker has it is in no index, and there is room on the page for it: beats are cheap.
CREATE TABLE perdure.jobs (
    intent bytea PRIMARY KEY,
    instance bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    delivery bigint NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL,
    worker text COLLATE "C" NOT NULL DEFAULT '',
    taken bigint NOT NULL DEFAULT 0,
    expires timestamptz NOT NULL DEFAULT '-infinity',
    answered boolean NOT NULL DEFAULT false,
    lost boolean NOT NULL DEFAULT false,
    claimed timestamptz NOT NULL DEFAULT '-infinity',
    note text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- What can be claimed, the oldest first; and what is claimed, by shard.
CREATE INDEX jobs_open ON perdure.jobs (queue, at, intent) WHERE worker = '';
CREATE INDEX jobs_taken ON perdure.jobs ((instance >> 48)) WHERE worker <> '';

-- Events on their way to a shard, in the order in which their numbers were drawn. Transactions may become visible in
-- another order, so nobody may remember how far he has looked.
CREATE TABLE perdure.inbox (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard integer NOT NULL,
    id bytea NOT NULL UNIQUE,
    workflow text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    instance bigint NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL
);

CREATE INDEX inbox_by_shard ON perdure.inbox (shard, n);
CREATE INDEX inbox_by_name ON perdure.inbox (workflow, key, instance);

-- The newest snapshot of an instance that does not stand beside its entry in the journal. The newer of the two counts.
-- There is room on the page for the next one, because a new version that stays on its page touches no index (HOT).
CREATE TABLE perdure.snapshots (
    instance bigint PRIMARY KEY,
    seq bigint NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 70);

-- The last value of each published name; sealed, as every body is. The name is UTF-8: it may have a NUL, which no text
-- of PostgreSQL may.
CREATE TABLE perdure.published (
    instance bigint NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (instance, name)
);

-- Who writes a shard, for as long as he lives: see `engines`. The epoch is the fence, and `turn` a second one of the owner
-- against himself: he raises it when the answer to a commit was lost, so that this commit is refused if it is still on
-- its way, and then looks whether it is there. `noted` is the number of the last commit without entries, which would
-- leave no other trace. There is room on the page for new versions of a row: such a commit makes one.
CREATE TABLE perdure.shards (
    shard integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    turn bigint NOT NULL DEFAULT 0,
    noted bigint NOT NULL DEFAULT 0,
    owner text COLLATE "C" NOT NULL DEFAULT '',
    pid integer NOT NULL DEFAULT 0,
    host text COLLATE "C" NOT NULL DEFAULT '',
    since timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);

-- The engines that live: until when each has the shards whose owner it is. A shard whose owner has no row here, or one
-- that has expired, is free. Apart from `shards`, because commits lock the rows there, and a renewal must wait for none.
-- Each engine knows its fair share of the shards by the number of these rows. `figures`: what it has measured of its own
-- work, as JSON, for people.
CREATE TABLE perdure.engines (
    name text COLLATE "C" PRIMARY KEY,
    expires timestamptz NOT NULL,
    figures text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 20);

-- What the engines run, for clients that know workflows by name only: each version, and the parameters that a start by
-- name is checked against (empty: not known), and its policy (kernel/policy.py) as JSON. Rows of one that has gone stay until the next one comes.
CREATE TABLE perdure.workflows (
    engine text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    parameters bytea NOT NULL,
    policy text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (engine, name, version)
);

-- One row per task, open or ended. What a list is ordered by stands in `task_candidates`.
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

-- The names by which lists find a task: kernel/task.py has them. Three orders, and each ends with the task: a page is
-- read from one place of one index.
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
