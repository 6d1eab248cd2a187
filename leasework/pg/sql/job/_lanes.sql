-- The levels of each queue with ready jobs, one after the other in the index.
-- index: job_ready (in order)
lane (queue, level) as (
    (select j.queue, leasework.level(j.priority, j.fresh) from leasework.job j where j.ready order by 1, 2 limit 1)
    union all
    select n.queue, n.level from lane l cross join lateral (
        select j.queue, leasework.level(j.priority, j.fresh) as level from leasework.job j
        where j.ready and (j.queue, leasework.level(j.priority, j.fresh)) > (l.queue, l.level)
        order by 1, 2 limit 1) n
)
