"""Pure code: states, outcomes, backoff, schedules, filters, values, the lease's state machine.

It reads no clock and no random number, and connects to nothing.
"""
