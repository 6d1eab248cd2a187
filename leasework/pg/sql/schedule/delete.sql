-- Delete a schedule that was put at run time, or ("in_code") any. Its ledger stays. Code that defines it adds it again.
-- locks: schedule row
-- index: schedule_pkey
delete from leasework.schedule where app = %(app)s and name = %(name)s and (%(in_code)s or not in_code) returning name
