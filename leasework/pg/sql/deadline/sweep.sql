-- Decide passed deadlines and enqueue their callbacks, in one statement. Any number of sweepers may run at once. Three
-- things keep a breach single: the row's lock (other sweepers skip it; a completion waits for us), the state that the
-- update names (in a form that does not read all of deadline_due), and the callback's key. The answer also has the
-- seconds until the next one is due.
-- edge: new -> available
-- locks: deadline rows FOR UPDATE SKIP LOCKED, then new unique keys
-- index: deadline_due (in order), deadline_pkey, job_pkey, job_done_pkey
with clock as materialized (
    select coalesce(%(now)s::timestamptz, now()) as at
), due as materialized (
    select id from leasework.deadline
    where state = 'armed' and due_at <= coalesce(%(now)s::timestamptz, now())
    order by due_at
    limit %(limit)s
    for update skip locked
), breached as (
    update leasework.deadline d
    set state = 'breached', closed_at = c.at, callback_job = leasework.new_id(), job_state = j.state
    from due
    cross join clock c
    left join lateral (
        select case when j.node is not null then 'running' when j.ready or j.held_because = 'limit' then 'available'
                    when j.held_because = 'retryable' then 'retryable' else 'scheduled' end as state
        from leasework.job j where j.id = due.id
        union all
        select o.state from leasework.job_done o where o.id = due.id
        limit 1) j on true
    where d.id = due.id and case d.state when 'armed' then true end
    returning d.*, c.at
), keyed as (
    insert into leasework.job_key (key, job_id, held_until)
    -- no key of a job begins with a colon
    select ':deadline:' || b.id, b.callback_job, b.at + interval '366 days'
    from breached b
    on conflict (key) do nothing
    returning key, job_id
), wanted as (
    select b.callback_job as id, b.callback ->> 'task' as task, b.callback as options, b.at as run_at,
           k.key as unique_key, null as schedule, null::timestamptz as tick_at,
           jsonb_build_object('breach', jsonb_build_object(
               'deadline', b.id, 'name', b.name,
               'due', to_char(b.due_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'late_seconds', extract(epoch from b.at - b.due_at)::float8,
               'job', case when b.of_job then b.id end,
               'state', case when b.of_job then coalesce(b.job_state, 'gone') end,
               'schedule', b.schedule,
               'tick', to_char(b.tick_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'since', b.since, 'until', b.until)) as payload
    from breached b join keyed k on k.job_id = b.callback_job
), called as (
    {{job/_insert}}
    returning queue
), told as (
    insert into leasework.event (at, kind, level, fields)
    select b.at, 'deadline_breached', 'error', jsonb_build_object(
        'deadline', b.id, 'name', b.name, 'job', case when b.of_job then b.id end,
        'due', to_char(b.due_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'late', round(extract(epoch from b.at - b.due_at), 3)::float8, 'callback', b.callback ->> 'task',
        'callback_job', b.callback_job)
    from breached b
), woken as (
    select leasework.wake(array_agg(distinct queue)) from called
), next as (
    select (select extract(epoch from d.due_at - coalesce(%(now)s::timestamptz, now()))::float8
            from leasework.deadline d
            where d.state = 'armed' and d.due_at > coalesce(%(now)s::timestamptz, now())
            order by d.due_at limit 1) as seconds
)
select n.seconds, b.id, b.name, case when b.of_job then b.id end, b.due_at,
       extract(epoch from b.at - b.due_at)::float8, b.callback ->> 'task', b.callback_job
from next n cross join woken left join breached b on true
