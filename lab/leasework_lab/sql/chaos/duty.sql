-- What a leader does in a transaction of its own.
-- locks: none
-- index: none
insert into leasework.chaos_duty (duty, term) values (%(duty)s, %(term)s)
