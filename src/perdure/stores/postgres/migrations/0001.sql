-- The first version. What the tables are for stands in schema.sql.

CREATE TABLE perdure.migrations (
    version integer PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE perdure.journal (
    seq bigint PRIMARY KEY,
    instance bigint NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL
);

CREATE INDEX journal_by_instance ON perdure.journal (instance, seq);

CREATE TABLE perdure.blobs (
    digest bytea PRIMARY KEY,
    at bigint NOT NULL,
    body bytea NOT NULL
);

CREATE TABLE perdure.world_snapshots (
    seq bigint PRIMARY KEY,
    at bigint NOT NULL,
    hash bytea NOT NULL,
    taken_at bigint NOT NULL,
    inbox bytea NOT NULL,
    base boolean NOT NULL
);

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
    outcome bytea
);

CREATE UNIQUE INDEX instances_by_name ON perdure.instances (workflow, key, generation);

CREATE INDEX instances_by_workflow ON perdure.instances (workflow, id);
CREATE INDEX instances_by_status ON perdure.instances (status, id);

CREATE INDEX instances_by_parent ON perdure.instances (parent, id) WHERE parent <> 0;

CREATE TABLE perdure.open_work (
    intent bytea PRIMARY KEY,
    instance bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    due bigint NOT NULL
);

CREATE INDEX open_work_by_due ON perdure.open_work ((instance >> 48), due, intent);

CREATE INDEX open_work_outside ON perdure.open_work (kind, intent) WHERE kind NOT IN ('timer', 'deadline');

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
    lost boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE INDEX jobs_open ON perdure.jobs (queue, at, intent) WHERE worker = '';
CREATE INDEX jobs_taken ON perdure.jobs ((instance >> 48)) WHERE worker <> '';

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

CREATE TABLE perdure.snapshots (
    instance bigint PRIMARY KEY,
    seq bigint NOT NULL,
    body bytea NOT NULL
);

CREATE TABLE perdure.published (
    instance bigint NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (instance, name)
);

CREATE TABLE perdure.shards (
    shard integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    turn bigint NOT NULL DEFAULT 0,
    noted bigint NOT NULL DEFAULT 0,
    owner text COLLATE "C" NOT NULL DEFAULT '',
    pid integer NOT NULL DEFAULT 0,
    host text COLLATE "C" NOT NULL DEFAULT '',
    since timestamptz NOT NULL DEFAULT '-infinity',
    expires timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);

CREATE TABLE perdure.engines (
    name text COLLATE "C" PRIMARY KEY,
    expires timestamptz NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE perdure.workflows (
    engine text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    defaults bytea NOT NULL,
    PRIMARY KEY (engine, name, version)
);
