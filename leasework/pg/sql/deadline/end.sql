-- End a deadline without a job as met or cancelled. A level that has ended does not change.
-- locks: its rows
-- index: deadline_pkey
select leasework.deadline_end(%(deadline)s, %(verdict)s, %(now)s::timestamptz)
