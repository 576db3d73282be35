-- What the engine measures of its own work is kept for other processes.

ALTER TABLE shards ADD COLUMN figures TEXT NOT NULL DEFAULT '';
