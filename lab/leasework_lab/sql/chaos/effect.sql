-- What a handler does in the transaction that completes its job.
-- locks: none
-- index: none
insert into leasework.chaos_effect (ref, job, token) values (%(ref)s, %(job)s, %(token)s)
