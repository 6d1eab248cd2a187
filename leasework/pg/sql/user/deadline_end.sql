-- End a deadline without a job in the user's transaction. It counts only if that commits.
-- locks: its row until the commit; a sweep passes them over
-- index: deadline_pkey
select leasework.deadline_end(cast(%(id)s as uuid), cast(%(verdict)s as text))
