"""Nodes, leaders and locks: the leases of a process. The guard renews them and fences the process.

Read in this order: model/lease.py, named_lease, contests, guard.
"""
