-- The running jobs. They are at the head of their queue and level, where claims took them. Reads at most "scan"
-- jobs, the same number at each head: ids, the oldest first.
-- locks: none
-- index: job_ready (in order)
with recursive {{job/_lanes}}, lanes as materialized (
    select * from lane where %(queue)s::text is null or queue = %(queue)s limit 200
), looked as materialized (
    select h.id, h.ok
    from lanes l
    cross join lateral (
        select j.id, j.node is not null and {{job/_matches}} as ok
        from leasehold.job j
        where j.ready and j.queue = l.queue and leasehold.level(j.priority, j.fresh) = l.level
        order by j.seat limit (select greatest(%(scan)s::bigint / greatest(count(*), 1), 100) from lanes)) h
)
select (select count(*) from looked), null::uuid,
       array(select id from looked
             where ok and id > %(after)s and id >= %(first)s and id <= %(last)s order by id limit %(limit)s)
