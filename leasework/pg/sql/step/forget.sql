-- Forget a step of a job that does not run, and all that began after it, so that the job's next run repeats them.
-- locks: job row FOR UPDATE SKIP LOCKED
-- index: job_pkey, step_pkey
with free as materialized (
    select id from leasework.job where id = %(job)s and node is null for update skip locked
), first as (
    select at from leasework.step where job = %(job)s and name = %(name)s
), gone as (
    delete from leasework.step s using first f
    where s.job = %(job)s and s.at >= f.at
      and (exists (select 1 from free) or not exists (select 1 from leasework.job j where j.id = %(job)s))
    returning 1
)
select count(*)::integer from gone
