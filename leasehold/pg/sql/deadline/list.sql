-- Deadlines for people: the open ones, the next due first, then those that ended, the newest first.
-- locks: none
-- index: a scan of deadline
select d.id, d.level, d.name, d.state, d.due_at, d.closed_at, extract(epoch from d.late)::float8, d.job_id, d.schedule,
       d.since, d.until, d.job_state, d.on_breach, d.callback_job, d.key
from leasehold.deadlines d
where (%(state)s::text is null or d.state = %(state)s) and (%(name)s::text is null or d.name = %(name)s)
order by d.closed_at desc nulls first, d.due_at, d.id, d.level
limit %(limit)s
