-- Delete a schedule that was put at run time. Its ledger stays.
-- locks: schedule row
-- index: schedule_pkey
delete from leasehold.schedule where app = %(app)s and name = %(name)s and not in_code returning name
