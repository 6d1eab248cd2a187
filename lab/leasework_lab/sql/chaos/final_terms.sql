-- The final read: every term that was acquired.
-- locks: none
-- index: term_pkey
select name, token, worker_id from leasework.term order by name, token
