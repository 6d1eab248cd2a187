-- leasework's tables in the server's statistics. The days of job_done are added up.
-- locks: none
-- index: none
select regexp_replace(s.relname, '_([0-9]{8}|default)$', ''), sum(s.n_live_tup)::bigint, sum(s.n_dead_tup)::bigint,
       sum(pg_table_size(s.relid))::bigint, sum(pg_indexes_size(s.relid))::bigint,
       extract(epoch from coalesce(%(now)s::timestamptz, now())
                          - max(greatest(s.last_vacuum, s.last_autovacuum)))::float8,
       sum(s.n_tup_upd)::bigint, sum(s.n_tup_hot_upd)::bigint, count(*)
from pg_stat_user_tables s
where s.schemaname = 'leasework'
group by 1 order by 4 desc, 1
