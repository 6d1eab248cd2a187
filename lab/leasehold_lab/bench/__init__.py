"""``leasehold bench``: measures leasehold on this machine and this database."""
