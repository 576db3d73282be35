-- Tasks that have not ended are found by name, workflow and label too: kernel/task.py says by which names.

INSERT INTO perdure.task_candidates (task, who, held, created_at, due, rank)
SELECT DISTINCT c.task, left(found.who, 200), c.held, c.created_at, c.due, c.rank
FROM perdure.task_candidates AS c
JOIN perdure.tasks AS t ON t.id = c.task
CROSS JOIN LATERAL (
    SELECT 'n:' || t.name AS who
    UNION SELECT 'w:' || t.workflow
    UNION SELECT 'l:' || pair[1] FROM regexp_matches(t.labels, '("(?:[^"\\]|\\.)*":"(?:[^"\\]|\\.)*")', 'g') AS pair
) AS found
WHERE c.who = '*';
