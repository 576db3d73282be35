-- Tasks that have ended are found by name, workflow, label and reference too: kernel/task.py says by which names.

INSERT INTO perdure.task_candidates (task, who, held, created_at, due, rank)
SELECT t.id, found.who, CASE t.status WHEN 'completed' THEN 2 WHEN 'cancelled' THEN 3 ELSE 4 END, t.created_at, t.due,
    100 - t.priority
FROM perdure.tasks AS t
CROSS JOIN LATERAL (
    SELECT '*' AS who
    UNION SELECT left('n:' || t.name, 200)
    UNION SELECT left('w:' || t.workflow, 200)
    UNION SELECT 'f:' || t.reference WHERE t.reference <> ''
    UNION SELECT left('l:' || pair[1], 200)
        FROM regexp_matches(t.labels, '("(?:[^"\\]|\\.)*":"(?:[^"\\]|\\.)*")', 'g') AS pair
) AS found
WHERE t.status NOT IN ('open', 'assigned');

DROP INDEX perdure.tasks_ended;
