-- The newest terms of an election, or of all.
-- locks: none
-- index: a scan of term
select name, token, worker_id, acquired_at from leasework.term
where %(name)s::text is null or name = %(name)s
order by acquired_at desc limit %(limit)s
