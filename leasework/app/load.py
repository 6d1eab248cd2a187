"""Loads the App that ``MODULE:APP`` names."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
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
            names = [name.partition(":")[2] for name in _named([module])]
            names = names or [n for n, v in vars(module).items() if _is_factory(v, module_name)]
            do = suggest(path, names) if names and path else _instead(module)
            what = (
                f"module {module_name} has no {path!r}" if path else f"{target} is not MODULE:APP"
            )
            raise ConfigError(what, do=do)
        found = getattr(found, name)
    # a task is callable too, but calling it would run it here and now
    if not isinstance(found, (App, Task, type)) and callable(found) and not _needs(found):
        found = _made(target, found)
    if not isinstance(found, App):
        raise no_app(target, found)
    if options:
        found.configure(**options)
    return found


def no_app(target: str, found: object) -> ConfigError:
    """The error for a ``target`` that names something else than an App."""
    got = type(found).__name__
    if isinstance(found, type):
        got = f"the class {found.__name__}"
    elif inspect.isroutine(found):
        got = _needs(found) or got
    module = sys.modules.get(target.partition(":")[0], sys.modules[App.__module__])
    do = _instead(module, type(found).__module__)
    return ConfigError(f"{target} is not an App", got=got, do=do)


def _instead(module: ModuleType, framework: str = "") -> str:
    """What to name instead: an App in this module, or else in one of the working directory."""
    here = os.getcwd() + os.sep
    loaded = {n: m for n, m in sys.modules.items() if not n.startswith("leasework.")}
    others = [m for m in loaded.values() if str(getattr(m, "__file__", "")).startswith(here)]
    if names := _named([module]) or _named(others):
        return f"Did you mean {' or '.join(names[:5])}?"
    if framework.startswith("django.") or hasattr(module, "INSTALLED_APPS"):
        return "In a Django project, run manage.py leasework_worker, or manage.py leasework …"
    if framework.startswith(("flask.", "leasework.integrations.flask")):
        return "With leasework's Flask extension, run flask leasework worker, or flask leasework …"
    return "Name the module that has app = App(…)"


def _named(modules: list[ModuleType]) -> list[str]:
    """The Apps, as MODULE:NAME. (A proxy's class may not be asked for.)"""
    found: dict[int, str] = {}
    for module in modules:
        for name, value in list(vars(module).items()):
            if issubclass(type(value), App) and not name.startswith("_"):
                found.setdefault(id(value), f"{module.__name__}:{name}")
    return list(found.values())


def _is_factory(value: object, module: str) -> bool:
    return inspect.isfunction(value) and value.__module__ == module and not _needs(value)


def _needs(factory: Any) -> str:
    """Why it cannot be called to create the App, or nothing."""
    if inspect.iscoroutinefunction(factory):
        return "an async function"
    try:
        given = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # a callable that is written in C
        return ""
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [p.name for p in given if p.default is p.empty and p.kind not in optional]
    return f"a function that needs {', '.join(names)}" if names else ""


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
