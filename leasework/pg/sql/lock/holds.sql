-- Whether the server shows that this session holds the lock. The pid and our mark identify the session; pg_locks
-- decides about the lock.
-- locks: none
-- index: none
select pg_backend_pid() = %(pid)s and current_setting('leasework_lock.nonce', true) = %(nonce)s
       and exists (
           select 1 from pg_locks
           where locktype = 'advisory' and pid = %(pid)s and granted
             and database = (select oid from pg_database where datname = current_database())
             and classid = %(classid)s::bigint::oid and objid = %(objid)s::bigint::oid
             and objsubid = %(objsubid)s
             and mode = case when %(shared)s then 'ShareLock' else 'ExclusiveLock' end)
