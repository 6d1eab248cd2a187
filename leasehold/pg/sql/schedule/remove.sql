-- Take a schedule away; its ledger stays. Code that defines it brings it back.
-- locks: schedule row
-- index: schedule_pkey
delete from leasehold.schedule where app = %(app)s and name = %(name)s returning name
