-- The moment from which the ledger is complete.
-- locks: none
-- index: a scan of ledger_begin
select at from leasework.ledger_begin
