-- The terms since then, and the last one before of each election.
-- locks: none
-- index: a scan of term
select name, token, worker_id, acquired_at from (
    select t.*, row_number() over (partition by name order by token desc) as place,
           lead(acquired_at) over (partition by name order by token) as next_at
    from leasework.term t) t
where acquired_at >= %(since)s or place = 1 or next_at >= %(since)s
order by acquired_at desc, token desc limit %(limit)s
