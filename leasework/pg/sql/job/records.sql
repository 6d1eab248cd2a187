-- Jobs by their ids, wherever they are.
-- locks: none
-- index: job_pkey, job_done_pkey, node_pkey, death_pkey, attempt_pkey (in order)
select {{JobRecord}} from leasework.jobs where id = any (%(ids)s::uuid[])
