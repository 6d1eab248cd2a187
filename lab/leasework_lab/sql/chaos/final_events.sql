-- The final read: how often each event was recorded since the campaign began.
-- locks: none
-- index: a scan of event
select kind, count(*) from leasework.events where id > %(after)s group by kind order by kind
