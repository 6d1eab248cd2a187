-- A job with a deadline starts: arm the deadline if it counts from the first start. No row: the claim was lost.
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
    returning d.id, d.name, d.due_at, d.state
)
select id, name, due_at, state from armed
union all
select d.id, d.name, d.due_at, d.state
from leasework.deadline d join mine on d.id = mine.id
where not exists (select 1 from armed)
