-- Run jobs again: finished ones return with no attempts made, waiting ones become due now. Locked rows of waiting jobs
-- are skipped. With `state`, finished jobs in other states are skipped. The answer says of each known job where it was:
-- waiting, finished, running (as it is), locked, or that it is unchanged.
-- edge: completed -> available
-- edge: cancelled -> available
-- edge: discarded -> available
-- edge: quarantined -> available
-- edge: scheduled -> available
-- edge: retryable -> available
-- locks: job rows by id FOR UPDATE SKIP LOCKED
-- index: job_pkey, job_done_pkey, deadline_pkey, step_pkey
with target as materialized (
    select id from leasework.job where id = any (%(jobs)s::uuid[]) and node is null order by id for update skip locked
), sooner as (
    update leasework.job j
    set ready = lane is null, held_because = case when lane is not null then 'limit' end,
        fresh = fresh or not (ready or held_because is not distinct from 'limit'),
        seat = case when ready or held_because = 'limit' then seat else nextval('leasework.seat_seq') end,
        run_at = least(run_at, coalesce(%(now)s::timestamptz, now()))
    where j.id = any (array(select id from target)) and j.node is null
    returning j.id, j.queue
), undone as (
    delete from leasework.job_done d
    where d.id = any (%(jobs)s::uuid[]) and (%(state)s::text is null or d.state = %(state)s)
      and (select true from leasework.job j where j.id = d.id) is null
    returning d.*
), cleared as ( -- one that did not complete continues where it was
    delete from leasework.step s using undone u where s.job = u.id and u.state = 'completed' and not %(keep_steps)s
), again as (
    insert into leasework.job ({{job/_kept}}, ready, held_because, last_error, run_at, deadlines)
    select distinct on (id) {{job/_kept}}, lane is null, case when lane is not null then 'limit' end,
           case when state not in ('cancelled', 'completed') then last_error end, coalesce(%(now)s::timestamptz, now()),
           (select true from leasework.deadline x -- a scalar subquery, and hidden from deadline_due
            where x.id = undone.id and case x.state when 'armed' then true end limit 1) is not null
    from undone order by id, finished_at desc
    on conflict (id) do nothing
    returning id, queue
), woken as (
    select leasework.wake(array_agg(distinct queue))
    from (select queue from sooner union all select queue from again) q
), changed as (
    select id, 'waiting' as place from sooner union all select id, 'finished' from again
    union all
    select id, 'running' from leasework.job where id = any (%(jobs)s::uuid[]) and node is not null
)
select id, place from changed, woken
union all
select id, replace(place, 'finished', 'unchanged') from (
{{job/_unchanged}}
) as rest
