-- Record that a person has seen these deaths (null: all), so that status no longer reports them.
-- locks: death rows
-- index: death_unseen (all of it)
update leasework.death set seen_at = coalesce(%(now)s::timestamptz, now())
where how = 'died' and seen_at is null and (%(worker_id)s::text is null or worker_id = %(worker_id)s)
returning node
