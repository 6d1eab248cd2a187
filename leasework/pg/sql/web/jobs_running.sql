-- The running jobs: ids, the oldest first. They stand up to where nodes have claimed. Those that somebody moved to another
-- level by hand, or of whose claims nothing is noted, are mostly among the first of their level. Reads at most "scan"
-- jobs of each level of each queue. "cut": of one of them there are more.
-- locks: none
-- index: job_ready (in order), attempt_pkey, step_pkey; a scan of claimed_to
with recursive {{job/_lanes}}, looked as materialized (
    select l.queue, l.level, h.id, h.ok
    from (select queue, level, max(seat) as seat from leasework.claimed_to
          where (%(queue)s::text is null or queue = %(queue)s)
            and (%(nodes)s::uuid[] is null or node = any (%(nodes)s::uuid[])) group by 1, 2) l
    cross join lateral (
        select j.id, j.node is not null and {{job/_matches}} as ok
        from (select *, greatest(claimed_at, created_at) as changed from leasework.job) j
        where j.ready and j.queue = l.queue and leasework.level(j.priority, j.fresh) = l.level and j.seat <= l.seat
        limit %(scan)s) h  -- also keeps the planner, whose statistics may be old, from reading all ready jobs at once
    union
    select l.queue, l.level, h.id, h.ok
    from (select * from lane where %(queue)s::text is null or queue = %(queue)s limit 1000) l
    cross join lateral (
        select j.id, j.node is not null and {{job/_matches}} as ok
        from (select *, greatest(claimed_at, created_at) as changed from leasework.job) j
        where j.ready and j.queue = l.queue and leasework.level(j.priority, j.fresh) = l.level
        order by j.seat limit 200) h
)
select exists (select from looked group by queue, level having count(*) >= %(scan)s), (select count(*) from looked),
       array(select id from looked
             where ok and id > %(after)s and id >= %(first)s and id <= %(last)s order by id limit %(limit)s)
