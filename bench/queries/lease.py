"""leasehold's tables."""

UNFINISHED = "select exists (select from leasehold.job)"
FINISHED = "select count(*) from leasehold.job_done where state = 'completed' and attempt = 1"
