-- Start no job of a key for some time, because one was throttled. Then its bucket has one token: what was saved up would
-- be a burst at the worst moment.
-- locks: the key's row
-- index: limit_key_pkey
insert into leasework.limit_key as k (key, name, closed_until, tokens, filled_at)
select %(key)s, split_part(%(key)s, ':', 1), until, 1, until
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(seconds)s) as until) u
on conflict (key) do update
set closed_until = greatest(k.closed_until, excluded.closed_until), tokens = least(k.tokens, 1),
    filled_at = greatest(k.closed_until, excluded.closed_until)
