-- Names to suggest: queues, and tasks of nodes, schedules and the history's last minutes.
-- locks: none
-- index: job_ready (in order), history_pkey (in order); scans of node, schedule and weight
with recursive q (queue) as (
    select min(j.queue) from leasework.job j where j.ready
    union all
    select (select min(j.queue) from leasework.job j where j.ready and j.queue > q.queue) from q where q.queue is not null
), recent as (
    select h.queue, h.task_name from leasework.history h order by h.at desc limit 2000
)
select array(select distinct queue from (
                 (select queue from q where queue is not null limit 500)
                 union select queue from recent
                 union select w.queue from leasework.weight w
                 union select jsonb_object_keys(n.queues) from leasework.node n) x order by 1 limit 500),
       array(select distinct t from (
                 select regexp_replace(n_t, ' \(version \d+\)$', '') as t from leasework.node n, unnest(n.tasks) n_t
                 union select s.task_name from leasework.schedule s
                 union select task_name from recent) x order by 1 limit 2000)
