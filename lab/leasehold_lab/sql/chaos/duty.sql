-- What a leader does in a transaction of its own.
-- locks: none
-- index: none
insert into leasehold.chaos_duty (duty, term) values (%(duty)s, %(term)s)
