-- Part of the statements that look at the head of each level of each queue: the levels with jobs, in order.
lane (queue, level) as (
    (select j.queue, leasehold.level(j.priority, j.fresh) from leasehold.job j where j.ready order by 1, 2 limit 1)
    union all
    select n.queue, n.level from lane l cross join lateral (
        select j.queue, leasehold.level(j.priority, j.fresh) as level from leasehold.job j
        where j.ready and (j.queue, leasehold.level(j.priority, j.fresh)) > (l.queue, l.level)
        order by 1, 2 limit 1) n
)
