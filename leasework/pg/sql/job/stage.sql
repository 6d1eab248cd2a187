-- Make due jobs available, those that a stop interrupted or their handlers suspended as the next ones. A job whose task or version no live node knows continues to wait. The answer also says
-- what else a leader has to do: the next deadline, whether dead nodes may hold jobs, whether a schedule is due, and whether a batch is open.
-- edge: scheduled -> available
-- edge: retryable -> available
-- locks: fence FOR SHARE, job rows FOR UPDATE SKIP LOCKED
-- index: job_waiting, fence_pkey, deadline_due (in order), death_open (all of it), schedule_next, batch_open (all of it); a scan of node
with f as materialized (
    select 1 from leasework.fence where name = %(term_leader)s and token = %(term_token)s for share
), known as materialized (
    select distinct t from leasework.node n, unnest(n.tasks) t where n.executes
), due as materialized (
    select ctid as at_row, run_at, coalesce(held_because in ('stopped', 'throttled', 'sleep', 'event', 'gather'), false) as next, coalesce(held_because in ('unknown_task', 'unknown_version'), false)
           and leasework.needs(task_name, version) not in (select t from known) as stays
    from leasework.job
    where not ready and held_because is distinct from 'limit' and run_at <= coalesce(%(now)s::timestamptz, now())
      and exists (select 1 from f)
    order by run_at
    limit %(limit)s
    for update skip locked
), staged as (
    update leasework.job j set ready = lane is null, held_because = case when lane is not null then 'limit' end,
        fresh = not next.next, seat = next.seat
    from (select at_row, next, nextval('leasework.seat_seq') as seat
          from (select at_row, next from due where not stays order by run_at) o) next
    where j.ctid = next.at_row
    returning j.queue
), later as (
    update leasework.job j set run_at = coalesce(%(now)s::timestamptz, now()) + interval '10 seconds'
    where j.ctid = any (array(select at_row from due where stays))
    returning 1
), woken as (
    select leasework.wake(array_agg(distinct queue)) from staged
)
select (select count(*) from staged), (select count(*) from later),
       (select extract(epoch from run_at - coalesce(%(now)s::timestamptz, now()))::float8
        from leasework.job where not ready and held_because is distinct from 'limit' and run_at > coalesce(%(now)s::timestamptz, now())
        order by run_at limit 1),
       (select extract(epoch from due_at - coalesce(%(now)s::timestamptz, now()))::float8
        from leasework.deadline where state = 'armed' order by due_at limit 1),
       exists (select 1 from leasework.death where not settled),
       exists (select 1 from leasework.schedule
               where app = %(term_leader)s and not paused and next_at <= coalesce(%(now)s::timestamptz, now())),
       exists (select 1 from leasework.batch where ended_at is null),
       (select count(*) from woken)
