-- End a deadline without a job as met or cancelled, unless it has ended.
-- locks: its row
-- index: deadline_pkey
select leasework.deadline_end(%(deadline)s, %(verdict)s, %(now)s::timestamptz)
