-- Part of each statement that takes claims from a node: puts the jobs of `freed` back into the queue, or ends them.
-- `freed` has: id, over (the state in which the job ends; null: it goes back), began as in _finish.sql, why
-- (the new last_error; null: as it is), error (as in _finish.sql), undone (1: the attempt does not count) and crashed (1:
-- its worker died).
-- index: job_pkey
back as (
    update leasework.job j
    set ready = j.lane is null, held_because = case when j.lane is not null then 'limit' end, node = null,
        claim_token = null, fresh = false, seat = nextval('leasework.seat_seq'), started_at = null,
        progress = null, progress_note = null, attempt = j.attempt - f.undone, crashes = j.crashes + f.crashed,
        last_error = coalesce(f.why, j.last_error)
    from freed f where j.id = f.id and f.over is null
    returning j.id, j.queue
), gone as (
    delete from leasework.job j using freed f where j.id = f.id and f.over is not null
    returning j.*, f.over as ended, f.began, null::jsonb as result, f.error, f.undone, f.crashed
), {{job/_finish}}, woken as (
    select leasework.wake(array_agg(distinct queue)) from back
)
