-- End the batches of which no unfinished job is left: see leasework.end_batches.
-- edge: scheduled -> available
-- locks: batch rows FOR UPDATE SKIP LOCKED, job rows FOR NO KEY UPDATE SKIP LOCKED
-- index: batch_open, job_batch, job_done_batch
select ended, open from leasework.end_batches(%(now)s)
