-- What a job's handler has recorded, in the order in which it began.
-- locks: none
-- index: step_pkey
select name, kind, open, until, result, seconds, at from leasework.step where job = %(job)s order by at, name
