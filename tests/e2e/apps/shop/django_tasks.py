"""Tasks of Django's own framework (Django 6.0 and later)."""

from django.tasks import task


class Broken(Exception):
    """Not a builtin."""


@task
def add(left, right=0):
    return left + right


@task
async def add_async(left, right=0):
    return left + right


@task(queue_name="mail", priority=10)
def mail():
    return None


@task(takes_context=True)
def who_am_i(context):
    return [context.task_result.id, context.attempt, context.task_result.status]


@task(takes_context=True)
async def who_am_i_async(context):
    return [context.task_result.id, context.attempt, context.task_result.status]


@task
def fail(kind):
    errors = {"builtin": ValueError, "own": Broken, "exit": SystemExit}
    raise errors[kind]("it failed:\nValueError: not this line")


@task
async def fail_async():
    raise KeyError("it failed")


@task
def unstorable(in_utf8):
    return (lambda: True) if in_utf8 else b"\xff"


@task
def nothing(*args, **kwargs):
    return None
