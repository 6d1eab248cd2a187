-- Does the server show that this very session holds the lock? Its pid and our mark tell the
-- session; what pg_locks says of the lock is the truth.
-- locks: none
-- index: none
select pg_backend_pid() = %(pid)s and current_setting('leasehold.nonce', true) = %(nonce)s
       and exists (
           select 1 from pg_locks
           where locktype = 'advisory' and pid = %(pid)s and granted
             and database = (select oid from pg_database where datname = current_database())
             and classid = %(classid)s::bigint::oid and objid = %(objid)s::bigint::oid
             and objsubid = %(objsubid)s
             and mode = case when %(shared)s then 'ShareLock' else 'ExclusiveLock' end)
