-- What retention may remove: families that have ended, the earliest first.

CREATE INDEX instances_by_end ON instances (ended_at) WHERE ended_at <> 0 AND parent = 0 AND reason <> '(forgotten)';
