-- A job with a deadline starts: arm the deadline if it counts from the first start. No row: the claim was lost. A row without a name: the deadline ended long ago.
-- locks: the job's deadline if it waits for this
-- index: job_pkey, deadline_pkey
with mine as materialized (
    select id from leasework.job
    where id = %(job)s and claim_token = %(token)s and node = %(node)s
), armed as (
    update leasework.deadline d
    set state = 'armed',
        due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => d.seconds)
    from mine
    where d.id = mine.id and d.state || '' = 'waiting' -- hidden from deadline_waiting
    returning d.id, d.due_at, d.state
)
select mine.id, d.name, coalesce(a.due_at, d.due_at), coalesce(a.state, d.state)
from mine left join leasework.deadline d on d.id = mine.id left join armed a on a.id = d.id
