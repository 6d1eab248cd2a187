-- Remove a schedule. Its ledger stays. Code that still defines it adds it again.
-- locks: schedule row
-- index: schedule_pkey
delete from leasehold.schedule where app = %(app)s and name = %(name)s returning name
