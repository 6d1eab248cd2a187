"""The base of the management commands: they run the command ``leasework``."""

from __future__ import annotations

import argparse
import os
import runpy
import site
import sys
import sysconfig
from typing import Any

from django.core.management.base import BaseCommand

from leasework.integrations.django.project import app

_OWN = ("stdlib", "platstdlib", "purelib", "platlib")


class LeaseworkCommand(BaseCommand):  # type: ignore[misc]
    """Passes its arguments to ``python -m leasework``, on the database of the project."""

    help = "Shows and manages jobs, schedules and workers."
    requires_system_checks = ()
    verb: tuple[str, ...] = ()
    """The arguments before those of the user."""

    def run_from_argv(self, argv: list[str]) -> None:
        own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        own.add_argument("--settings")
        own.add_argument("--pythonpath")
        self._run(argv[1], own.parse_known_args(argv[2:])[1])

    def print_help(self, prog_name: str, subcommand: str) -> None:
        self._run(subcommand, ["--help"])

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        self._run("leasework", options["arguments"])

    def _run(self, name: str, arguments: list[str]) -> None:
        os.environ.update(app.given.to_environ())
        # for the processes of `leasework worker --processes`: the folder of manage.py, --pythonpath
        os.environ["PYTHONPATH"] = os.pathsep.join(_added_folders())
        sys.argv = [name, *self.verb, *arguments]
        runpy.run_module("leasework", run_name="__main__", alter_sys=True)


def _added_folders() -> list[str]:
    """The folders of ``sys.path`` that Python does not add by itself. Programs that handlers start
    may run in another Python, which could not use this one's."""
    own = [*site.getsitepackages(), site.getusersitepackages(), *map(sysconfig.get_path, _OWN)]
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return [
        folder
        for folder in sys.path
        if folder
        and os.path.basename(folder) != zipped
        and not any(folder == each or folder.startswith(each + os.sep) for each in own if each)
    ]


class WorkerCommand(LeaseworkCommand):
    help = "Runs the schedules and jobs of the project."
    verb = ("worker", "leasework.integrations.django:app")
