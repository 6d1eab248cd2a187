-- The newest terms of an election, or of all. Of a lock, only the newest term is kept, and no end is recorded.
-- locks: none
-- index: a scan of term
select name, token, worker_id, acquired_at from leasework.term
where name = %(name)s or %(name)s::text is null and not starts_with(name, 'lock:')
order by acquired_at desc limit %(limit)s
