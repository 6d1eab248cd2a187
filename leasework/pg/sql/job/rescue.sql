-- Free the jobs of dead nodes. Every job that a node held at the job's first crash becomes a suspect, whose later
-- starts are recorded. A suspect is blamed only if it had started, and quarantined if it was running at max_crashes
-- crashes. Rows that a user's transaction has locked, to complete the job, are skipped.
-- edge: running -> available
-- edge: running -> quarantined
-- edge: running -> cancelled
-- token: none, because these nodes' rows are gone: their claim_token can write nothing any more
--        once node is null, and no claim of theirs can be in flight
-- locks: job rows FOR UPDATE SKIP LOCKED
-- index: claimed_to_pkey, job_ready (each level as far as these nodes have claimed), job_pkey, job_key_pkey, node_pkey
with levels as materialized (
    select c.queue, c.level, max(c.seat) as seat from leasework.claimed_to c
    where c.node = any (%(nodes)s::uuid[]) group by 1, 2
), lost as materialized (
    select j.id, j.node, j.claim_token, j.attempt, j.queue, j.cancel_requested,
           coalesce(j.started_at, j.claimed_at) as started_at,
           j.crashes = 0 or j.started_at is not null as blamed,
           j.crashes + 1 >= %(max_crashes)s and j.started_at is not null as poison, j.crashes
    from levels l
    cross join lateral (
        select j.* from leasework.job j
        where j.ready and j.queue = l.queue and leasework.level(j.priority, j.fresh) = l.level and j.seat <= l.seat
          and j.node = any (%(nodes)s::uuid[])
          and not exists (select 1 from leasework.node n where n.id = j.node)
        for update of j skip locked
    ) j
    limit %(limit)s
), freed as (
    select id, case when poison then 'quarantined' when cancel_requested then 'cancelled' end as over,
           started_at as began, case when blamed then 'its worker died' end as why,
           case when poison then format('its worker died %%s times while it ran', crashes + 1)
                else 'its worker died' end as error,
           (not (blamed or cancel_requested))::integer as undone, (blamed or cancel_requested)::integer as crashed
    from lost
), {{job/_back}}, tries as (
    insert into leasework.attempt (job_id, claim_token, attempt, node, started_at, ended_at, outcome, error,
                                   fingerprint)
    select l.id, l.claim_token, l.attempt, l.node, l.started_at, coalesce(%(now)s::timestamptz, statement_timestamp()),
           'crashed', 'its worker died', '3586af14c7c6' -- as model/fingerprint.py has it
    from lost l where l.blamed
    on conflict do nothing
)
select l.id, l.node, l.blamed, l.poison from lost l, woken
