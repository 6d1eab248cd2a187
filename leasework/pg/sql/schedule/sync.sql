-- Update the schedules of an application to the code of one release. Schedules that were put at run time stay, unless
-- the code defines one of the same name. A paused one that the code no longer defines becomes such a schedule: a rollback
-- of the release must not resume it. Refused (no row changes, "newest" is false) while a node of a newer release is
-- alive that defines schedules too.
-- A row that somebody deleted comes back. What the ledger says was decided stays decided. A next_at that passes over the
-- first moment of the code, although that is undecided, was changed by hand: it goes back to that moment.
-- locks: schedule rows by name
-- index: schedule_pkey, release_pkey, tick_pkey (in order); a scan of node
with newest as materialized (
    select not exists (
        select 1 from leasework.node n join leasework.release r on r.app = n.app and r.name = n.release
        where n.app = %(app)s and n.defines
          and r.number > (select number from leasework.release where app = %(app)s and name = %(release)s)) as yes
), d as materialized (
    select * from jsonb_to_recordset(%(schedules)s::jsonb)
        as x (name text, spec jsonb, described text, task_name text, job jsonb, missed text, grace_seconds real,
              next_at timestamptz)
), kept as (
    insert into leasework.schedule as s (app, name, spec, described, task_name, job, missed, grace_seconds, release,
                                         next_at, updated_at, high_water)
    select %(app)s, d.name, d.spec, d.described, d.task_name, d.job, d.missed, d.grace_seconds, %(release)s,
           d.next_at, coalesce(%(now)s::timestamptz, now()),
           (select coalesce(t.until, t.fire_at) from leasework.tick t
            where t.app = %(app)s and t.schedule = d.name and t.state <> 'manual' order by t.fire_at desc limit 1)
    from d, newest
    -- rows that match are not even locked, because each node repeats this
    where newest.yes and not exists (
        select 1 from leasework.schedule s
        where s.app = %(app)s and s.name = d.name
          and s.in_code and (s.spec, s.task_name, s.job, s.missed, s.grace_seconds, s.release)
              = (d.spec, d.task_name, d.job, d.missed, d.grace_seconds, %(release)s)
          and (d.next_at is null or s.next_at <= d.next_at or s.high_water >= d.next_at))
    order by d.name
    on conflict (app, name) do update
    set spec = excluded.spec, described = excluded.described, task_name = excluded.task_name, job = excluded.job,
        missed = excluded.missed, grace_seconds = excluded.grace_seconds, release = excluded.release, in_code = true,
        updated_at = excluded.updated_at,
        (next_at, former) = (select r.next_at, r.former from leasework.redefined(s, excluded) r)
    where not s.in_code or (s.spec, s.task_name, s.job, s.missed, s.grace_seconds, s.release)
          is distinct from (excluded.spec, excluded.task_name, excluded.job, excluded.missed,
                            excluded.grace_seconds, excluded.release)
       or (excluded.next_at is null or s.next_at <= excluded.next_at or s.high_water >= excluded.next_at) is not true
    returning s.name
), left_paused as (
    update leasework.schedule s set in_code = false from newest
    where newest.yes and s.app = %(app)s and s.in_code and s.paused and s.name <> all (array(select name from d))
), dropped as (
    delete from leasework.schedule s using newest
    where newest.yes and s.app = %(app)s and s.in_code and not s.paused and s.name <> all (array(select name from d))
    returning s.name
)
select (select yes from newest), array(select name from kept), array(select name from dropped)
