-- The sessions that wait for a lock, and those that block them.
-- locks: none
-- index: none
select a.pid, a.usename::text, a.application_name, a.wait_event,
       extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - a.query_start)::float8,
       pg_blocking_pids(a.pid), left(regexp_replace(a.query, '''[^'']*(''|$)', '''…''', 'g'), 200)
from pg_stat_activity a
where a.datname = current_database() and a.wait_event_type = 'Lock'
order by a.query_start limit %(limit)s
