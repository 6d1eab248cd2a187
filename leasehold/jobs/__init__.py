"""A job from its enqueue to the record of its outcome.

Read in this order: tasks, client, producer, executor, attempt, acker.
"""
