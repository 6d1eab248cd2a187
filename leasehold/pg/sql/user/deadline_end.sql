-- End a deadline that stands alone in a transaction of the user's: it is met if that commits.
-- locks: its rows until the commit; a sweep passes them over
-- index: deadline_pkey
select leasehold.deadline_end(cast(%(id)s as uuid), cast(%(verdict)s as text))
