-- Effects that somebody outside answers are open work too.

CREATE INDEX open_work_outside ON open_work (kind) WHERE kind NOT IN ('timer', 'deadline');
