-- Take an advisory lock on a connection of ours: try, or wait so many milliseconds.
-- locks: the advisory lock
-- index: none
select leasehold.advisory_lock(%(key)s::bigint, %(class_id)s::integer, %(object_id)s::integer,
                               %(shared)s::boolean, %(session)s::boolean, %(wait_ms)s::integer)
