-- End a deadline that stands alone: met or cancelled. What has its verdict keeps it.
-- locks: its rows
-- index: deadline_pkey
select leasehold.deadline_end(%(deadline)s, %(verdict)s, %(now)s::timestamptz)
