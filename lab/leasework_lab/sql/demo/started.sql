-- Records the start of a handler's run.
-- locks: none
-- index: demo_run_pkey
insert into leasework.demo_run (job, task, tick_at, worker, attempt, started_at)
values (%(job)s, %(task)s, %(tick_at)s, %(worker)s, %(attempt)s,
        coalesce(%(now)s::timestamptz, clock_timestamp()))
returning id
