-- Part of each statement that finishes jobs: moves the rows of `gone` to the history and releases their
-- unique keys. `gone` has the columns of leasehold.job, and: ended (the state), began (when the last attempt
-- started; null when the attempt did not run, so that no node and no token are kept), result, error, undone
-- (1: the attempt does not count) and crashed (1: its worker died). Somebody's reason to cancel a running job
-- is its last_error; what came of the run stands behind it.
-- index: job_key_pkey
done as (
    insert into leasehold.job_done (id, finished_at, queue, task_name, priority, run_at, created_at, started_at,
        max_attempts, attempt, crashes, timeout_seconds, state, schedule, tick_at, node, claim_token, payload,
        result, last_error)
    select g.id, coalesce(cast(%(now)s as timestamptz), now()), g.queue, g.task_name, g.priority, g.run_at,
           g.created_at, g.began, g.max_attempts, g.attempt - g.undone, g.crashes + g.crashed, g.timeout_seconds,
           g.ended, g.schedule, g.tick_at, case when g.began is not null then g.node end,
           case when g.began is not null then g.claim_token end, g.payload, g.result,
           case when g.cancel_requested
                then concat_ws('; ', g.last_error, case when g.ended = 'completed' then 'it ran to its end'
                                                        else nullif(g.error, g.last_error) end)
                else g.error end
    from gone g
    where g.history or g.ended <> 'completed'
), keys as (
    delete from leasehold.job_key k using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.held_until is null
)
