-- The server's counters: all bytes of WAL, this database's transactions and buffers, and the backends of leasework's
-- other processes.
-- locks: none
-- index: none
select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
       (d.xact_commit + d.xact_rollback)::float8,
       (d.blks_hit + d.blks_read)::float8,
       array(select a.pid from pg_stat_activity a
             where a.datname = current_database() and a.application_name like 'leasework %%'
               and a.pid <> pg_backend_pid())
from pg_stat_database d where d.datname = current_database()
