-- The lowest and the highest id of a batch's jobs. Of uuid, min is new in PostgreSQL 18.
-- locks: none
-- index: job_batch, job_done_batch
select min(id::text collate "C")::uuid, max(id::text collate "C")::uuid
from (select id from leasework.job where batch = %(batch)s
      union all select id from leasework.job_done where batch = %(batch)s) member
