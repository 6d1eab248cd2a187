"""The Flask extension: configuration, ``flask leasework …``, enqueues and the dashboard."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from flask import Flask, current_app, session
from sqlalchemy import create_engine, text
from sqlalchemy.orm import scoped_session, sessionmaker

from leasework import App, CallNext, Context
from leasework.errors import ConfigError
from leasework.integrations.flask import Leasework
from leasework.testing.databases import connected_to
from leasework.testing.sync import drain
from leasework.web.login import Sessions
from tests.support.procs import Process, Processes
from tests.support.wait import until

FACTORY = """
import os
from flask import Flask, current_app, g
from leasework import App
from leasework.integrations.flask import Leasework

app = App()
leasework = Leasework(app=app)

@app.every(seconds=1)
def tick() -> list[object]:
    first, g.first = "first" not in g, False
    return [current_app.name, first]

def create_app():
    web = Flask(__name__)
    web.config.from_mapping(
        LEASEWORK_DSN=os.environ["DSN"], LEASEWORK_SCHEMA="hold", LEASEWORK_PIN_SECONDS=90
    )
    leasework.init_app(web)
    return web
"""


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    app = App(dsn=dsn)
    asyncio.run(app.apply_schema())
    yield app
    app.sync.close()


# -- configuration ---------------------------------------------------------------------------------
def test_the_configuration_of_flask_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEASEWORK_DSN", "postgresql:///of_the_environment")
    web = Flask(__name__)
    web.config["LEASEWORK_DSN"] = "postgresql:///of_flask"
    leasework = Leasework(web)
    assert leasework.app.settings.dsn == "postgresql:///of_flask"
    assert web.extensions["leasework"] is leasework
    assert Leasework(Flask(__name__)).app.settings.dsn == "postgresql:///of_the_environment"


def test_a_key_that_is_none_leaves_the_app_as_it_is() -> None:
    """As ``os.environ.get`` returns for a variable that is not set."""
    web = Flask(__name__)
    web.config["LEASEWORK_DSN"] = None
    assert Leasework(web, App("postgresql:///of_the_app")).app.settings.dsn.endswith("of_the_app")


def test_an_app_has_one_extension() -> None:
    """Otherwise each job would run in the contexts of all applications that a factory has made."""
    app = App("postgresql:///shop")
    Leasework(Flask(__name__), app)
    with pytest.raises(ConfigError, match=r"once in the module, and call init_app\(\)"):
        Leasework(Flask(__name__), app)


def test_an_unknown_key_of_the_configuration_is_refused() -> None:
    web = Flask(__name__)
    web.config["LEASEWORK_" + "SHEMA"] = "jobs"
    with pytest.raises(ConfigError, match=r"shema.*schema"):
        Leasework(web)


def test_a_factory_leaves_the_database_of_a_test_alone() -> None:
    app = App("postgresql:///development")
    leasework = Leasework(app=app)
    web = Flask(__name__)
    web.config.from_mapping(LEASEWORK_DSN="postgresql:///production", LEASEWORK_NAME="shop")
    with connected_to(app, "postgresql:///of_the_test"):
        leasework.init_app(web)
        assert (app.settings.dsn, app.settings.name) == ("postgresql:///of_the_test", "shop")
    leasework.init_app(web)
    assert app.settings.dsn == "postgresql:///production"


def test_a_factory_may_be_called_again_while_the_app_is_in_use(app: App) -> None:
    """As the tests of an application do."""
    leasework = Leasework(app=app)
    for _ in range(2):
        web = Flask(__name__)
        web.config["LEASEWORK_NAME"] = "shop"
        leasework.init_app(web)
        assert app.sync.jobs() == [] and app.settings.name == "shop"


def test_a_factory_configures_the_app_for_each_test() -> None:
    app = App("postgresql:///development")
    leasework = Leasework(app=app)
    for _ in range(2):
        with connected_to(app, "postgresql:///of_the_test"):
            web = Flask(__name__)
            web.config["LEASEWORK_PAYLOAD_LIMIT"] = 5000
            leasework.init_app(web)
            assert app.settings.payload_limit == 5000


# -- contexts --------------------------------------------------------------------------------------
def test_the_teardown_of_a_plain_handler_runs_in_its_thread(app: App) -> None:
    """A connection may belong to the thread, and a slow teardown must not hold up the loop."""
    web, torn_down = Flask(__name__), []

    @app.task(name="before")
    def before() -> list[object]:
        return [threading.get_ident(), current_app.name]

    Leasework(web, app)
    web.teardown_appcontext(lambda error: torn_down.append(threading.get_ident()))
    after = app.task(name="after")(before.function.function)
    app.sync.enqueue_many([before.job(), after.job()])
    ran = [record.result for record in drain(app)]
    assert ran == [[thread, web.name] for thread in torn_down] and len(ran) == 2

    @app.middleware
    async def sees(ctx: Context, call_next: CallNext) -> object:
        return [current_app.name, *await call_next()]

    app.sync.enqueue(before.job())
    [record] = drain(app)
    assert record.result[0] == record.result[2] == web.name


# -- enqueue from a view ---------------------------------------------------------------------------
def test_a_view_enqueues_in_the_transaction_of_its_session(app: App, dsn: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    db = scoped_session(sessionmaker(engine))
    web = Flask(__name__)
    Leasework(web, app)

    @app.task
    def send(order: int) -> None: ...

    @web.post("/<int:order>/<ending>")
    def buy(order: int, ending: str) -> str:
        db.execute(text("select 1"))
        app.sync.enqueue(send.job(order), on=db)
        getattr(db, ending)()
        return "done"

    client = web.test_client()
    assert client.post("/1/commit").text == client.post("/2/rollback").text == "done"
    assert [job.payload for job in app.sync.jobs()] == [{"order": 1}]
    db.remove()
    engine.dispose()


# -- the dashboard ---------------------------------------------------------------------------------
def test_the_dashboard_is_behind_the_login_of_the_site(app: App, dsn: str) -> None:
    web = Flask(__name__)
    web.secret_key = "a test's"
    leasework = Leasework(web, app)
    web.register_blueprint(
        leasework.dashboard(who=lambda: session.get("admin")), url_prefix="/ops/jobs"
    )

    @web.post("/login/<name>")
    def login(name: str) -> str:
        session["admin"] = name
        return "in"

    @app.task
    def send() -> None: ...

    job = app.sync.enqueue(send.job())
    client = web.test_client()
    assert client.get("/ops/jobs/now").status_code == 401
    forged = client.get("/ops/jobs/now", headers={"remote-user": "Eve", "x-remote-user": "Eve"})
    assert forged.status_code == 401
    of_the_server = client.get("/ops/jobs/now", environ_overrides={"REMOTE_USER": "Eve"})
    assert of_the_server.status_code == 401
    client.post("/login/Ada")
    page = client.get("/ops/jobs", follow_redirects=True)
    assert (page.status_code, page.request.path) == (200, "/ops/jobs/now")
    assert client.get("/ops/jobs/static/dash.css").status_code == 200
    address = f"/ops/jobs/jobs/{job.id}"
    token = re.search(r'name="form_token" value="([0-9a-f]{64})"', client.get(address).text)
    assert token
    form = {"form_token": token[1], "act": "cancel"}
    assert client.post(f"{address}/act", data=form).status_code == 303
    with psycopg.connect(dsn) as connection:
        query = "select fields ->> 'who', fields ->> 'act' from leasework.events"
        assert connection.execute(query).fetchall() == [("Ada", "cancel")]


def test_a_dashboard_made_before_the_configuration_uses_its_secret(app: App) -> None:
    """Without a database the secret would be empty, and everybody could sign a session."""
    leasework = Leasework(app=App())
    blueprint = leasework.dashboard(who=lambda: "Ada")
    web = Flask(__name__)
    web.config["LEASEWORK_DSN"] = app.settings.dsn
    leasework.init_app(web)
    web.register_blueprint(blueprint, url_prefix="/leasework")
    page = web.test_client().get("/leasework/now")
    cookie = re.search(r"leasework_session=([^;]+)", page.headers["set-cookie"])
    assert cookie
    assert Sessions(app.env, app.settings.dsn).unpack(cookie[1])
    assert not Sessions(app.env, "").unpack(cookie[1])


# -- flask leasework … -----------------------------------------------------------------------------
def flask(procs: Processes, dsn: str, *arguments: str, target: str = "service") -> Process:
    """``flask leasework …`` of the application above, in its folder."""
    Path(procs.folder / "service.py").write_text(FACTORY)
    command = [sys.executable, "-m", "flask", "--app", target, "leasework", *arguments]
    return procs.run(command, name="-".join(["flask", *arguments[:2]]), env={"DSN": dsn})


def test_the_command_uses_the_database_of_the_flask_application(procs: Processes, dsn: str) -> None:
    applied = flask(procs, dsn, "schema", "apply")
    assert applied.wait(30) == 0 and "Applied 0001" in applied.output
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select from hold.jobs").fetchall() == []
    shown = flask(procs, dsn, "jobs", "--json")
    assert shown.wait(30) == 0 and json.loads(shown.output) == []
    wrong = flask(procs, dsn, "jbos")
    assert wrong.wait(30) == 2 and "jobs" in wrong.output
    locked = flask(procs, dsn, "lock", "nightly", "--", "echo", "its own", "--fail")
    assert locked.wait(30) == 0 and "its own --fail" in locked.output
    told = flask(procs, dsn, "lock", "nightly", "--", "printenv", "LEASEWORK_PIN_SECONDS")
    assert told.wait(30) == 0 and told.output.splitlines()[-1] == "90.0"
    assert "schedules" in until(lambda: _help(procs, dsn), 30)


def test_the_command_starts_the_embedded_server_that_the_application_named(
    procs: Processes,
) -> None:
    """The server that loading the application started ends with the process that loaded it."""
    home = Path(tempfile.mkdtemp(prefix="lh-home-"))
    home.chmod(0o711)
    Path(procs.folder / "shop.py").write_text(
        "from flask import Flask\nfrom leasework import App\n"
        "from leasework.integrations.flask import Leasework\n"
        "app = App()\nweb = Flask(__name__)\nweb.config['DATABASE'] = app.sync.dsn()\n"
        "app.sync.close()\nLeasework(web, app)\n"
    )
    env = {"LEASEWORK_HOME": str(home), "LEASEWORK_DSN": "embedded"}
    try:
        command = [sys.executable, "-m", "flask", "--app", "shop:web", "leasework", "jobs"]
        shown = procs.run(command, name="jobs", env=env)
        assert shown.wait(60) == 0, shown.output
        assert "No jobs." in shown.output
    finally:
        procs.close()
        shutil.rmtree(home, ignore_errors=True)


def _help(procs: Processes, dsn: str) -> str:
    process = flask(procs, dsn, "--help")
    assert process.wait(30) == 0
    return process.output


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_worker_runs_the_tasks_of_the_flask_application(
    procs: Processes, dsn: str, processes: str
) -> None:
    """Each in an application context of its own."""
    assert flask(procs, dsn, "schema", "apply").wait(30) == 0
    worker = flask(procs, dsn, "worker", "--processes", processes, target="service:create_app()")
    with psycopg.connect(dsn, autocommit=True) as connection:
        query = "select result::text from hold.jobs where state = 'completed'"
        until(lambda: len(connection.execute(query).fetchall()) > 2, 30, "three ticks")
        results = connection.execute(query).fetchall()
    assert set(results) == {('["service", true]',)}
    worker.kill(15)
    assert worker.wait(30) == 0


def test_an_application_without_the_extension_is_told_what_to_do(
    procs: Processes, dsn: str
) -> None:
    Path(procs.folder / "plain.py").write_text(
        "from flask import Flask\nfrom leasework.integrations.flask import _command\n"
        "web = Flask(__name__)\nweb.cli.add_command(_command)\n"
    )
    process = flask(procs, dsn, "status", target="plain:web")
    assert process.wait(30) == 1 and "Leasework(flask_app, app)" in process.output


# -- gunicorn --reload -----------------------------------------------------------------------------
RELOADED = """
from flask import Flask
from leasework import App
from leasework.integrations.flask import Leasework

app = App()
web = Flask(__name__)
leasework = Leasework(web, app)
"""
CONFIG = """
from leasework.integrations.gunicorn import node

reload = True
post_worker_init, worker_exit = node("reloaded:app")
"""


def test_a_syntax_error_does_not_end_a_server_that_reloads(dsn: str, app: App, procs: Processes):
    module = procs.folder / "reloaded.py"
    module.write_text(RELOADED)
    (procs.folder / "conf.py").write_text(CONFIG)
    server = procs.start(
        *("-m", "gunicorn", "-c", "conf.py", "reloaded:web", "--bind", "unix:web.sock"),
        name="gunicorn",
        env={"LEASEWORK_DSN": dsn},
    )
    with psycopg.connect(dsn, autocommit=True) as sql:
        nodes = "select count(*) from leasework.node"
        until(lambda: sql.execute(nodes).fetchone() == (1,), 60, "its node")
        module.write_text(f"{RELOADED}\nthis is no Python\n")
        server.wait_for("no node in this worker", 60)
        until(lambda: sql.execute(nodes).fetchone() == (0,), 60, "the end of the old node")
        module.write_text(RELOADED)

        def reloads() -> bool:
            module.touch()  # gunicorn sees only changes after its first look at the file
            return server.output.count("Worker reloading") == 2

        until(reloads, 60, "the reload after the correction")
        until(lambda: sql.execute(nodes).fetchone() == (1,), 60, "its node after the correction")
    assert server.running
