-- What a list shows of jobs, without long values.
-- locks: none
-- index: job_pkey, job_done_pkey, node_pkey, death_pkey
select {{JobLine}}, case when pg_column_size(payload) < 2000 then payload end, left(last_error, 2000), null, left(reason, 2000)
from leasework.jobs where id = any (%(ids)s::uuid[])
