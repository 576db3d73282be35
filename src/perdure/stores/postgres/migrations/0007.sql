-- When a worker took a job, and why no worker takes one: both are for people.

ALTER TABLE perdure.jobs
    ADD COLUMN claimed timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN note text COLLATE "C" NOT NULL DEFAULT '';
