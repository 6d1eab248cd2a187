"""Deterministic simulation: the real services on a virtual-time loop, over a Store in memory."""
