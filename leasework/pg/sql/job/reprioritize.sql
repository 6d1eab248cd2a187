-- Give waiting jobs another priority. They take new seats behind the jobs that have it already, so that claims find them.
-- A job that has it keeps its seat. Running jobs and locked rows are skipped. The answer says of each known job where it
-- was: waiting, running (as it is), finished, or locked.
-- locks: job rows by id FOR UPDATE SKIP LOCKED
-- index: job_pkey, job_done_pkey
with target as materialized (
    select id from leasework.job where id = any (%(jobs)s::uuid[]) and node is null order by id for update skip locked
), moved as (
    update leasework.job j
    set priority = %(priority)s::smallint,
        seat = case when (ready or held_because = 'limit') and priority <> %(priority)s::smallint then nextval('leasework.seat_seq') else seat end
    where j.id = any (array(select id from target)) and j.node is null
    returning j.id, j.queue, j.ready or j.held_because = 'limit' as ready
), woken as (
    select leasework.wake(array_agg(distinct queue)) from moved where ready
), changed as (
    select id, 'waiting' as place from moved
    union all
    select id, 'running' from leasework.job where id = any (%(jobs)s::uuid[]) and node is not null
)
select id, place from changed, woken
union all
{{job/_unchanged}}
