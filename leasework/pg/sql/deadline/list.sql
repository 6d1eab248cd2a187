-- Deadlines for people: the open ones, the next due first, then those that ended, the newest first.
-- locks: none
-- index: deadline_due (in order), deadline_waiting (in order), deadline_closed (in order), deadline_pkey
with chosen as materialized (
    (select d.id from leasework.deadline d
     where d.state = 'armed' and (%(state)s::text is null or d.state = %(state)s)
       and (%(name)s::text is null or d.name = %(name)s)
     order by d.due_at, d.id limit %(limit)s)
    union all
    (select d.id from leasework.deadline d
     where d.state = 'waiting' and (%(state)s::text is null or d.state = %(state)s)
       and (%(name)s::text is null or d.name = %(name)s)
     order by d.made_at, d.id limit %(limit)s)
    union all
    (select d.id from leasework.deadline d
     where d.closed_at is not null and (%(state)s::text is null or d.state = %(state)s)
       and (%(name)s::text is null or d.name = %(name)s)
     order by d.closed_at desc, d.id limit %(limit)s)
)
select d.id, d.name, d.state, d.due_at, d.closed_at, extract(epoch from d.late)::float8, d.job_id, d.schedule,
       d.since, d.until, d.job_state, d.on_breach, d.callback_job
from chosen join leasework.deadlines d using (id)
order by d.closed_at desc nulls first, d.due_at, d.id
limit %(limit)s
