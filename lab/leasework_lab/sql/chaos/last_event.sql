-- The newest event before the campaign.
-- locks: none
-- index: event_pkey
select coalesce(max(id), 0) from leasework.event
