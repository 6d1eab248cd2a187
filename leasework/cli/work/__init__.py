"""``leasework worker``: the process that runs jobs, and its supervisor."""
