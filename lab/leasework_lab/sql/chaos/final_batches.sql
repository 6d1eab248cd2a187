-- The final read: the batches, with the number of their jobs and of the jobs that their ends have called.
-- locks: none
-- index: scans of batch, job and job_done
with members as (
    select batch, count(*) as jobs from (select batch from leasework.job union all select batch from leasework.job_done) j
    where batch is not null group by batch
), calls as (
    select payload #>> '{batch,id}' as batch, count(*) as calls
    from leasework.jobs where task_name = 'called' group by 1
)
select b.id, b.parent, b.total, b.ended_at is not null, coalesce(m.jobs, 0), coalesce(c.calls, 0)
from leasework.batch b left join members m on m.batch = b.id left join calls c on c.batch = b.id::text
