"""Loads what ``MODULE:APP`` names: an App, or another system's application."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from leasework.errors import ConfigError, LeaseworkError, suggest, told

if TYPE_CHECKING:
    from leasework.app import App

T = TypeVar("T")


def load_app(target: str, options: dict[str, Any] | None = None) -> App:
    """The App that ``module.path:name`` names. ``options`` override the code's settings. See
    :func:`load`."""
    from leasework.app import App

    app = load(target, App, "an App")
    if options:
        app.configure(**options)
    return app


def load(target: str, kind: type[T], what: str) -> T:
    """The object that ``module.path:name`` names; if that is a function, it is called to create the
    object. Modules of the working directory come first. ``what``: the kind in words.

    Raises ConfigError if there is no such module or name, or if it is not of this kind.
    """
    from leasework.app import Task

    module_name, _, path = target.partition(":")
    if module_name.endswith(".py"):
        right = f"{module_name.removesuffix('.py').replace(os.sep, '.')}:{path}"
        raise ConfigError("name a module, not a file", got=target, do=f"Write {right}")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _module(module_name)
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(
                f"module {module_name} has no {path!r}", do=suggest(path, _candidates(module, kind))
            )
        found = getattr(found, name)
    # a task is callable too, but calling it would run it here and now
    if not isinstance(found, (kind, Task, type)) and callable(found):
        found = _made(target, found)
    if not isinstance(found, kind):
        apps = [name for name in _candidates(module, kind) if isinstance(vars(module)[name], kind)]
        known = f"{kind.__name__} objects of {module_name}: {', '.join(apps)}"
        hint = known if apps else f"Name {what} object"
        raise ConfigError(f"{target} is not {what}", got=type(found).__name__, do=hint)
    return found


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {error.name!r}",
                got=name,
                do=f"{_near(error.name)} Looked in {os.getcwd()} and on Python's path",
            ) from None
        raise _failed(f"importing {name}", error) from None
    except LeaseworkError:
        raise
    except Exception as error:
        raise _failed(f"importing {name}", error) from None


def _made(target: str, factory: Any) -> Any:
    try:
        return factory()
    except LeaseworkError:
        raise
    except Exception as error:
        raise _failed(f"calling {target}", error) from None


def _failed(what: str, error: Exception) -> ConfigError:
    """Report a failure of the user's code, without the frames of this file and importlib."""
    trace = error.__traceback__
    ours = (__file__, "<frozen importlib", importlib.__file__ or "")
    while trace and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    return ConfigError(
        f"{what} failed: {told(error)}",
        do="Its traceback is above. Correct the code of the application",
    )


def _near(name: str) -> str:
    """A suggestion: the module with the nearest name."""
    parent, _, _ = name.rpartition(".")
    folders: list[str] | None = [os.getcwd()]
    if parent:
        spec = importlib.util.find_spec(parent)
        folders = list(spec.submodule_search_locations or []) if spec else []
    known = [f"{parent}.{m.name}" if parent else m.name for m in pkgutil.iter_modules(folders)]
    return suggest(name, known[:20] if len(known) > 20 else known)


def _candidates(module: ModuleType, kind: type) -> list[str]:
    """What the user may have meant: a module's objects of this kind, or its public callables."""
    names = [name for name in vars(module) if not name.startswith("_")]
    apps = [name for name in names if isinstance(getattr(module, name, None), kind)]
    return apps or [name for name in names if callable(getattr(module, name, None))]
