-- A batch, and how many of its jobs have ended. The counts of an ended batch are of now: a person may have run some again.
-- locks: none
-- index: batch_pkey, job_batch, job_done_batch
select b.id, b.parent, b.total, (select count(*) from leasework.job j where j.batch = b.id)::integer,
       (select count(*) from leasework.job_done d
        where d.batch = b.id and d.state <> 'completed')::integer,
       b.made_at, b.ended_at
from leasework.batch b where b.id = %(batch)s
