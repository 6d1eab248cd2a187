"""Flask: configuration, the application context in jobs, ``flask leasework …``, and the dashboard
behind the site's own login.

    leasework = Leasework(Flask(__name__), App())

A view enqueues with ``app.sync.enqueue(task.job(...), on=db.session)``.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any
from weakref import WeakSet

import click
from flask import Blueprint, Flask, request
from flask.cli import ScriptInfo
from werkzeug.wrappers import Response

from leasework import CallNext, Context
from leasework.app import App
from leasework.config import Settings
from leasework.errors import ConfigError
from leasework.integrations.wsgi import Wsgi, as_wsgi

_NAME = "leasework"
_EXTENDED: WeakSet[App] = WeakSet()
"""Apps whose jobs run in a Flask application's context."""


class Leasework:
    """The Flask extension. Each job runs in an application context of its own.

    ``flask_app``: the Flask application; leave it out in an application factory, and call
    :meth:`init_app` there. ``app``: the App with the tasks and schedules; by default a new one.
    Raises ConfigError if this App has an extension already.
    """

    def __init__(self, flask_app: Flask | None = None, app: App | None = None) -> None:
        self.app = app or App()
        if self.app in _EXTENDED:
            raise ConfigError(
                "this App has a Flask extension already",
                do="Make Leasework(app=app) once in the module, and call init_app() in the factory",
            )
        _EXTENDED.add(self.app)
        self._flask_app: Flask | None = None
        self.app.middleware(self._in_app_context)
        registry: Any = self.app.registry
        registry.as_handler = self._as_handler
        for task in registry:
            task.handler = self._as_handler(task.function)
        if flask_app is not None:
            self.init_app(flask_app)

    def init_app(self, flask_app: Flask) -> None:
        """Apply the keys ``LEASEWORK_…`` of ``flask_app.config``, such as ``LEASEWORK_DSN``, to the
        App, and add the command ``flask leasework``.

        The keys are the fields of :class:`leasework.config.Settings` in upper case; one that is
        None has no effect. They win over the environment, but not over the database that a test has
        given to the App. Raises ConfigError for an unknown key, and if the App has already opened
        connections with other settings.
        """
        given = flask_app.config.get_namespace("LEASEWORK_").items()
        options = {name: value for name, value in given if value is not None}
        if self.app.test_database:
            options.pop("dsn", None)
        now = self.app.given  # a test may have put back what was there before
        if Settings.load({**vars(now), **options}) != now:
            self.app.configure(**options)
        self._flask_app = flask_app
        flask_app.extensions[_NAME] = self
        flask_app.cli.add_command(_command)

    def _context(self) -> AbstractContextManager[Any]:
        return self._flask_app.app_context() if self._flask_app else nullcontext()

    async def _in_app_context(self, ctx: Context, call_next: CallNext) -> Any:
        """For ``async def`` tasks, and for the middleware of others."""
        registry = self.app.registry
        in_loop = inspect.iscoroutinefunction(registry.get(ctx.task).function)
        with self._context() if in_loop or len(registry.middleware) > 1 else nullcontext():
            return await call_next()

    def _as_handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A plain function with a context in its own thread, where its teardown must run: a
        connection may belong to the thread, and a teardown that waits must not hold up the loop."""
        if inspect.iscoroutinefunction(function):
            return function

        @wraps(function)
        def in_thread(*args: Any, **kwargs: Any) -> Any:
            with self._context():
                return function(*args, **kwargs)

        return in_thread

    def dashboard(self, who: Callable[[], str | None], *, read_only: bool = False) -> Blueprint:
        """The dashboard as a blueprint::

            web.register_blueprint(leasework.dashboard(who=admin_name), url_prefix="/leasework")

        ``who`` is called in each request, as in a view. It returns the name of the person, which
        is recorded with each action, or None to refuse the request with status 401. ``read_only``
        refuses every action. The blueprint's own ``before_request`` may redirect to a login.

        The dashboard protects its forms itself: with Flask-WTF, exempt the blueprint from
        ``CSRFProtect``. Needs the extra ``web``.
        """
        blueprint = Blueprint(_NAME, __name__)

        @cache  # not before the first request: the configuration may change until then
        def site() -> Wsgi:
            from leasework.web import dashboard

            asgi = dashboard(self.app, who=lambda request: request.user, read_only=read_only)
            return as_wsgi(asgi, self.app)

        @blueprint.route("/", defaults={"path": ""}, methods=["GET", "POST"])
        @blueprint.route("/<path:path>", methods=["GET", "POST"])
        def pages(path: str) -> Response:
            prefix = request.path[: len(request.path) - len(path) - 1]
            environ = {
                **request.environ,
                "SCRIPT_NAME": request.environ.get("SCRIPT_NAME", "") + prefix,
                "PATH_INFO": request.environ["PATH_INFO"].removeprefix(prefix),
                "REMOTE_USER": who(),
            }
            return Response.from_app(site(), environ)

        return blueprint


def app_of_flask() -> App:
    """The App of the Flask application that ``FLASK_APP`` names, or of ``app.py`` or ``wsgi.py``.
    For ``leasework worker leasework.integrations.flask:app_of_flask``. Raises ConfigError if it
    has no :class:`Leasework`."""
    return _of(ScriptInfo(os.environ.get("FLASK_APP")).load_app()).app


def _of(flask_app: Flask) -> Leasework:
    found: Leasework | None = flask_app.extensions.get(_NAME)
    if found is None:
        raise ConfigError(
            f"the Flask application {flask_app.name!r} does not use leasework",
            do="Leasework(flask_app, app), or leasework.init_app(flask_app) in its factory",
        )
    return found


@click.command(
    _NAME,
    add_help_option=False,
    # the arguments stay as they are, also a `--` before the command of `leasework lock`
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run leasework's commands, such as worker and status.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def _command(context: click.Context, arguments: tuple[str, ...]) -> None:
    """``leasework …`` with this application's settings. It replaces this process, in which Flask
    has pushed an application context for the whole command."""
    info = context.ensure_object(ScriptInfo)
    settings = _of(info.load_app()).app.given
    if info.app_import_path:
        os.environ["FLASK_APP"] = info.app_import_path
    os.environ.update(settings.to_environ())
    command = list(arguments)
    if command[:1] == ["worker"]:
        command.insert(1, f"{__name__}:{app_of_flask.__name__}")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "leasework", *command])
