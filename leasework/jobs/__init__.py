"""The life of a job, from enqueue to recorded outcome.

Read in this order: tasks, client, producer, executor, attempt, acker.
"""
