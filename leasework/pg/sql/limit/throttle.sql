-- Start no job of a key for some time, because one was throttled.
-- locks: the key's row
-- index: limit_key_pkey
insert into leasework.limit_key as k (key, name, closed_until)
values (%(key)s, split_part(%(key)s, ':', 1), coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(seconds)s))
on conflict (key) do update set closed_until = greatest(k.closed_until, excluded.closed_until)
