-- End a session of the dashboard, or all of them (''). A row that is older than any cookie is deleted.
-- locks: one row of ended_session, and old ones
-- index: ended_session_pkey; a scan of ended_session
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as at
), old as (
    delete from leasework.ended_session e using clock
    where e.at < clock.at - interval '1 day' and e.session not in ('', %(session)s)
)
insert into leasework.ended_session as e (session, at) select %(session)s, clock.at from clock
on conflict (session) do update set times = e.times + 1, at = excluded.at
