-- Silence problems of a kind, of one subject or of all (''), for so many seconds; 0 ends the silence. Old ones are deleted.
-- locks: one silence row, and old ones
-- index: silence_pkey; a scan of silence
with old as (
    delete from leasework.silence
    where until <= coalesce(%(now)s::timestamptz, now()) and (kind, subject) <> (%(kind)s, %(subject)s)
)
insert into leasework.silence (kind, subject, until, who, reason)
values (%(kind)s, %(subject)s, coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(seconds)s), %(who)s, %(reason)s)
on conflict (kind, subject) do update set until = excluded.until, who = excluded.who, reason = excluded.reason
