-- Jobs by a filter, the newest first. Ids grow with time, so each table finds its newest rows by its primary key, and
-- only those are joined with the rest. A state is looked for where it can be: running jobs up to where nodes have
-- claimed.
-- locks: none
-- index: job_pkey (in order), job_ready, job_done_pkey (in order), job_done_bad (in order), node_pkey, death_pkey; a scan of claimed_to
with newest as (
    (select j.id from leasehold.job j
     where coalesce(%(state)s::text not in ('running', 'completed', 'discarded', 'cancelled', 'quarantined'), true)
       and {{job/_matches}} and (%(state)s::text is null or %(state)s =
            case when j.ready and j.node is null then 'available' when j.ready then 'running'
                 when j.held_because = 'retryable' then 'retryable' else 'scheduled' end)
     order by j.id desc limit %(limit)s)
    union all
    (select r.id from (select queue, level, max(seat) as seat from leasehold.claimed_to group by 1, 2) c
     cross join lateral (
        select j.id from leasehold.job j
        where j.ready and j.queue = c.queue and leasehold.level(j.priority, j.fresh) = c.level and j.seat <= c.seat
          and j.node is not null and {{job/_matches}}
        offset 0) r  -- keeps the planner, whose statistics may be old, from reading all ready jobs at once
     where %(state)s::text = 'running'
     order by r.id desc limit %(limit)s)
    union all
    (select d.id from leasehold.job_done d
     where coalesce(%(state)s::text = 'completed', true)
       and {{job/_matches}} and (%(state)s::text is null or %(state)s = d.state)
     order by d.id desc limit %(limit)s)
    union all
    (select d.id from leasehold.job_done d
     where d.state <> 'completed' and d.state = %(state)s::text and {{job/_matches}}
     order by d.id desc limit %(limit)s)
    order by id desc
    limit %(limit)s
)
select {{JobRecord}} from leasehold.jobs where id = any (array(select id from newest))
order by id desc
limit %(limit)s
