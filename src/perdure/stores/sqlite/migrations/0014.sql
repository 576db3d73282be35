-- All tasks are found by name, workflow, label and reference: schema.py fills the rows of `task_candidates`.

DROP INDEX tasks_ended;
