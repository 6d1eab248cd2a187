"""Who holds what. The guard renews a process's node, leaders and locks, and fences the process.

Read in this order: model/lease.py, named_lease, election, contests, guard.
"""
