"""``leasework bench``: measures leasework on this machine and this database."""
