-- Records the end of a handler's run.
-- locks: the row of its own run
-- index: demo_run_pkey
update leasework.demo_run set finished_at = coalesce(%(now)s::timestamptz, clock_timestamp())
where id = %(run)s
returning id
