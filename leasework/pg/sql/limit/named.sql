-- Whether a job, a worker, a definition or a pause has this name of a queue, or of a task.
-- locks: none
-- index: pause_pkey, history_pkey (in order), weight_pkey; scans of job, node and schedule
select exists (select from leasework.pause p where p.kind = %(kind)s and p.name = %(name)s)
    or exists (select from (select queue, task_name from leasework.history order by at desc limit 2000) h
               where case when %(kind)s = 'queue' then h.queue else h.task_name end = %(name)s)
    or exists (select from leasework.node n, unnest(n.tasks) t
               where %(kind)s = 'task' and split_part(t, ' (version ', 1) = %(name)s)
    or exists (select from leasework.node n where %(kind)s = 'queue' and jsonb_exists(n.queues, %(name)s))
    or exists (select from leasework.schedule s where %(kind)s = 'task' and s.task_name = %(name)s)
    or exists (select from leasework.weight w where %(kind)s = 'queue' and w.queue = %(name)s)
    or exists (select from leasework.job j
               where case when %(kind)s = 'queue' then j.queue else j.task_name end = %(name)s)
