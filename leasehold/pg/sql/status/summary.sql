-- Numbers for status, each capped so that a full queue costs no scan.
-- locks: none
-- index: job_ready, job_waiting, job_unknown, job_done_bad
select (select count(*) from (select 1 from leasehold.job where ready limit 10000) x),
       (select count(*) from (select 1 from leasehold.job where not ready limit 10000) x),
       (select count(*) from (select 1 from leasehold.job where held_because = 'unknown_task' and not ready
                              limit 10000) x),
       (select count(*) from (select 1 from leasehold.job_done where state = 'quarantined' limit 10000) x),
       (select extract(epoch from coalesce(%(now)s::timestamptz, now()) - min(run_at))::float8
        from (select run_at from leasehold.job where ready and node is null limit 10000) x),
       (select coalesce(jsonb_agg(distinct task_name), '[]')
        from (select task_name from leasehold.job where held_because = 'unknown_task' and not ready limit 1000) x),
       (select coalesce(jsonb_agg(distinct queue), '[]')
        from (select queue from leasehold.job where ready and node is null limit 10000) x)
