-- Part of each statement that finishes jobs: moves the rows of `gone` to the history and releases their unique keys.
-- `gone` has the columns of leasework.job, and: ended (the state), began (when the last attempt started; null if it did
-- not run, and then no node and no token are kept), result, error, undone (1: the attempt does not count) and crashed
-- (1: its worker died). The last_error of a running job that was cancelled is the reason for the cancel; the outcome of
-- the run is appended. A completed job has no error. A user's transaction may complete a job long after the transaction began, so the time is that of
-- the statement.
-- index: job_key_pkey
done as (
    insert into leasework.job_done ({{job/_kept}}, run_at, finished_at, started_at, attempt, crashes, state, node,
                                    claim_token, result, progress, progress_note, last_error)
    select {{job/_kept}}, g.run_at, coalesce(cast(%(now)s as timestamptz), statement_timestamp()), g.began,
           g.attempt - g.undone, g.crashes + g.crashed, g.ended, case when g.began is not null then g.node end,
           case when g.began is not null then g.claim_token end, g.result, g.progress, g.progress_note,
           case when g.cancel_requested
                then concat_ws('; ', g.last_error, case when g.ended = 'completed' then 'it ran to its end'
                                                        else nullif(g.error, g.last_error) end)
                when g.ended <> 'completed' then g.error end
    from gone g
    where g.history or g.ended <> 'completed'
), keys as (
    delete from leasework.job_key k using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.held_until is null
)
