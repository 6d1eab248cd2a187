-- Schedules whose newest finished job was discarded or quarantined, and none of whose last five ticks has a job that
-- completed within "seconds". Only a schedule of one of the newest "limit" bad jobs can be such a one.
-- locks: none
-- index: job_done_bad (in order), tick_pkey, job_done_pkey; a scan of schedule
select s.app, s.name, s.task_name, o.id, o.state, o.finished_at, left(o.last_error, 2000)
from (select app, name, task_name from leasework.schedule where not paused and name in (
          (select schedule from leasework.job_done where state = 'discarded' order by id desc limit %(limit)s)
          union
          (select schedule from leasework.job_done where state = 'quarantined' order by id desc limit %(limit)s))) s
cross join lateral (
    select d.id, d.state, d.finished_at, d.last_error,
           bool_or(d.state = 'completed' and d.finished_at > coalesce(%(now)s::timestamptz, now())
                   - make_interval(secs => %(seconds)s)) over () as works
    from (select t.job_id, t.decided_at from leasework.tick t
          where t.app = s.app and t.schedule = s.name and t.job_id is not null
          order by t.fire_at desc limit 5) t
    cross join lateral (
        select x.id, x.state, x.finished_at, x.last_error from leasework.job_done x
        where x.id = t.job_id and x.finished_at >= t.decided_at - interval '1 minute' limit 1) d
    order by d.finished_at desc limit 1) o
where o.state in ('discarded', 'quarantined') and not o.works
order by s.app, s.name limit 100
