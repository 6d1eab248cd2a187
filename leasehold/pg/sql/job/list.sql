-- Jobs by a filter, the newest first. Ids grow with time, so each table finds its newest rows by its primary key, and
-- only those are joined with the rest.
-- locks: none
-- index: job_pkey (in order), job_done_pkey (in order), node_pkey, death_pkey
with newest as (
    (select j.id from leasehold.job j
     where {{job/_matches}} and (%(state)s::text is null or %(state)s =
            case when j.ready and j.node is null then 'available' when j.ready then 'running'
                 when j.held_because = 'retryable' then 'retryable' else 'scheduled' end)
     order by j.id desc limit %(limit)s)
    union all
    (select d.id from leasehold.job_done d
     where {{job/_matches}} and (%(state)s::text is null or %(state)s = d.state)
     order by d.id desc limit %(limit)s)
    order by id desc
    limit %(limit)s
)
select {{JobRecord}} from leasehold.jobs where id = any (array(select id from newest))
order by id desc
limit %(limit)s
