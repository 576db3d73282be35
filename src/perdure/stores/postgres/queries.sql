-- Every statement of the store that is not a function of the server. `statements.py` reads this file, and puts another
-- namespace in the place of `perdure.` where that is wanted. $1 to $3 of a fenced write are shard, epoch and turn.

-- name: prepare_session
-- What a commit promises must be on the disk. Other values than `off` are the operator's choice.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'

-- name: shard_count
SELECT count(*)::integer FROM perdure.shards

-- name: take_lease
SELECT perdure.take($1, $2, $3, $4, $5)

-- name: lease
-- Who has a shard, for the texts of EngineRunning and Fenced.
SELECT owner, pid, host, CASE WHEN owner = '' THEN 0 ELSE extract(epoch FROM since)::bigint END, epoch
FROM perdure.shards WHERE shard = $1

-- name: release_lease
-- Only the name goes; the epoch stays, so that nobody gets it a second time.
UPDATE perdure.shards SET owner = '', pid = 0, host = '', since = '-infinity' WHERE shard = $1 AND epoch = $2

-- name: renew
-- The lease of an engine, for all its shards; the answer is how all shards stand. One that has expired is renewed too:
-- what nobody took meanwhile is still its own. Shards are only read. Commits lock their rows, and while the disk stands
-- still a renewal that waited for one after the other would come too late.
-- So a shard may be told as the engine's own that another is just taking. The epoch refuses what it writes there.
WITH beat AS (
    INSERT INTO perdure.engines (name, expires, figures)
    VALUES ($1, clock_timestamp() + make_interval(secs => $2), $3)
    ON CONFLICT (name) DO UPDATE SET expires = excluded.expires, figures = excluded.figures
), gone AS (
    DELETE FROM perdure.engines WHERE name <> $1 AND expires < now() - interval '1 hour'
)
SELECT shard, epoch, owner = $1 AS mine, owner <> $1 AND NOT perdure.lives(owner) AS free,
    (SELECT count(*) FROM perdure.engines WHERE name <> $1 AND expires > now()) AS others
FROM perdure.shards ORDER BY shard

-- name: let_go
-- Shards that are an engine's by name only ($1, $2: with their epochs). While it lives nobody else can take them. One on
-- which a commit is being made is passed by: the next renewal finds it again.
WITH idle AS (
    SELECT shard FROM perdure.shards JOIN unnest($1::integer[], $2::bigint[]) AS stray (shard, epoch)
        USING (shard, epoch)
    FOR NO KEY UPDATE OF shards SKIP LOCKED
)
UPDATE perdure.shards SET owner = '', pid = 0, host = '', since = '-infinity'
FROM idle WHERE shards.shard = idle.shard RETURNING shards.shard

-- name: leave
-- Everything of an engine that stops: the others need not wait.
WITH gone AS (DELETE FROM perdure.engines WHERE name = $1)
UPDATE perdure.shards SET owner = '', pid = 0, host = '', since = '-infinity' WHERE owner = $1

-- name: notify
SELECT pg_notify($1, $2)

-- name: commit
SELECT perdure.commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46,
    $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65)

-- name: commit_lone
-- The commit of one journal row, the most frequent: it costs less than the function.
INSERT INTO perdure.journal (seq, instance, at, body)
SELECT $4, $5, $6, $7 FROM perdure.shards WHERE shard = $1 AND epoch = $2 AND turn = $3 FOR SHARE
RETURNING true

-- name: commit_headed
-- The commit of one journal row and one head, with its counts: a start, or an end, by itself.
WITH fence AS (SELECT FROM perdure.shards WHERE shard = $1 AND epoch = $2 AND turn = $3 FOR SHARE), entry AS (
    INSERT INTO perdure.journal (seq, instance, at, body)
    SELECT $4::bigint, $5::bigint, $6::bigint, $7::bytea FROM fence
), counted AS (
    INSERT INTO perdure.counts AS old (shard, workflow, version, status, count)
    SELECT $1, $9::text, version, status, by
    FROM fence CROSS JOIN unnest($23::text[], $24::text[], $25::bigint[]) AS new (version, status, by)
    ON CONFLICT (shard, workflow, version, status) DO UPDATE SET count = old.count + excluded.count
)
INSERT INTO perdure.instances
    (id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome, root,
    ended_at, reason)
SELECT $8::bigint, $9::text, $10::text, $11::bigint, $12::text, $13::text, $14::bigint, $15::bigint, $16::bigint,
    $17::bytea, $18::text, $19::bytea, $20::bigint, $21::bigint, $22::text FROM fence
ON CONFLICT (id) DO UPDATE SET version = excluded.version, status = excluded.status, changed_at = excluded.changed_at,
    tags = excluded.tags, outcome = excluded.outcome, ended_at = excluded.ended_at, reason = excluded.reason
RETURNING true

-- name: hold_heads
-- Instances that had failed and go on, locked until the commit: whether one of them was forgotten meanwhile.
SELECT bool_or(reason = '(forgotten)') FROM (SELECT reason FROM perdure.instances WHERE id = ANY ($1) FOR UPDATE) AS held

-- name: ended_roots
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM perdure.instances
WHERE ended_at <> 0 AND parent = 0 AND reason <> '(forgotten)' AND ended_at < $1 AND (ended_at, id) > ($2, $3)
ORDER BY ended_at, id LIMIT $4

-- name: forget
-- Families that have ended ($1: their roots). One stays whole while one of it has not ended, while an event waits for it,
-- or while it has the last entry of its shard. They are counted off in rows of no shard, so that no commit waits for it.
WITH family AS (
    SELECT id, coalesce(nullif(root, 0), id) AS root, workflow, key, version, status, ended_at, reason, tags, started_at
    FROM perdure.instances WHERE id = ANY ($1::bigint[]) OR (root = ANY ($1) AND parent <> 0)
    ORDER BY id FOR UPDATE
), busy AS (
    SELECT root FROM family
    WHERE ended_at = 0 OR reason = '(forgotten)'
        OR EXISTS (SELECT FROM perdure.inbox WHERE inbox.instance = family.id)
        OR EXISTS (
            SELECT FROM perdure.inbox
            WHERE inbox.instance = 0 AND inbox.workflow = family.workflow AND inbox.key = family.key
        )
        OR id = (
            SELECT instance FROM perdure.journal WHERE seq > (family.id >> 48) << 48 AND seq < ((family.id >> 48) + 1) << 48
            ORDER BY seq DESC LIMIT 1
        )
), gone AS (
    SELECT id, workflow, version, status, tags, started_at FROM family WHERE root NOT IN (SELECT root FROM busy)
), entries AS (
    DELETE FROM perdure.journal USING gone WHERE instance = gone.id
), states AS (
    DELETE FROM perdure.snapshots USING gone WHERE instance = gone.id
), shown AS (
    DELETE FROM perdure.published USING gone WHERE instance = gone.id
), asked AS (
    DELETE FROM perdure.tasks USING gone WHERE tasks.id = gone.id
), candidates AS (
    DELETE FROM perdure.task_candidates USING gone WHERE task = gone.id
), named AS (
    DELETE FROM perdure.tags USING gone CROSS JOIN LATERAL json_each_text(gone.tags::json) AS tag (tag_name, tag_value)
    WHERE tags.name = tag_name AND tags.value = tag_value AND tags.started_at = gone.started_at AND instance = gone.id
), uncounted AS (
    INSERT INTO perdure.counts AS old (shard, workflow, version, status, count)
    SELECT -1, workflow, version, status, -count(*) FROM gone GROUP BY workflow, version, status ORDER BY 2, 3, 4
    ON CONFLICT (shard, workflow, version, status) DO UPDATE SET count = old.count + excluded.count
), buried AS (
    UPDATE perdure.instances SET outcome = NULL, tags = '{}', reason = '(forgotten)' FROM gone
    WHERE instances.id = gone.id RETURNING 1
)
SELECT count(*) FROM buried

-- name: take_turn
-- After a lost answer: what is still on its way is refused from here on. It waits for a commit that is being made.
UPDATE perdure.shards SET turn = $3 WHERE shard = $1 AND epoch = $2 AND turn < $3 RETURNING noted

-- name: has_entry
SELECT EXISTS (SELECT FROM perdure.journal WHERE seq = $1)

-- name: register
SELECT perdure.register($1, $2, $3, $4, $5, $6, $7)

-- name: last_entry
-- Of the numbers $1 < seq <= $2. A restored database may have no entry after its base.
SELECT seq, at FROM (
    (SELECT seq, at FROM perdure.journal WHERE seq > $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1)
    UNION ALL
    SELECT seq, at FROM perdure.world_snapshots WHERE base AND seq > $1 AND seq <= $2
) AS found ORDER BY seq DESC LIMIT 1

-- name: heights
-- The last entry of each of $1 shards.
SELECT shard, (SELECT seq FROM perdure.journal WHERE seq > shard << 48 AND seq < (shard + 1) << 48 ORDER BY seq DESC LIMIT 1)
FROM generate_series(0, $1::bigint - 1) AS shard

-- name: running
-- Instances that may have calls open, stuck ones too: they are loaded and their calls handed out again when an engine starts.
SELECT id FROM perdure.instances WHERE status IN ('running', 'stuck') AND id > $1 AND id <= $2 ORDER BY id

-- name: live_instances
SELECT workflow, version, status, count FROM perdure.counts
WHERE shard = $1 AND status IN ('running', 'waiting', 'stuck') AND count <> 0
ORDER BY workflow, version, status

-- name: count_work
SELECT count(*) FROM perdure.open_work WHERE instance >> 48 = $1::bigint

-- name: count_inbox
SELECT count(*) FROM perdure.inbox WHERE shard = $1

-- name: records
-- What engines need of instances, by id ($1) and by name ($2, $3: the last generation): the head, the newest snapshot and
-- the entries after it, in one state of the database. One that has ended for good ($4) needs no past.
-- A snapshot may stand beside its entry. Where that is the last one, nothing more is read. Else it is among the last few:
-- while states are so small that they are left there, the next one is left before there are that many.
SELECT wanted, id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason, greatest(beside.seq, apart.seq), CASE greatest(beside.seq, apart.seq) WHEN beside.seq THEN snapshot ELSE apart.body END,
    later.seqs, later.ats, later.bodies
FROM (
    SELECT n AS wanted, head.* FROM unnest($1::bigint[]) WITH ORDINALITY AS ids (of_id, n)
    JOIN perdure.instances AS head ON id = of_id
    UNION ALL
    SELECT -n, head.* FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS names (of_workflow, of_key, n)
    CROSS JOIN LATERAL (
        SELECT * FROM perdure.instances WHERE workflow = of_workflow AND key = of_key ORDER BY generation DESC LIMIT 1
    ) AS head
) AS heads
LEFT JOIN LATERAL (
    SELECT seq, snapshot FROM (
        SELECT seq, snapshot FROM perdure.journal WHERE instance = id ORDER BY seq DESC LIMIT 256
    ) AS recent WHERE snapshot IS NOT NULL LIMIT 1
) AS beside ON status <> ALL ($4::text[])
LEFT JOIN LATERAL (
    SELECT seq, body FROM perdure.snapshots
    WHERE instance = id
        AND (beside.seq IS NULL OR beside.seq < (SELECT max(seq) FROM perdure.journal WHERE instance = id))
) AS apart ON status <> ALL ($4::text[])
CROSS JOIN LATERAL (
    SELECT array_agg(row.seq) AS seqs, array_agg(row.at) AS ats, array_agg(row.body) AS bodies FROM (
        SELECT journal.seq, journal.at, journal.body FROM perdure.journal
        WHERE journal.instance = id AND journal.seq > greatest(beside.seq, apart.seq, 0) AND status <> ALL ($4::text[])
        ORDER BY journal.seq
    ) AS row
) AS later

-- name: due
-- Earliest first; equal times in the order of the intent, so that every store gives the same order.
SELECT intent, instance, kind, due FROM perdure.open_work
WHERE instance >> 48 = $1::bigint AND due <= $2 AND (due, intent) > ($3, $4) ORDER BY due, intent LIMIT $5

-- name: inbox
SELECT id, workflow, key, instance, at, body FROM perdure.inbox WHERE shard = $1 ORDER BY n LIMIT $2

-- name: head_by_id
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM perdure.instances WHERE id = $1

-- name: head_by_name
-- The last generation of a name.
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM perdure.instances WHERE workflow = $1 AND key = $2 ORDER BY generation DESC LIMIT 1

-- name: heads_of
-- Heads by id ($1, positive numbers) and by name ($2, $3, negative ones), each with its place in the list.
SELECT n, head.* FROM unnest($1::bigint[]) WITH ORDINALITY AS ids (of_id, n) JOIN perdure.instances AS head ON id = of_id
UNION ALL
SELECT -n, head.* FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS names (of_workflow, of_key, n)
CROSS JOIN LATERAL (
    SELECT * FROM perdure.instances WHERE workflow = of_workflow AND key = of_key ORDER BY generation DESC LIMIT 1
) AS head

-- name: list_heads
-- The conditions are put together from the filter: see stores/lists.py.
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM perdure.instances AS instances WHERE {conditions} ORDER BY {at} {order}, {number} {order} LIMIT {limit}

-- name: list_tagged
-- The same by a tag.
SELECT id, workflow, key, generation, version, status, instances.started_at, changed_at, parent, input_hash,
    instances.tags, outcome, root, ended_at, reason
FROM perdure.tags AS tags JOIN perdure.instances AS instances ON id = tags.instance WHERE {conditions}
ORDER BY {at} {order}, {number} {order} LIMIT {limit}

-- name: list_place
-- The place of one head further down.
SELECT {at}, {number} FROM perdure.instances WHERE {conditions} ORDER BY {at} {order}, {number} {order} LIMIT 1 OFFSET {limit}

-- name: list_tagged_place
SELECT {at}, {number} FROM perdure.tags AS tags WHERE {conditions}
ORDER BY {at} {order}, {number} {order} LIMIT 1 OFFSET {limit}

-- name: list_named
-- A head further down in the order of names: whether there are so many.
SELECT id FROM perdure.instances WHERE {conditions} ORDER BY workflow, key, generation LIMIT 1 OFFSET {limit}

-- name: workflow_names
-- The names of all workflows that have instances: one look into the index for each.
WITH RECURSIVE names (workflow) AS (
    SELECT min(workflow) FROM perdure.instances
    UNION ALL SELECT (SELECT min(workflow) FROM perdure.instances WHERE workflow > names.workflow) FROM names
    WHERE workflow IS NOT NULL
)
SELECT workflow FROM names WHERE workflow IS NOT NULL

-- name: counts
SELECT workflow, version, status, sum(count)::bigint FROM perdure.counts
GROUP BY workflow, version, status HAVING sum(count) <> 0

-- name: all_tags
SELECT name, value, started_at, instance FROM perdure.tags

-- name: history
-- One instance, in order, after a seq. No limit: NULL.
SELECT seq, instance, at, body FROM perdure.journal WHERE instance = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: journal
-- The entries of all shards, one shard after the other.
SELECT seq, instance, at, body FROM perdure.journal WHERE seq > $1 ORDER BY seq LIMIT $2

-- name: mentions
-- An instance that has the bytes $1 in one of the newest $2 entries of its shard, which are all searched.
SELECT instance FROM perdure.shards CROSS JOIN LATERAL (
    SELECT instance, body FROM perdure.journal
    WHERE seq >= shard::bigint << 48 AND seq < (shard + 1)::bigint << 48 ORDER BY seq DESC LIMIT $2
) AS recent WHERE position($1::bytea IN body) > 0 LIMIT 1

-- name: published
SELECT value FROM perdure.published WHERE instance = $1 AND name = $2

-- name: workflows
-- Of all engines: while one is put in place of another, both versions can be started.
SELECT DISTINCT ON (name, version) name, version, parameters, policy FROM perdure.workflows
ORDER BY name, version, parameters

-- name: judge
-- What an event for the inbox is judged by: whether it is there already, what else was posted to the name, and the head.
SELECT EXISTS (SELECT FROM perdure.inbox WHERE inbox.id = $1), pending.bodies, pending.last,
    head.id, head.workflow, head.key, head.generation, head.version, head.status, head.started_at, head.changed_at,
    head.parent, head.input_hash, head.tags, head.outcome, head.root, head.ended_at, head.reason
FROM (
    SELECT array_agg(body ORDER BY n) AS bodies, coalesce(max(n), 0) AS last FROM perdure.inbox
    WHERE inbox.workflow = $2 AND inbox.key = $3 AND inbox.instance = $4
) AS pending
LEFT JOIN (
    SELECT * FROM (
        SELECT * FROM perdure.instances WHERE id = $4
        UNION ALL
        (SELECT * FROM perdure.instances WHERE workflow = $2 AND key = $3 ORDER BY generation DESC LIMIT 1)
    ) AS found LIMIT 1
) AS head ON true

-- name: post
SELECT perdure.post($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: undelivered
SELECT id, workflow, key, instance, at, body FROM perdure.inbox ORDER BY n

-- name: undelivered_to
SELECT id, workflow, key, instance, at, body FROM perdure.inbox WHERE workflow = $1 AND key = $2 ORDER BY n

-- name: work
SELECT intent, instance, kind, due FROM perdure.open_work WHERE intent = $1

-- name: outside
-- What waits for anybody outside. The condition is that of the index; without it all timers would be read.
SELECT intent, instance, kind, due FROM perdure.open_work
WHERE kind NOT IN ('timer', 'deadline') AND intent > $1 ORDER BY intent LIMIT $2

-- name: outside_of
-- What waits for one executor outside.
SELECT intent, instance, kind, due FROM perdure.open_work
WHERE kind NOT IN ('timer', 'deadline') AND kind = $3 AND intent > $1 ORDER BY intent LIMIT $2

-- name: put_blobs
-- The same bytes are stored once; putting them again makes them young, so that nobody deletes them meanwhile.
INSERT INTO perdure.blobs AS old (digest, at, body)
SELECT DISTINCT ON (digest) digest, $3::bigint, body FROM unnest($1::bytea[], $2::bytea[]) AS new (digest, body)
ORDER BY digest
ON CONFLICT (digest) DO UPDATE SET at = excluded.at WHERE excluded.at > old.at

-- name: blob
SELECT body FROM perdure.blobs WHERE digest = $1

-- name: blobs
SELECT digest, at, octet_length(body) FROM perdure.blobs WHERE digest > $1 ORDER BY digest LIMIT $2

-- name: delete_blobs
-- Unless they were put again since.
WITH gone AS (DELETE FROM perdure.blobs WHERE digest = ANY ($1::bytea[]) AND at < $2 RETURNING 1)
SELECT count(*) FROM gone

-- name: world_snapshots
SELECT seq, at, hash, taken_at, inbox, base FROM perdure.world_snapshots ORDER BY seq

-- name: add_world_snapshot
INSERT INTO perdure.world_snapshots AS old (seq, at, hash, taken_at, inbox, base) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (seq) DO UPDATE SET at = excluded.at, hash = excluded.hash, taken_at = excluded.taken_at,
    inbox = excluded.inbox, base = old.base OR excluded.base

-- name: forget_world_snapshots
WITH gone AS (DELETE FROM perdure.world_snapshots WHERE seq = ANY ($1::bigint[]) AND NOT base RETURNING 1)
SELECT count(*) FROM gone

-- name: owner
-- One of the engines that live.
SELECT owner, pid, host, extract(epoch FROM since)::bigint FROM perdure.shards
WHERE perdure.lives(owner) ORDER BY shard LIMIT 1

-- name: shards
-- Each shard with its epoch, its owner, until when that has it and what it measures, and what is in the inbox; an owner
-- that is gone has no time.
SELECT shard, epoch, owner, pid, host, coalesce(extract(epoch FROM nullif(since, '-infinity')), 0)::bigint,
    coalesce(extract(epoch FROM e.expires), 0)::float8, coalesce(e.figures, ''),
    ARRAY[coalesce(undelivered, 0), coalesce(oldest, 0)]
FROM perdure.shards LEFT JOIN perdure.engines e ON e.name = owner AND e.expires > now() LEFT JOIN (
    SELECT shard, count(*) AS undelivered, min(nullif(at, 0)) AS oldest FROM perdure.inbox GROUP BY shard
) AS waiting USING (shard) ORDER BY shard

-- name: served
SELECT engine, workflows.name, version FROM perdure.workflows JOIN perdure.engines e ON e.name = engine
WHERE e.expires > now() ORDER BY 1, 2, 3

-- name: facts
SELECT (SELECT max(version) FROM perdure.migrations)::text AS schema,
    (SELECT count(*) FROM perdure.shards)::text AS shards,
    (SELECT count(*) FROM perdure.engines WHERE expires > now())::text AS engines,
    current_setting('server_version') AS server,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') AS fsync,
    (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_catalog.pg_class
     WHERE relnamespace = $1::regnamespace AND relkind = 'r')::text AS size_bytes,
    (SELECT coalesce(max((
        SELECT at FROM perdure.journal WHERE seq >= shard::bigint << 48 AND seq < (shard + 1)::bigint << 48
        ORDER BY seq DESC LIMIT 1)), 0) FROM perdure.shards)::text AS last_entry_at

-- name: claim
-- The oldest of each queue that nobody has. What another worker is just taking is passed by.
WITH free AS (
    SELECT found.intent FROM unnest($3::text[]) AS wanted (queue) CROSS JOIN LATERAL (
        SELECT intent, at FROM perdure.jobs
        WHERE worker = '' AND jobs.queue = wanted.queue AND function = ANY ($4::text[])
        ORDER BY at, intent LIMIT $5 FOR UPDATE SKIP LOCKED
    ) AS found ORDER BY found.at LIMIT $5
)
UPDATE perdure.jobs SET worker = $1, taken = taken + 1, expires = clock_timestamp() + make_interval(secs => $2),
    claimed = clock_timestamp(), note = ''
FROM free WHERE jobs.intent = free.intent
RETURNING jobs.intent, instance, queue, function, delivery, at, body, taken

-- name: take
-- These very jobs, except what another worker has or is just taking. A worker that did not hear of its own claim, because
-- the connection broke, claims again.
WITH free AS (
    SELECT intent FROM perdure.jobs
    WHERE intent = ANY ($3::bytea[]) AND (worker = '' OR worker = $1 AND NOT answered AND NOT lost)
    FOR UPDATE SKIP LOCKED
)
UPDATE perdure.jobs SET worker = $1, taken = taken + 1, expires = clock_timestamp() + make_interval(secs => $2),
    claimed = clock_timestamp(), note = ''
FROM free WHERE jobs.intent = free.intent
RETURNING jobs.intent, instance, queue, function, delivery, at, body, taken

-- name: open_jobs
-- The oldest of a queue that no worker has. It locks nothing and takes nothing.
SELECT intent, instance, queue, function, delivery, at, body, taken FROM perdure.jobs
WHERE worker = '' AND queue = $1 AND intent <> ALL ($3::bytea[]) AND function <> ALL ($4::text[])
ORDER BY at, intent LIMIT $2

-- name: waiting_jobs
SELECT intent, CASE WHEN worker = '' THEN taken END FROM perdure.jobs WHERE intent = ANY ($1::bytea[])

-- name: note_jobs
UPDATE perdure.jobs SET note = $3 WHERE worker = '' AND queue = $1 AND function = $2 AND note <> $3

-- name: beat
UPDATE perdure.jobs SET expires = clock_timestamp() + make_interval(secs => $2)
FROM unnest($3::bytea[], $4::bigint[]) AS mine (intent, taken)
WHERE jobs.intent = mine.intent AND jobs.taken = mine.taken AND worker = $1 AND NOT lost
RETURNING jobs.intent, jobs.taken

-- name: answer
-- The receipts of claims that are still their worker's; the others leave no trace.
WITH own AS (
    UPDATE perdure.jobs SET answered = true, expires = clock_timestamp() + make_interval(secs => $2)
    FROM unnest($3::bytea[], $4::bigint[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bytea[])
        AS mine (intent, taken, id, instance, at, body)
    WHERE jobs.intent = mine.intent AND jobs.taken = mine.taken AND worker = $1 AND NOT lost AND NOT answered
    RETURNING jobs.intent, jobs.taken, mine.id, mine.instance, mine.at, mine.body
), put AS (
    INSERT INTO perdure.inbox (shard, id, workflow, key, instance, at, body)
    SELECT (own.instance >> 48)::integer, own.id, '', '', own.instance, own.at, own.body FROM own
    ON CONFLICT (id) DO NOTHING
)
SELECT intent, taken FROM own

-- name: give_back
UPDATE perdure.jobs SET worker = '', expires = '-infinity'
FROM unnest($2::bytea[], $3::bigint[]) AS mine (intent, taken)
WHERE jobs.intent = mine.intent AND jobs.taken = mine.taken AND worker = $1 AND NOT lost AND NOT answered

-- name: survey
-- Of each shard: whether its inbox has anything, and whether a claim of it ran out.
SELECT shard, EXISTS (SELECT FROM perdure.inbox WHERE inbox.shard = shards.shard),
    EXISTS (
        SELECT FROM perdure.jobs WHERE instance >> 48 = shards.shard AND worker <> '' AND (lost OR expires <= now())
    )
FROM perdure.shards

-- name: lost
-- Claims of a shard that ran out, unless the answer waits in the inbox; from now on they are void.
WITH gone AS (
    UPDATE perdure.jobs SET lost = true
    WHERE instance >> 48 = $1 AND worker <> '' AND NOT lost AND expires <= now()
        AND NOT EXISTS (SELECT FROM perdure.inbox WHERE inbox.id = jobs.intent || int8send(jobs.taken))
    RETURNING instance, intent
)
SELECT instance, intent FROM gone
UNION SELECT instance, intent FROM perdure.jobs WHERE instance >> 48 = $1 AND worker <> '' AND lost
LIMIT $2

-- name: job
SELECT queue, function, CASE WHEN lost THEN '' ELSE worker END,
    CASE WHEN lost OR worker = '' OR NOT isfinite(claimed) THEN 0
        ELSE (extract(epoch FROM claimed) * 1000000000)::bigint END,
    note
FROM perdure.jobs WHERE intent = $1

-- name: listed_jobs
SELECT instance, queue, function, delivery, at, CASE WHEN lost THEN '' ELSE worker END,
    CASE WHEN lost OR worker = '' OR NOT isfinite(claimed) THEN 0
        ELSE (extract(epoch FROM claimed) * 1000000000)::bigint END,
    note, intent
FROM perdure.jobs WHERE ($2 = '' OR queue = $2) AND (at, intent) > ($3, $4) ORDER BY queue, at, intent LIMIT $1

-- name: queues
SELECT queue, workflow, CASE WHEN lost THEN '' ELSE worker END AS holder, count(*), min(jobs.at),
    min(CASE WHEN lost OR worker = '' OR NOT isfinite(claimed) THEN 0
        ELSE (extract(epoch FROM claimed) * 1000000000)::bigint END)
FROM perdure.jobs JOIN perdure.instances ON instances.id = jobs.instance
GROUP BY queue, workflow, holder ORDER BY queue, workflow, holder

-- name: all_jobs
SELECT intent, instance, queue, function, delivery, at, body FROM perdure.jobs

-- name: sealed_bodies
-- Every sealed body outside the journal, with a name for people.
SELECT 'inbox event', encode(id, 'hex'), body FROM perdure.inbox
UNION ALL SELECT 'job', encode(intent, 'hex'), body FROM perdure.jobs
UNION ALL SELECT 'snapshot of', instance::text, body FROM perdure.snapshots
UNION ALL SELECT 'snapshot at', seq::text, snapshot FROM perdure.journal WHERE snapshot IS NOT NULL
UNION ALL SELECT 'published value of', instance || ' ' || encode(name, 'escape'), value FROM perdure.published
UNION ALL SELECT 'outcome of', id::text, outcome FROM perdure.instances WHERE outcome IS NOT NULL
UNION ALL SELECT 'task', id::text, body FROM perdure.tasks

-- name: all_journal
SELECT seq, instance, at, body FROM perdure.journal ORDER BY seq

-- name: all_heads
SELECT id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
    root, ended_at, reason
FROM perdure.instances

-- name: all_work
SELECT intent, instance, kind, due FROM perdure.open_work

-- name: all_published
SELECT instance, name, value FROM perdure.published

-- name: all_blobs
SELECT digest, body FROM perdure.blobs

-- name: task
SELECT id, owner, workflow, key, location, name, title, status, assignee, priority, created_at, due, expires, ended_at,
    ended_by, outcome, reference, labels, body
FROM perdure.tasks WHERE id = $1

-- name: all_tasks
SELECT id, owner, workflow, key, location, name, title, status, assignee, priority, created_at, due, expires, ended_at,
    ended_by, outcome, reference, labels, body
FROM perdure.tasks

-- name: all_candidates
SELECT task, who, held, created_at, due, rank FROM perdure.task_candidates
