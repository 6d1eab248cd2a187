"""``leasehold bench``: what leasehold costs on this machine and this database."""
