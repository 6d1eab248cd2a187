-- Take an advisory lock in the user's transaction, until its end: try, or wait for some milliseconds. With "check",
-- also report whether the server shows it. (In some engines these functions do nothing.)
-- locks: the advisory lock
-- index: none
select got, case when got and cast(%(check)s as boolean) then exists (
           select 1 from pg_locks
           where locktype = 'advisory' and pid = pg_backend_pid() and granted
             and classid = cast(cast(%(classid)s as bigint) as oid)
             and objid = cast(cast(%(objid)s as bigint) as oid)
             and objsubid = cast(%(objsubid)s as smallint))
       else true end
from (select leasework.advisory_lock(
          cast(%(key)s as bigint), cast(%(class_id)s as integer), cast(%(object_id)s as integer),
          cast(%(shared)s as boolean), false, cast(%(wait_ms)s as integer)) as got) as taken
