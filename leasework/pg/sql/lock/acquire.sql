-- Take an advisory lock on our own connection: try, or wait for some milliseconds.
-- locks: the advisory lock
-- index: none
select leasework.advisory_lock(%(key)s::bigint, %(class_id)s::integer, %(object_id)s::integer,
                               %(shared)s::boolean, %(session)s::boolean, %(wait_ms)s::integer)
