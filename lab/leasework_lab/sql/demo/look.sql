-- What the demo shows while it runs. A job or tick that ran twice counts once. A dead worker's run never finishes, so
-- the caller must know which workers are alive.
-- locks: none
-- index: demo_run_pkey; scans of demo_run and job
select (select count(distinct job) from leasework.demo_run where finished_at is not null and tick_at is null),
       (select count(distinct tick_at) from leasework.demo_run where finished_at is not null),
       (select count(*) from leasework.job),
       (select count(*) from leasework.job_done where state <> 'completed'),
       (select coalesce(jsonb_agg(jsonb_build_array(r.worker, r.many, r.slow)), '[]')
        from (select worker, count(*) as many, count(*) filter (where task = %(slow)s) as slow
              from leasework.demo_run where finished_at is null group by worker) r),
       (select coalesce(jsonb_agg(jsonb_build_array(t.tick_at, t.worker) order by t.id desc), '[]')
        from (select id, tick_at, worker from leasework.demo_run
              where tick_at is not null order by id desc limit %(limit)s) t)
