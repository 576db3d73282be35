-- Lists are in the order of starts, tags and counts are rows, and a head has its root, its end and its reason.
-- Of instances that are there already the reason is not known here: it is written with their next change.

ALTER TABLE instances ADD COLUMN root INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instances ADD COLUMN ended_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instances ADD COLUMN reason TEXT NOT NULL DEFAULT '';
UPDATE instances SET
    root = CASE parent WHEN 0 THEN id ELSE parent END,
    ended_at = CASE WHEN status IN ('completed', 'failed', 'cancelled') THEN changed_at ELSE 0 END;

DROP INDEX instances_by_workflow;
DROP INDEX instances_by_status;
DROP INDEX instances_by_parent;
CREATE INDEX instances_by_start ON instances (started_at);
CREATE INDEX instances_by_standing ON instances (workflow, status, started_at);
CREATE INDEX instances_by_parent ON instances (parent, started_at) WHERE parent <> 0;
CREATE INDEX instances_by_root ON instances (root, started_at) WHERE parent <> 0;

CREATE TABLE tags (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    instance INTEGER NOT NULL,
    PRIMARY KEY (name, value, started_at, instance)
) STRICT, WITHOUT ROWID;

CREATE TABLE counts (
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    status TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (workflow, version, status)
) STRICT, WITHOUT ROWID;
INSERT INTO counts SELECT workflow, version, status, count(*) FROM instances GROUP BY workflow, version, status;
