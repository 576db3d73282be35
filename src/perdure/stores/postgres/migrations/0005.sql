-- Lists are in the order of starts, tags and counts are rows, and a head has its root, its end and its reason.
-- Of instances that are there already the reason is not known here: it is written with their next change.

ALTER TABLE perdure.instances
    ADD COLUMN root bigint NOT NULL DEFAULT 0,
    ADD COLUMN ended_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN reason text COLLATE "C" NOT NULL DEFAULT '';
UPDATE perdure.instances SET
    root = CASE parent WHEN 0 THEN id ELSE parent END,
    ended_at = CASE WHEN status IN ('completed', 'failed', 'cancelled') THEN changed_at ELSE 0 END;

DROP INDEX perdure.instances_by_workflow;
DROP INDEX perdure.instances_by_status;
DROP INDEX perdure.instances_by_parent;
CREATE INDEX instances_by_start ON perdure.instances (started_at, id);
CREATE INDEX instances_by_standing ON perdure.instances (workflow, status, started_at, id);
CREATE INDEX instances_running ON perdure.instances (id) WHERE status IN ('running', 'stuck');
CREATE INDEX instances_by_parent ON perdure.instances (parent, started_at, id) WHERE parent <> 0;
CREATE INDEX instances_by_root ON perdure.instances (root, started_at, id) WHERE parent <> 0;

CREATE TABLE perdure.tags (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    instance bigint NOT NULL,
    PRIMARY KEY (name, value, started_at, instance)
);

-- Long ones by their hash, as kernel/tags.py says. (A tag with a NUL is left out: no JSON of PostgreSQL takes one.)
INSERT INTO perdure.tags (name, value, started_at, instance)
SELECT CASE WHEN octet_length(tag.key) <= 512 THEN tag.key
        ELSE left(tag.key, 64) || chr(31) || encode(sha256(convert_to(tag.key, 'UTF8')), 'hex') END,
    CASE WHEN octet_length(tag.value) <= 512 THEN tag.value
        ELSE left(tag.value, 64) || chr(31) || encode(sha256(convert_to(tag.value, 'UTF8')), 'hex') END,
    started_at, id
FROM (SELECT id, started_at, tags FROM perdure.instances WHERE tags <> '{}' AND strpos(tags, '\u0000') = 0) AS tagged
CROSS JOIN LATERAL json_each_text(tagged.tags::json) AS tag;

CREATE TABLE perdure.counts (
    shard integer NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (shard, workflow, version, status)
) WITH (fillfactor = 50);
INSERT INTO perdure.counts (shard, workflow, version, status, count)
SELECT least(id >> 48, (SELECT max(shard) FROM perdure.shards)), workflow, version, status, count(*)
FROM perdure.instances GROUP BY 1, 2, 3, 4;
