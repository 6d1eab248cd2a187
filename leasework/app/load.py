"""Loads the App that ``MODULE:APP`` names."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from leasework.app import App, Task
from leasework.errors import ConfigError, LeaseworkError, suggest, told


def load_app(target: str, options: dict[str, Any] | None = None) -> App:
    """The App that ``module.path:name`` names; if that is a function without parameters, it is
    called to create the App. Modules of the working directory come first. ``options`` override the
    code's settings. Raises ConfigError if there is no such module or name, or if it is not an
    App."""
    module_name, _, path = target.partition(":")
    if module_name.endswith(".py"):
        right = f"{module_name.removesuffix('.py').replace(os.sep, '.')}:{path or 'app'}"
        raise ConfigError("name a module, not a file", got=target, do=f"Write {right}")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _module(module_name)
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            names = [name for name, value in vars(module).items() if _is_app(value)]
            raise ConfigError(
                f"module {module_name} has no {path!r}" if path else f"{target} is not MODULE:APP",
                do=suggest(path, names) if names else _INSTEAD,
            )
        found = getattr(found, name)
    if _is_factory(found):
        with _reported(f"calling {target}"):
            found = found()
    if not isinstance(found, App):
        raise no_app(target, found)
    if options:
        found.configure(**options)
    return found


def no_app(target: str, found: object) -> ConfigError:
    """The error for a ``target`` that names something else than an App."""
    return ConfigError(f"{target} is not an App", got=type(found).__name__, do=_INSTEAD)


_INSTEAD = (
    "Name the module that has app = App(…). With leasework's Flask extension, run flask leasework "
    "…, and in a Django project manage.py leasework …"
)


def _is_app(value: object) -> bool:
    return issubclass(type(value), App)  # a proxy's class may not be asked for


def _is_factory(found: Any) -> bool:
    """Return whether it can be called to create the App."""
    # a task is callable too, but calling it would run it here and now
    if isinstance(found, (App, Task, type)) or inspect.iscoroutinefunction(found):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


def _module(name: str) -> ModuleType:
    with _reported(f"importing {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not error.name or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise ConfigError(
                f"there is no module {error.name!r}",
                got=name,
                do=f"Looked in {os.getcwd()} and on Python's path",
            ) from None


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Report a failure of the user's code, without the frames of this file and importlib."""
    try:
        yield
    except LeaseworkError:
        raise
    except Exception as error:
        trace = error.__traceback__
        ours = (__file__, "<frozen importlib", importlib.__file__ or "")
        while trace and trace.tb_frame.f_code.co_filename.startswith(ours):
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
        raise ConfigError(
            f"{what} failed: {told(error)}",
            do="Its traceback is above. Correct the code of the application",
        ) from None
