-- What an engine measures of its own work is kept for other processes.

ALTER TABLE perdure.engines ADD COLUMN figures text COLLATE "C" NOT NULL DEFAULT '';
