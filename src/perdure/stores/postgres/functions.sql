-- What runs in the server, so that a write is one round trip. These are code, not data: `perdure db upgrade` replaces all
-- of them, and a change here needs a new version like any change of the tables.

-- commit: the rows of one batch, or nothing (false) when the shard has another owner. Called as a statement of its own,
-- it is one transaction. A section that a batch does not have is NULL.
--
-- The fence: the row of the shard stays locked until the transaction ends. Whoever takes the shard over updates it, so he
-- waits for this commit, and every later one finds another epoch. A batch without entries leaves its number.
-- Closing comes before opening: an intent's id can come again.
CREATE FUNCTION perdure.commit(
    of_shard integer, of_epoch bigint, of_turn bigint, number bigint,
    journal_seq bigint[], journal_instance bigint[], journal_at bigint[], journal_body bytea[],
    journal_snapshot bytea[],
    head_id bigint[], head_workflow text[], head_key text[], head_generation bigint[], head_version text[],
    head_status text[], head_started_at bigint[], head_changed_at bigint[], head_parent bigint[],
    head_input_hash bytea[], head_tags text[], head_outcome bytea[], head_root bigint[], head_ended_at bigint[],
    head_reason text[],
    gone_name text[], gone_value text[], gone_started_at bigint[], gone_instance bigint[],
    tag_name text[], tag_value text[], tag_started_at bigint[], tag_instance bigint[],
    count_workflow text[], count_version text[], count_status text[], count_by bigint[],
    work_closed bytea[],
    work_intent bytea[], work_instance bigint[], work_kind text[], work_due bigint[],
    jobs_closed bytea[],
    job_intent bytea[], job_instance bigint[], job_queue text[], job_function text[], job_delivery bigint[],
    job_at bigint[], job_body bytea[],
    inbox_removed bytea[],
    inbox_shard integer[], inbox_id bytea[], inbox_workflow text[], inbox_key text[], inbox_instance bigint[],
    inbox_at bigint[], inbox_body bytea[],
    snapshot_instance bigint[], snapshot_seq bigint[], snapshot_body bytea[],
    published_instance bigint[], published_name bytea[], published_value bytea[],
    tasks json, candidates json
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF journal_seq IS NULL THEN
        UPDATE perdure.shards SET noted = number WHERE shard = of_shard AND epoch = of_epoch AND turn = of_turn;
    ELSE
        PERFORM FROM perdure.shards WHERE shard = of_shard AND epoch = of_epoch AND turn = of_turn FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF journal_seq IS NOT NULL THEN
        INSERT INTO perdure.journal (seq, instance, at, body, snapshot)
        SELECT * FROM unnest(journal_seq, journal_instance, journal_at, journal_body, journal_snapshot);
    END IF;
    IF head_id IS NOT NULL THEN
        INSERT INTO perdure.instances AS old
            (id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags, outcome,
            root, ended_at, reason)
        SELECT * FROM unnest(head_id, head_workflow, head_key, head_generation, head_version, head_status,
            head_started_at, head_changed_at, head_parent, head_input_hash, head_tags, head_outcome, head_root,
            head_ended_at, head_reason)
        ON CONFLICT (id) DO UPDATE SET version = excluded.version, status = excluded.status,
            changed_at = excluded.changed_at, tags = excluded.tags, outcome = excluded.outcome,
            ended_at = excluded.ended_at, reason = excluded.reason;
    END IF;
    IF gone_name IS NOT NULL THEN
        DELETE FROM perdure.tags USING unnest(gone_name, gone_value, gone_started_at, gone_instance)
            AS gone (name, value, started_at, instance)
        WHERE tags.name = gone.name AND tags.value = gone.value AND tags.started_at = gone.started_at
            AND tags.instance = gone.instance;
    END IF;
    IF tag_name IS NOT NULL THEN
        INSERT INTO perdure.tags (name, value, started_at, instance)
        SELECT * FROM unnest(tag_name, tag_value, tag_started_at, tag_instance) ON CONFLICT DO NOTHING;
    END IF;
    IF count_by IS NOT NULL THEN
        INSERT INTO perdure.counts AS old (shard, workflow, version, status, count)
        SELECT of_shard, * FROM unnest(count_workflow, count_version, count_status, count_by)
        ON CONFLICT (shard, workflow, version, status) DO UPDATE SET count = old.count + excluded.count;
    END IF;
    IF work_closed IS NOT NULL THEN
        DELETE FROM perdure.open_work WHERE intent = ANY (work_closed);
    END IF;
    IF work_intent IS NOT NULL THEN
        INSERT INTO perdure.open_work (intent, instance, kind, due)
        SELECT * FROM unnest(work_intent, work_instance, work_kind, work_due);
    END IF;
    IF jobs_closed IS NOT NULL THEN
        DELETE FROM perdure.jobs WHERE intent = ANY (jobs_closed);
    END IF;
    IF job_intent IS NOT NULL THEN  -- new ones, or open ones in their next delivery
        INSERT INTO perdure.jobs AS old (intent, instance, queue, function, delivery, at, body)
        SELECT * FROM unnest(job_intent, job_instance, job_queue, job_function, job_delivery, job_at, job_body)
        ON CONFLICT (intent) DO UPDATE SET delivery = excluded.delivery, at = excluded.at, body = excluded.body,
            worker = '', expires = '-infinity', answered = false, lost = false;
    END IF;
    IF inbox_removed IS NOT NULL THEN
        DELETE FROM perdure.inbox WHERE id = ANY (inbox_removed);
    END IF;
    IF inbox_id IS NOT NULL THEN
        INSERT INTO perdure.inbox (shard, id, workflow, key, instance, at, body)
        SELECT * FROM unnest(
            inbox_shard, inbox_id, inbox_workflow, inbox_key, inbox_instance, inbox_at, inbox_body);
    END IF;
    IF snapshot_instance IS NOT NULL THEN
        INSERT INTO perdure.snapshots (instance, seq, body)
        SELECT * FROM unnest(snapshot_instance, snapshot_seq, snapshot_body)
        ON CONFLICT (instance) DO UPDATE SET seq = excluded.seq, body = excluded.body;
    END IF;
    IF published_instance IS NOT NULL THEN
        INSERT INTO perdure.published (instance, name, value)
        SELECT * FROM unnest(published_instance, published_name, published_value)
        ON CONFLICT (instance, name) DO UPDATE SET value = excluded.value;
    END IF;
    IF tasks IS NOT NULL THEN  -- as JSON: a function takes at most 100 arguments
        INSERT INTO perdure.tasks AS old (id, owner, workflow, key, location, name, title, status, assignee, priority,
            created_at, due, expires, ended_at, ended_by, outcome, reference, labels, body)
        SELECT id, owner, workflow, key, location, name, title, status, assignee, priority, created_at, due, expires,
            ended_at, ended_by, outcome, reference, labels, decode(body, 'base64')
        FROM json_to_recordset(tasks) AS task (id bigint, owner bigint, workflow text, key text, location text,
            name text, title text, status text, assignee text, priority bigint, created_at bigint, due bigint,
            expires bigint, ended_at bigint, ended_by text, outcome text, reference text, labels text, body text)
        ON CONFLICT (id) DO UPDATE SET status = excluded.status, assignee = excluded.assignee,
            priority = excluded.priority, due = excluded.due, expires = excluded.expires, ended_at = excluded.ended_at,
            ended_by = excluded.ended_by, outcome = excluded.outcome, body = excluded.body;
        DELETE FROM perdure.task_candidates
        WHERE task IN (SELECT id FROM json_to_recordset(tasks) AS task (id bigint));
        INSERT INTO perdure.task_candidates (task, who, held, created_at, due, rank)
        SELECT * FROM json_to_recordset(candidates)
            AS candidate (task bigint, who text, held bigint, created_at bigint, due bigint, rank bigint);
    END IF;
    RETURN true;
END $$;

-- lives: whether an engine has renewed its lease in time. '' is the name of none: a shard is free unless its owner lives.
CREATE FUNCTION perdure.lives(engine text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM perdure.engines WHERE name = engine AND expires > clock_timestamp())
$$;

-- take: a shard that is free, under a new epoch: commits of older owners are refused. NULL when its owner lives.
--
-- The row is locked first, which waits for a commit that is being made, and only then it is judged: who has renewed his
-- lease meanwhile keeps the shard. Who renews it after that, while this is being committed, may be told that he still
-- has it; he can write nothing, and his next renewal tells him.
-- The lease of the taker is the row of its engine. It is made here if there is none or if it has expired. One that lives
-- is not touched: it would stay locked until this is on the disk, and the renewal would wait for it, once for each shard.
CREATE FUNCTION perdure.take(of_shard integer, of_owner text, of_pid integer, of_host text, seconds float8)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    had text;
    given bigint;
BEGIN
    SELECT owner INTO had FROM perdure.shards WHERE shard = of_shard AND NOT perdure.lives(owner) FOR NO KEY UPDATE;
    IF NOT FOUND OR perdure.lives(had) THEN
        RETURN NULL;
    END IF;
    IF NOT perdure.lives(of_owner) THEN
        INSERT INTO perdure.engines (name, expires) VALUES (of_owner, clock_timestamp() + make_interval(secs => seconds))
        ON CONFLICT (name) DO UPDATE SET expires = excluded.expires;
    END IF;
    UPDATE perdure.shards SET epoch = epoch + 1, turn = 0, noted = 0, owner = of_owner, pid = of_pid, host = of_host,
        since = clock_timestamp()
    WHERE shard = of_shard RETURNING epoch INTO given;
    RETURN given;
END $$;

-- register: what an engine runs, beside what others run that live; false when the shard has another owner.
CREATE FUNCTION perdure.register(
    of_shard integer, of_epoch bigint, of_turn bigint, names text[], versions text[], arguments bytea[], policies text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    of_engine text;
BEGIN
    PERFORM FROM perdure.shards WHERE shard = of_shard AND epoch = of_epoch AND turn = of_turn FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    LOCK TABLE perdure.workflows IN SHARE ROW EXCLUSIVE MODE;  -- all shards of an engine do this at once
    SELECT owner INTO of_engine FROM perdure.shards WHERE shard = of_shard;
    DELETE FROM perdure.workflows
    WHERE engine = of_engine OR engine NOT IN (SELECT name FROM perdure.engines WHERE expires > now());
    INSERT INTO perdure.workflows (engine, name, version, parameters, policy)
    SELECT of_engine, * FROM unnest(names, versions, arguments, policies);
    RETURN true;
END $$;

-- post: an event for the inbox, unless (false) the state by which it was judged is no longer the same: then it has to be
-- judged again. Posts to one name come one after the other.
CREATE FUNCTION perdure.post(
    of_shard integer, of_id bytea, of_workflow text, of_key text, of_instance bigint, of_at bigint, of_body bytea,
    seen_pending bigint, seen_head bigint, seen_status text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    pending bigint;
    head record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(of_workflow || '/' || of_key || '/' || of_instance, 48));
    SELECT coalesce(max(n), 0) INTO pending FROM perdure.inbox
    WHERE workflow = of_workflow AND key = of_key AND instance = of_instance;
    SELECT id, status INTO head FROM (
        SELECT id, status FROM perdure.instances WHERE id = of_instance
        UNION ALL
        (SELECT id, status FROM perdure.instances WHERE workflow = of_workflow AND key = of_key
         ORDER BY generation DESC LIMIT 1)
    ) AS found LIMIT 1;
    IF pending <> seen_pending OR coalesce(head.id, 0) <> seen_head OR coalesce(head.status, '') <> seen_status THEN
        RETURN false;
    END IF;
    INSERT INTO perdure.inbox (shard, id, workflow, key, instance, at, body)
    VALUES (of_shard, of_id, of_workflow, of_key, of_instance, of_at, of_body) ON CONFLICT (id) DO NOTHING;
    RETURN true;
END $$;
