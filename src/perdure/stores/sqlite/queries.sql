-- Every statement of the store that is not built from parts. `queries.py` reads this file.

-- name: epoch
-- The fence: read inside the transaction of every write of the engine.
SELECT epoch FROM shards WHERE shard = 0

-- name: owner
-- Who holds the lease, for the text of EngineRunning and Fenced.
SELECT owner, pid, host, since FROM shards WHERE shard = 0

-- name: take_lease
-- A new epoch: from here on, commits of older owners are refused.
UPDATE shards SET epoch = epoch + 1, owner = ?, pid = ?, host = ?, since = unixepoch(), figures = ''
WHERE shard = 0 RETURNING epoch

-- name: release_lease
-- Only the name goes; the epoch stays, so that nobody gets it a second time.
UPDATE shards SET owner = '', pid = 0, host = '', since = 0 WHERE shard = 0 AND epoch = ?

-- name: write_figures
UPDATE shards SET figures = ? WHERE shard = 0

-- name: shard
-- The figures of the engine, and how much is in the inbox since when.
SELECT epoch, figures, (SELECT count(*) FROM inbox), (SELECT coalesce(min(nullif(at, 0)), 0) FROM inbox)
FROM shards WHERE shard = 0

-- name: last_entry
-- A restored database may have no entry after its base.
SELECT seq, at FROM (SELECT seq, at FROM journal ORDER BY seq DESC LIMIT 1)
UNION ALL SELECT seq, at FROM world_snapshots WHERE base = 1
ORDER BY seq DESC LIMIT 1

-- name: running
-- Instances that may have calls open, stuck ones too: they are loaded and their calls handed out again when an engine starts.
-- So are those with jobs: on this database nobody but the engine performs them.
WITH RECURSIVE names (workflow) AS (
    SELECT min(workflow) FROM instances
    UNION ALL SELECT (SELECT min(workflow) FROM instances WHERE workflow > names.workflow) FROM names
    WHERE workflow IS NOT NULL
)
SELECT id FROM names CROSS JOIN instances INDEXED BY instances_by_standing
    ON instances.workflow = names.workflow AND status IN ('running', 'stuck')
UNION SELECT instance FROM jobs ORDER BY 1

-- name: live_instances
SELECT workflow, version, status, count FROM counts WHERE status IN ('running', 'waiting', 'stuck') AND count <> 0
ORDER BY workflow, version, status

-- name: count_work
SELECT count(*) FROM open_work

-- name: count_inbox
SELECT count(*) FROM inbox

-- name: insert_journal
INSERT INTO journal (seq, instance, at, body) VALUES (?, ?, ?, ?)

-- name: insert_journal_with_snapshot
INSERT INTO journal (seq, instance, at, body, snapshot) VALUES (?, ?, ?, ?, ?)

-- name: insert_journal_alone
-- A whole transaction in one statement, fence included: it changes nothing when the epoch is another.
INSERT INTO journal (seq, instance, at, body) SELECT ?, ?, ?, ? FROM shards WHERE shard = 0 AND epoch = ?

-- name: insert_large_body
-- By content: the same bytes are stored once.
INSERT INTO large_bodies (digest, body) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING

-- name: large_body
SELECT body FROM large_bodies WHERE digest = ?

-- name: put_blob
-- The same bytes are stored once; putting them again makes them young, so that nobody deletes them meanwhile.
INSERT INTO blobs (digest, at, body) VALUES (?, ?, ?)
ON CONFLICT (digest) DO UPDATE SET at = excluded.at WHERE excluded.at > at

-- name: world_snapshots
SELECT seq, at, hash, taken_at, inbox, base FROM world_snapshots ORDER BY seq

-- name: add_world_snapshot
INSERT INTO world_snapshots (seq, at, hash, taken_at, inbox, base) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (seq) DO UPDATE SET at = excluded.at, hash = excluded.hash, taken_at = excluded.taken_at,
    inbox = excluded.inbox, base = max(base, excluded.base)

-- name: forget_world_snapshot
DELETE FROM world_snapshots WHERE seq = ? AND base = 0

-- name: blob
SELECT body FROM blobs WHERE digest = ?

-- name: blobs
-- In the order of their digests. The length of a body is known without reading it.
SELECT digest, at, length(body) FROM blobs WHERE digest > ? ORDER BY digest LIMIT ?

-- name: all_blobs
SELECT digest, body FROM blobs

-- name: delete_blob
-- Unless it was put again since.
DELETE FROM blobs WHERE digest = ? AND at < ?

-- name: write_head
-- Only what can change is updated, so that the indexes by name and by parent are left alone.
INSERT INTO instances
    (id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome, root,
    ended_at, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    version = excluded.version, status = excluded.status, changed_at = excluded.changed_at, tags = excluded.tags,
    outcome = excluded.outcome, ended_at = excluded.ended_at, reason = excluded.reason

-- name: ended_roots
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM instances
WHERE ended_at <> 0 AND parent = 0 AND reason <> '(forgotten)' AND ended_at < ? AND (ended_at, id) > (?, ?)
ORDER BY ended_at, id LIMIT ?

-- name: family
-- Whoever belongs to a root, and why it must stay: it has not ended, an event waits for it, its entry is the last.
SELECT id, ended_at = 0 OR reason = '(forgotten)'
    OR EXISTS (SELECT 1 FROM inbox WHERE inbox.instance = instances.id)
    OR EXISTS (
        SELECT 1 FROM inbox WHERE inbox.instance = 0 AND inbox.workflow = instances.workflow AND inbox.key = instances.key
    )
    OR id = (SELECT instance FROM journal ORDER BY seq DESC LIMIT 1)
FROM (SELECT * FROM instances WHERE id = ?1 UNION ALL SELECT * FROM instances WHERE root = ?1 AND parent <> 0) AS instances

-- name: forget_entries
DELETE FROM journal WHERE instance = ?

-- name: forget_snapshot
DELETE FROM snapshots WHERE instance = ?

-- name: forget_published
DELETE FROM published WHERE instance = ?

-- name: forget_task
DELETE FROM tasks WHERE id = ?

-- name: forget_tag
DELETE FROM tags WHERE instance = ?1
    AND (name, value, started_at) IN (SELECT each.key, each.value, started_at FROM instances, json_each(tags) AS each WHERE instances.id = ?1)

-- name: forget_count
UPDATE counts SET count = count - 1
WHERE (workflow, version, status) = (SELECT workflow, version, status FROM instances WHERE id = ?)

-- name: forget_head
UPDATE instances SET outcome = NULL, tags = json_object(), reason = '(forgotten)' WHERE id = ?

-- name: is_forgotten
SELECT reason = '(forgotten)' FROM instances WHERE id = ?

-- name: write_tag
INSERT INTO tags (name, value, started_at, instance) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: delete_tag
DELETE FROM tags WHERE name = ? AND value = ? AND started_at = ? AND instance = ?

-- name: count
-- By how much the counts change.
INSERT INTO counts (workflow, version, status, count) VALUES (?, ?, ?, ?)
ON CONFLICT (workflow, version, status) DO UPDATE SET count = count + excluded.count

-- name: counts
SELECT workflow, version, status, count FROM counts WHERE count <> 0

-- name: all_tags
SELECT name, value, started_at, instance FROM tags

-- name: insert_work
INSERT INTO open_work (intent, instance, kind, due) VALUES (?, ?, ?, ?)

-- name: delete_work
DELETE FROM open_work WHERE intent = ?

-- name: write_job
-- A new one, or the next delivery of one that is there.
INSERT OR REPLACE INTO jobs (intent, instance, queue, function, delivery, at, body) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: delete_job
DELETE FROM jobs WHERE intent = ?

-- name: jobs
SELECT intent, instance, queue, function, delivery, at, body FROM jobs ORDER BY intent

-- name: job
SELECT queue, function FROM jobs WHERE intent = ?

-- name: listed_jobs
SELECT instance, queue, function, delivery, at, '', 0, '', intent FROM jobs WHERE (? = '' OR queue = ?) AND (at, intent) > (?, ?)
ORDER BY queue, at, intent LIMIT ?

-- name: queues
SELECT queue, workflow, '', count(*), min(at) FROM jobs JOIN instances ON instances.id = jobs.instance
GROUP BY queue, workflow ORDER BY queue, workflow

-- name: insert_inbox
INSERT INTO inbox (id, workflow, key, instance, at, body) VALUES (?, ?, ?, ?, ?, ?)

-- name: post
-- An event for the inbox, unless the state by which it was judged is another one by now. One statement: nothing that could
-- take long happens while it has the write lock. ?7 is the last event that was seen of that name (NULL: none was looked for).
INSERT INTO inbox (id, workflow, key, instance, at, body) SELECT ?1, ?2, ?3, ?4, ?5, ?6
WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE id = ?1)
    AND (?7 IS NULL OR ?7 = (SELECT coalesce(max(n), 0) FROM inbox WHERE workflow = ?2 AND key = ?3))
    AND ?8 = coalesce(
        CASE ?4
            WHEN 0 THEN (
                SELECT id || iif(status IN ('running', 'waiting'), '', status) FROM instances
                WHERE workflow = ?2 AND key = ?3 ORDER BY generation DESC LIMIT 1
            )
            ELSE (SELECT id || iif(status IN ('running', 'waiting'), '', status) FROM instances WHERE id = ?4)
        END,
        ''
    )

-- name: last_posted
SELECT coalesce(max(n), 0) FROM inbox WHERE workflow = ? AND key = ?

-- name: delete_inbox
DELETE FROM inbox WHERE id = ?

-- name: write_snapshot
-- The newest only: an older one is never needed again.
INSERT OR REPLACE INTO snapshots (instance, seq, body) VALUES (?, ?, ?)

-- name: write_published
INSERT OR REPLACE INTO published (instance, name, value) VALUES (?, ?, ?)

-- name: write_task
-- What is asked, of whom and since when does not change.
INSERT INTO tasks (id, owner, workflow, key, location, name, title, status, assignee, priority, created_at, due, expires,
    ended_at, ended_by, outcome, reference, labels, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, assignee = excluded.assignee, priority = excluded.priority,
    due = excluded.due, expires = excluded.expires, ended_at = excluded.ended_at, ended_by = excluded.ended_by,
    outcome = excluded.outcome, body = excluded.body

-- name: delete_candidates
DELETE FROM task_candidates WHERE task = ?

-- name: write_candidate
INSERT INTO task_candidates (task, who, held, created_at, due, rank) VALUES (?, ?, ?, ?, ?, ?)

-- name: task
SELECT id, owner, workflow, key, location, name, title, status, assignee, priority, created_at, due, expires, ended_at,
    ended_by, outcome, reference, labels, body
FROM tasks WHERE id = ?

-- name: all_tasks
SELECT id, owner, workflow, key, location, name, title, status, assignee, priority, created_at, due, expires, ended_at,
    ended_by, outcome, reference, labels, body
FROM tasks

-- name: all_candidates
SELECT task, who, held, created_at, due, rank FROM task_candidates

-- name: delete_workflows
DELETE FROM workflows

-- name: insert_workflow
INSERT INTO workflows (name, version, parameters, policy) VALUES (?, ?, ?, ?)

-- name: head_by_id
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM instances WHERE id = ?

-- name: head_by_name
-- The last generation of a name.
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM instances WHERE workflow = ? AND key = ? ORDER BY generation DESC LIMIT 1

-- name: all_heads
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM instances ORDER BY id

-- name: list_heads
-- The conditions are put together from the filter, and so is the index: see stores/lists.py.
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM instances {by} WHERE {conditions} ORDER BY {at} {order}, {number} {order} LIMIT {limit}

-- name: list_tagged
-- The same by a tag. CROSS: the tags are read first.
SELECT id, workflow, key, generation, version, status, instances.started_at, changed_at, parent, input_hash,
    instances.tags, outcome, root, ended_at, reason
FROM tags CROSS JOIN instances ON id = tags.instance WHERE {conditions}
ORDER BY {at} {order}, {number} {order} LIMIT {limit}

-- name: list_place
-- The place of one head further down.
SELECT {at}, {number} FROM instances {by} WHERE {conditions} ORDER BY {at} {order}, {number} {order} LIMIT 1 OFFSET {limit}

-- name: list_tagged_place
SELECT {at}, {number} FROM tags WHERE {conditions} ORDER BY {at} {order}, {number} {order} LIMIT 1 OFFSET {limit}

-- name: list_named
-- A head further down in the order of names: whether there are so many.
SELECT id FROM instances {by} WHERE {conditions} ORDER BY workflow, key, generation LIMIT 1 OFFSET {limit}

-- name: workflow_names
-- The names of all workflows that have instances: one look into the index for each.
WITH RECURSIVE names (workflow) AS (
    SELECT min(workflow) FROM instances
    UNION ALL SELECT (SELECT min(workflow) FROM instances WHERE workflow > names.workflow) FROM names
    WHERE workflow IS NOT NULL
)
SELECT workflow FROM names WHERE workflow IS NOT NULL

-- name: left_by_id
-- What an instance has left: its last entry and the snapshot beside it, if there is one; else the one that stands apart.
SELECT id, last.seq, last.snapshot, snapshots.seq, snapshots.body
FROM instances
LEFT JOIN journal AS last ON last.seq = (SELECT max(seq) FROM journal WHERE instance = id)
LEFT JOIN snapshots ON last.snapshot IS NULL AND snapshots.instance = id
WHERE id = ?

-- name: left_by_name
-- The same of the last generation of a name. The id is in the index by name: the head is not read.
SELECT id, last.seq, last.snapshot, snapshots.seq, snapshots.body
FROM instances
LEFT JOIN journal AS last ON last.seq = (SELECT max(seq) FROM journal WHERE instance = id)
LEFT JOIN snapshots ON last.snapshot IS NULL AND snapshots.instance = id
WHERE workflow = ? AND key = ? ORDER BY generation DESC LIMIT 1

-- name: history_backwards
-- One instance, the last entry first, with what stands beside each.
SELECT seq, instance, at, body, snapshot FROM journal WHERE instance = ? AND seq > ? ORDER BY seq DESC

-- name: history
-- One instance, in order, after a seq.
SELECT seq, instance, at, body FROM journal WHERE instance = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: journal
-- The shard's total order, after a seq.
SELECT seq, instance, at, body FROM journal WHERE seq > ? ORDER BY seq LIMIT ?

-- name: mentions
-- An instance that has these bytes in one of the newest entries, which are all searched.
WITH recent AS (SELECT instance, body FROM journal ORDER BY seq DESC LIMIT ?)
SELECT instance FROM recent WHERE instr(body, ?) OR length(body) = 33 AND EXISTS (
    SELECT 1 FROM large_bodies WHERE digest = substr(recent.body, 2) AND instr(large_bodies.body, ?)
) LIMIT 1

-- name: due
-- Earliest first; equal times in the order of the intent, so that every store gives the same order.
SELECT intent, instance, kind, due FROM open_work WHERE due <= ? AND (due, intent) > (?, ?) ORDER BY due, intent LIMIT ?

-- name: work
SELECT intent, instance, kind, due FROM open_work WHERE intent = ?

-- name: outside
-- What waits for anybody outside. The condition is that of the index; without it all timers would be read.
SELECT intent, instance, kind, due FROM open_work INDEXED BY open_work_outside
WHERE kind NOT IN ('timer', 'deadline') AND intent > ? ORDER BY intent LIMIT ?

-- name: outside_of
-- What waits for one executor outside.
SELECT intent, instance, kind, due FROM open_work
WHERE kind NOT IN ('timer', 'deadline') AND kind = ? AND intent > ? ORDER BY intent LIMIT ?

-- name: inbox
-- What arrived after the last look.
SELECT n, id, workflow, key, instance, at, body FROM inbox WHERE n > ? ORDER BY n LIMIT ?

-- name: inbox_by_id
SELECT 1 FROM inbox WHERE id = ?

-- name: inbox_by_name
-- The undelivered events of one name, among them perhaps its start.
SELECT id, workflow, key, instance, at, body FROM inbox WHERE workflow = ? AND key = ? ORDER BY n

-- name: published
SELECT value FROM published WHERE instance = ? AND name = ?

-- name: workflows
SELECT name, version, parameters, policy FROM workflows ORDER BY name, version

-- name: all_published
SELECT instance, name, value FROM published

-- name: sealed_bodies
-- Every sealed body outside the journal, with a name for people.
SELECT 'inbox event', hex(id), body FROM inbox
UNION ALL SELECT 'job', hex(intent), body FROM jobs
UNION ALL SELECT 'snapshot of', instance, body FROM snapshots
UNION ALL SELECT 'snapshot at', seq, snapshot FROM journal WHERE snapshot IS NOT NULL
UNION ALL SELECT 'published value of', instance || ' ' || name, value FROM published
UNION ALL SELECT 'outcome of', id, outcome FROM instances WHERE outcome IS NOT NULL
UNION ALL SELECT 'task', id, body FROM tasks
