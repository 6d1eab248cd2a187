"""The reference's table."""

UNFINISHED = "select exists (select from job where state <> 'done')"
FINISHED = "select count(*) from job where state = 'done' and attempts = 1"
