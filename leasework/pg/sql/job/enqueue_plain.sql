-- The first try to enqueue one job that is due at once and has no key; see the function in the migrations.
-- edge: new -> available
-- locks: inserts only
-- index: job_pkey
select leasework.enqueue_plain(%(id)s::uuid, %(queue)s, %(task)s, %(priority)s::smallint,
    %(max_attempts)s::smallint, %(timeout)s::real, %(requeue)s::real, %(history)s, %(payload)s::jsonb,
    coalesce(%(now)s::timestamptz, now()))
