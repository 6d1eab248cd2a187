"""``leasework import``: code for leasework from what other schedulers are told."""

from __future__ import annotations

import sys

import click

from leasework.errors import ConfigError


@click.group("import")
def import_() -> None:
    """Print code for leasework from the schedules of another system."""


@import_.command("celery-beat")
@click.argument("target", metavar="MODULE:APP")
def celery_beat(target: str) -> None:
    """Print the beat_schedule of a Celery app as schedules of leasework.

    MODULE:APP names the Celery app, for example myproject.celery:app. The command imports its
    tasks; it connects to nothing and changes nothing. The output is a Python module with the
    function add_schedules(app). Entries that leasework has no schedule for (solar, for example) are
    listed on stderr, and the exit status is then 1.
    """
    try:
        from celery import Celery
    except ImportError:
        raise ConfigError(
            "celery is not installed here", do="Run this where your Celery application runs"
        ) from None
    from leasework.app.load import load
    from leasework.integrations.celery_beat import read

    found = read(load(target, Celery))
    click.echo(found.code, nl=False)
    for name, why in found.refused.items():
        click.echo(f"leasework: {name!r} was not converted: {why}", err=True)
    sys.exit(1 if found.refused else 0)
