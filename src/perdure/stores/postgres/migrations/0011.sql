-- Instances that wait, are stuck or have failed are listed in the order of their last changes too: stores/lists.py.

CREATE INDEX instances_by_change ON perdure.instances (workflow, status, changed_at, id)
    WHERE status IN ('failed', 'stuck', 'waiting');
