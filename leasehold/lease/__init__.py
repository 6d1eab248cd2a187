"""Who holds what. The guard renews a process's node, leaderships and locks, and fences the process.

Read in this order: model/lease.py, membership, guard, elections, contests.
"""
