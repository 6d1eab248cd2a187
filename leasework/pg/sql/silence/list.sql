-- The silences that are not over.
-- locks: none
-- index: a scan of silence
select kind, subject, until, who, reason from leasework.silence
where until > coalesce(%(now)s::timestamptz, now()) order by kind, subject
