-- Count the jobs that finished in each whole minute, from a minute before "since" and for at most five minutes, up to
-- ten seconds behind the clock; nothing if no minute has ended since. Counting a minute again gives the same rows, so
-- two leaders may do it at once. The answer is the time up to which it counted.
-- Each class of durations is a fifth wider than the one before, from 1 ms: see model/history.py. Their bounds are in an
-- array. date_part is used because extract returns a numeric, which is slow.
-- locks: history rows by primary key
-- index: job_done_finished, attempt_ended, history_pkey
with bound as materialized (
    select array_agg(ceil(power(1.2::float8, n - 1e-9) * 1000) / 1e6 order by n) as bounds
    from generate_series(1, 160) n
), clock as (
    select coalesce(%(now)s::timestamptz, now()) as at
), span as materialized (
    select greatest(date_trunc('minute', coalesce(%(since)s::timestamptz, (select max(h.at) from leasework.history h),
                                                  c.at - interval '1 hour') - interval '1 minute'),
                    date_trunc('minute', c.at) - interval '1 day') as low,
           date_trunc('minute', c.at - interval '10 seconds') as high
    from clock c
), part as materialized (
    select case when high > coalesce(%(since)s::timestamptz, low) then low else high end as low,
           least(high, low + interval '6 minutes') as high
    from span
), classed as materialized (
    select date_trunc('minute', d.finished_at) as at, d.queue, d.task_name, d.state,
           width_bucket(date_part('epoch', d.started_at - d.run_at), (select bounds from bound)) as w,
           width_bucket(date_part('epoch', d.finished_at - d.started_at), (select bounds from bound)) as r,
           count(*) as n
    from leasework.job_done d
    where d.finished_at >= (select low from part) and d.finished_at < (select high from part)
    group by 1, 2, 3, 4, 5, 6
), totals as (
    select at, queue, task_name, sum(n) filter (where state = 'completed') as completed,
           sum(n) filter (where state = 'cancelled') as cancelled,
           sum(n) filter (where state = 'discarded') as discarded,
           sum(n) filter (where state = 'quarantined') as quarantined, 0 as failed
    from classed group by 1, 2, 3
    union all
    select date_trunc('minute', a.ended_at), coalesce(j.queue, d.queue), coalesce(j.task_name, d.task_name),
           0, 0, 0, 0, count(*)
    from leasework.attempt a
    left join leasework.job j on j.id = a.job_id
    left join lateral (select x.queue, x.task_name from leasework.job_done x where x.id = a.job_id limit 1) d on true
    where a.ended_at >= (select low from part) and a.ended_at < (select high from part)
      and a.outcome in ('retryable', 'crashed', 'requeued', 'discarded') and coalesce(j.queue, d.queue) is not null
    group by 1, 2, 3
), waits as (
    select at, queue, task_name, jsonb_object_agg(w, n) as counts
    from (select at, queue, task_name, w, sum(n) as n from classed where w is not null group by 1, 2, 3, 4) x
    group by 1, 2, 3
), runs as (
    select at, queue, task_name, jsonb_object_agg(r, n) as counts
    from (select at, queue, task_name, r, sum(n) as n from classed where r is not null group by 1, 2, 3, 4) x
    group by 1, 2, 3
), summed as (
    select at, queue, task_name, coalesce(sum(completed), 0) as completed, coalesce(sum(cancelled), 0) as cancelled,
           coalesce(sum(discarded), 0) as discarded, coalesce(sum(quarantined), 0) as quarantined,
           coalesce(sum(failed), 0) as failed
    from totals group by 1, 2, 3
), kept as (
    insert into leasework.history as h (at, queue, task_name, completed, cancelled, discarded, quarantined, failed,
                                        wait, run)
    select s.at, s.queue, s.task_name, s.completed, s.cancelled, s.discarded, s.quarantined, s.failed,
           coalesce(w.counts, '{}'), coalesce(r.counts, '{}')
    from summed s left join waits w using (at, queue, task_name) left join runs r using (at, queue, task_name)
    order by 1, 2, 3
    on conflict (at, queue, task_name) do update
    set completed = excluded.completed, cancelled = excluded.cancelled, discarded = excluded.discarded,
        quarantined = excluded.quarantined, failed = excluded.failed, wait = excluded.wait, run = excluded.run
    where (h.completed, h.cancelled, h.discarded, h.quarantined, h.failed, h.wait, h.run) is distinct from
          (excluded.completed, excluded.cancelled, excluded.discarded, excluded.quarantined, excluded.failed,
           excluded.wait, excluded.run)
)
select greatest(high, low) from part
