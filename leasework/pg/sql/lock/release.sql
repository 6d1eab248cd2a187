-- Release a session's lock. False: the session did not hold it.
-- locks: none
-- index: none
select case when %(key)s::bigint is not null and %(shared)s then pg_advisory_unlock_shared(%(key)s::bigint)
            when %(key)s::bigint is not null then pg_advisory_unlock(%(key)s::bigint)
            when %(shared)s then pg_advisory_unlock_shared(%(class_id)s::integer, %(object_id)s::integer)
            else pg_advisory_unlock(%(class_id)s::integer, %(object_id)s::integer) end
