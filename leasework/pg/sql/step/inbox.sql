-- The signals to a job that it has not taken, by name.
-- locks: none
-- index: inbox_pkey
select name, count(*)::integer, min(at) from leasework.inbox where job = %(job)s group by name order by 3
