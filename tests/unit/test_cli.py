"""The command line without a database: start-up, usage, output, MODULE:APP."""

from __future__ import annotations

import io
import json
import logging
import re
import resource
import subprocess
import sys
from datetime import UTC, datetime
from uuid import UUID

import pytest
from click.testing import CliRunner

from leasework import App, errors
from leasework.app import load
from leasework.cli import jobs, output, tables
from leasework.cli.fitting import Column
from leasework.cli.root import root
from leasework.cli.work import logs

VERBS = (
    "demo",
    "bench",
    "worker",
    "status",
    "jobs",
    "schedules",
    "leaders",
    "lock",
    "locks",
    "nodes",
    "events",
    "schema",
)


@pytest.fixture(autouse=True)
def no_database(monkeypatch):
    for name in ("DSN", "SCHEMA", "LOG", "NODE_ID"):
        monkeypatch.delenv(f"LEASEWORK_{name}", raising=False)


def run(*arguments: str):
    return CliRunner().invoke(root, arguments, prog_name="leasework")


# -- start-up --------------------------------------------------------------------------------------
HELP = (
    "import sys\n"
    "sys.argv = ['leasework', *sys.argv[1:]]\n"
    "from leasework.cli import main\n"
    "try:\n"
    "    main()\n"
    "finally:\n"
    "    print('LOADED', *sorted(sys.modules))\n"
)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["worker", "--help"], ["jobs", "show", "--help"]]
)
def test_help_loads_neither_driver_nor_tables_nor_application(arguments):
    done = subprocess.run(
        [sys.executable, "-c", HELP, *arguments], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split("LOADED", 1)[1].split())
    assert "Usage: leasework" in done.stdout and "click" in loaded
    for name in ("psycopg", "rich", "asyncio", "leasework.app", "leasework.pg", "leasework.store"):
        assert name not in loaded, name


def test_help_starts_quickly():
    """150 ms over bare python is the aim. Counted is the processor's time: the machine is busy."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def fastest(code: str, *arguments: str) -> float:
        times = []
        for _ in range(5):
            before = spent()
            command = [sys.executable, "-c", code, *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times.append(spent() - before)
        return min(times)

    over = fastest(HELP, "--help") - fastest("pass")
    print(f"leasework --help: {over * 1000:.0f} ms over bare python")
    assert over < 0.45


def test_every_verb_has_help():
    listed = run("--help").output
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", listed, re.M)
        assert run(verb, "--help").exit_code == 0


def test_python_m_leasework_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "leasework", "--version"], capture_output=True)
    assert done.returncode == 0 and done.stdout.startswith(b"leasework ")


# -- usage -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["satus"], "Did you mean 'status'?"),
        (["schema", "aply"], "Did you mean 'apply'?"),
        (["status", "--jsn"], "'--json'"),
        (["jobs", "--folow"], "'--follow'"),
        (["jobs", "show", "--whide"], "'--wide'"),
        (["worker", "x:app", "--procesess=2"], "--processes"),
        (["worker"], "MODULE:APP"),
        (["worker", "shop"], "is not MODULE:APP, such as shop:app"),
        (["worker", "shop:"], "is not MODULE:APP, such as shop:app"),
        (["worker", "shop/jobs.py"], "is not MODULE:APP, such as shop.jobs:app"),
        (["worker", "shop:app", "--queue", "mail"], "is not name=slots"),
        (["worker", "shop:app", "--queue", "mail=0"], "is not name=slots"),
        (["worker", "shop:app", "--queue", "mail=²"], "is not name=slots"),
        (["worker", "shop:app", "-q", "mail=1", "-q", "mail=2"], "twice"),
        (["worker", "shop:app", "-q", "mail=1", "--no-execute"], "leave --queue out"),
        (["worker", "shop:app", "--processes", "0"], "0 is not in the range"),
        (["worker", "shop:app", "--log", "xml"], "'xml'"),
        (["jobs", "--state", "runing"], "'running'"),
        (["jobs", "--limit", "0"], "0 is not in the range"),
        (["jobs", "show"], "Missing argument"),
        (["demo", "--seconds", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_is_right(arguments, words):
    done = run(*arguments)
    assert done.exit_code == 2 and words in done.stderr and done.stdout == ""


def test_a_worker_that_is_process_1_asks_for_an_init(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert "under an init" in run("worker", "nowhere_at_all:app").stderr
    assert "under an init" not in run("worker", "nowhere_at_all:app", "--drain").stderr


@pytest.mark.parametrize("verb", ["jobs", "schedules", "leaders", "nodes", "events"])
def test_without_a_database_each_verb_says_how_to_name_one(verb):
    done = run(verb)
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.startswith("leasework: no database is configured.")
    assert "LEASEWORK_DSN" in done.stderr and done.stderr.count("\n") == 1


def test_status_without_a_database_is_a_problem_in_words_and_in_json():
    done = run("status")
    assert done.exit_code == 1 and "No database is configured" in done.stdout
    document = json.loads(run("status", "--json").stdout)
    assert document["ok"] is False and len(document["problems"]) == 1


def test_an_unknown_kind_of_event_gets_the_nearest_right_one():
    done = run("events", "--dsn", "host=nowhere.invalid", "--kind", "node_dead")
    assert done.exit_code == 1 and "Did you mean 'node_died'?" in done.stderr


def test_a_schema_name_that_is_not_plain_is_refused():
    done = run("jobs", "--dsn", "host=x", "--schema", "a; drop")
    assert done.exit_code == 1 and "schema must be a plain" in done.stderr


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://bob:hunter2 x@localhost/db",
        "postgresql://bob:hunter2%zz@localhost/db",
        "postgresql://bob:hunter2@x@localhost/db",
        "postgresql://bob:hun/ter2@localhost/db",
        "host=localhost password=hunter2 ter2",
        "hunter2",
    ],
)
def test_no_piece_of_a_password_is_printed_for_a_dsn_that_cannot_be_read(dsn):
    for verb in (["jobs"], ["status"], ["schema", "apply"]):
        done = run(*verb, "--dsn", dsn)
        assert done.exit_code == 1 and "DSN cannot be parsed" in done.output
        for piece in ("hunter", "hun", "ter2"):
            assert piece not in done.output


def test_schema_sql_needs_no_database_and_takes_another_name():
    text = run("schema", "sql", "--schema", "other").output
    assert text.startswith("begin;") and text.rstrip().endswith("commit;")
    assert 'create table "other".job (' in text and "leasework.job" not in text


def test_an_option_of_a_group_holds_for_its_subcommand():
    assert 'create table "other".job (' in run("schema", "--schema", "other", "sql").output


# -- MODULE:APP ------------------------------------------------------------------------------------
SHOP = """
from leasework import App
app = App(dsn="host=nowhere.invalid")
class box: inner = app
number = 3
def make(): return App(name="made")
def fails(): raise KeyError("x")
def wrong(): return 3
async def later(): return app
def configured(config, debug=False): return app
Sub = type("Sub", (App,), {})
"""
WEB = """
import lh_shop
from fastapi import FastAPI
from flask import Flask
api = FastAPI(lifespan=lh_shop.app.lifespan)
site = Flask("site")
async def asgi(scope, receive, send): ...
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lh_shop.py").write_text(SHOP)
    (tmp_path / "lh_web.py").write_text(WEB)
    (tmp_path / "lh_flask.py").write_text(
        "from flask import Flask, current_app\nsite = Flask('site')\n"
        "def create_app(): return site\n"
    )
    (tmp_path / "lh_settings.py").write_text("INSTALLED_APPS = []\n")
    (tmp_path / "lh_broken.py").write_text("import lh_nothing_like_it\n")
    (tmp_path / "lh_cron.py").write_text(
        "from leasework import App\napp = App()\n"
        "@app.periodic('61 * * * *')\nasync def job(ctx): ...\n"
    )
    (tmp_path / "lh_package").mkdir()
    (tmp_path / "lh_package" / "__init__.py").write_text("")
    (tmp_path / "lh_package" / "jobs.py").write_text(SHOP)
    yield
    for name in [name for name in sys.modules if name.startswith("lh_")]:
        del sys.modules[name]  # nothing else: leasework's own modules must stay the same ones


@pytest.mark.parametrize(
    "target", ["lh_shop:app", "lh_shop:box.inner", "lh_shop:make", "lh_package.jobs:app"]
)
def test_an_app_is_found_in_the_working_directory(shop, target):
    assert isinstance(load.load_app(target), App)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("lh_shp:app", "no module 'lh_shp'"),
        ("lh_package.job:app", "no module 'lh_package.job'"),
        ("lh_none.x:app", "no module 'lh_none'"),
        ("lh_shop:ap", "has no 'ap'.*Did you mean 'app'"),
        ("lh_shop:number", "is not an App. Got: int. Name the module"),
        ("lh_shop:Sub", "is not an App. Got: type"),
        ("lh_shop:later", "is not an App. Got: function"),
        ("lh_shop:configured", "is not an App. Got: function"),
        ("lh_shop", "lh_shop is not MODULE:APP. Known: .*app"),
        ("lh_web:api", "lh_web:api is not an App. Got: FastAPI. Name the module that has"),
        ("lh_web:site", "lh_web:site is not an App. Got: Flask.*run flask leasework"),
        ("lh_web:asgi", "Got: function. Name the module that has app = App"),
        ("lh_web:app", "module lh_web has no 'app'. Name the module"),
        ("lh_flask:site", "Got: Flask.*run flask leasework"),
        ("lh_flask:app", "has no 'app'. Name the module"),
        ("lh_settings:app", "has no 'app'.*in a Django project manage.py"),
        ("lh_package:app", "has no 'app'. Name the module that has app = App"),
        ("lh_shop:wrong", "is not an App. Got: int"),
        ("lh_shop:fails", "calling lh_shop:fails failed: KeyError"),
        ("lh_broken:app", "importing lh_broken failed: ModuleNotFoundError.*lh_nothing_like_it"),
        ("..x:app", "importing ..x failed"),
    ],
)
def test_a_wrong_target_is_said_clearly(shop, target, words):
    with pytest.raises(errors.ConfigError, match=words):
        load.load_app(target)


def test_code_that_fails_shows_where_it_is_and_none_of_our_frames(shop, capsys):
    with pytest.raises(errors.ConfigError):
        load.load_app("lh_broken:app")
    shown = capsys.readouterr().err
    assert "lh_broken.py" in shown and "importlib" not in shown and "load.py" not in shown


def test_an_error_of_leasework_in_the_code_stays_what_it_is(shop):
    with pytest.raises(errors.BadSchedule):
        load.load_app("lh_cron:app")


# -- settings from the command line ----------------------------------------------------------------
def test_the_command_line_wins_over_the_code():
    app = App(dsn="host=a", schema="one", name="shop")
    app.configure(dsn="host=b", schema="two", log="json")
    settings = app.settings
    assert (settings.dsn, settings.schema, settings.log) == ("host=b", "two", "json")
    assert settings.name == "shop"
    with pytest.raises(errors.ConfigError, match="Did you mean 'schema'"):
        app.configure(shema="x")


# -- output ----------------------------------------------------------------------------------------
def test_nothing_in_a_cell_steers_the_terminal():
    assert output.text("a\x1b[31mred\r\n\x07") == r"a\x1b[31mred\r\n\x07"
    assert output.text("ünï [bold]") == "ünï [bold]"
    assert output.text(None) == "-" and output.text(True) == "yes"
    assert output.text({"a": [1, "\n"]}) == '{"a": [1, "\\n"]}'


def test_nothing_in_a_stack_or_a_log_steers_the_terminal(monkeypatch, capsys):
    row = {"attempts": [{"log": "one\x1b[2J\n\ntwo\n"}], "why": []}
    monkeypatch.setattr(jobs, "show_table", lambda *rest, **options: None)
    answers = iter([(None, "File x\x1b[2J\n  line"), row])
    monkeypatch.setattr(jobs, "ask", lambda work: next(answers))
    for verb, shown in (("stack", "File x\\x1b[2J\n  line\n"), ("show", "one\\x1b[2J\n \ntwo\n")):
        done = CliRunner().invoke(root, ["jobs", verb, "1"])
        assert done.exit_code == 0 and done.stdout.endswith(shown), done


def test_tables_of_a_terminal_take_no_markup_from_cells(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    columns = [Column("name", lambda row: row["x"])]
    output.show_table([{"x": "[red]a[/red] \x1b[1m"}], columns, "none")
    shown = capsys.readouterr().out
    assert r"[red]a[/red] \x1b[1m" in shown


@pytest.mark.parametrize(
    ("tty", "environ", "fancy"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_only_on_a_terminal_that_wants_them(monkeypatch, tty, environ, fancy):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty, raising=False)
    assert output.fancy() is fancy


def test_plain_tables_are_columns_without_colour(capsys):
    output.show_table(
        [{"a": 1, "b": "x"}, {"a": 22, "b": None}],
        [Column("a", lambda r: r["a"]), Column("name", lambda r: r["b"])],
        "none",
    )
    assert capsys.readouterr().out == "A   NAME\n1   x\n22  -\n"
    output.show_table([], [], "none")
    assert capsys.readouterr().out == "none\n"


def test_json_holds_times_and_ids_as_text(capsys):
    output.show_json({"at": datetime(2026, 1, 1, tzinfo=UTC), "id": UUID(int=1)})
    at, job = "2026-01-01T00:00:00+00:00", "00000000-0000-0000-0000-000000000001"
    assert json.loads(capsys.readouterr().out) == {"at": at, "id": job}


def test_an_events_fields_are_words_and_a_traceback_its_first_line():
    fields = {"error": "KeyError: 1\nTraceback ...", "queues": ["a", "b"], "n": 3, "kept": []}
    assert tables.fields({"fields": fields}) == 'error="KeyError: 1" queues=a,b n=3 kept=-'


# -- logs ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["text", "json"])
def test_each_log_line_carries_the_worker_id(form):
    root_logger = logging.getLogger()
    kept, level = root_logger.handlers[:], root_logger.level
    root_logger.handlers.clear()
    try:
        logs.set_up_logging(form, lambda: "host:1:abc")
        (handler,) = root_logger.handlers
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(stream := io.StringIO())
        logging.getLogger("shop").warning("sold %s", 3)
        extra = {"worker_id": "host:1:own"}
        logging.getLogger("leasework").info("x worker=host:1:own", extra=extra)
        logs.set_up_logging(form, lambda: "another")
        assert root_logger.handlers == [handler]
    finally:
        root_logger.handlers[:] = kept
        root_logger.setLevel(level)
    first, second = stream.getvalue().splitlines()
    if form == "json":
        assert json.loads(first)["worker_id"] == "host:1:abc"
        assert json.loads(first)["message"] == "sold 3"
        assert json.loads(second)["worker_id"] == "host:1:own"
    else:
        assert first.endswith("WARNING sold 3 worker=host:1:abc logger=shop")
        assert second.count("worker=") == 1


@pytest.mark.parametrize("source", ["leasework", "shop", "shop.orders"])
def test_a_line_that_a_handler_of_the_application_prints_is_not_printed_twice(capfd, source):
    """The set-up of the page on Django, for leasework's lines and for the application's own."""
    top = logging.getLogger(source.partition(".")[0])
    root_logger = logging.getLogger()
    kept, levels = root_logger.handlers[:], (root_logger.level, top.level)
    root_logger.handlers.clear()
    try:
        top.addHandler(console := logging.StreamHandler())
        top.setLevel("INFO")
        logs.set_up_logging("text", lambda: "host:1:abc")
        for handler in (console, *root_logger.handlers):
            handler.setStream(sys.stderr)
        logging.getLogger(source).info("once")
        logging.getLogger("elsewhere").info("also")
        console.setLevel("ERROR")  # such a handler leaves the line to leasework's
        logging.getLogger(source).info("then")
    finally:
        top.removeHandler(console)
        root_logger.handlers[:] = kept
        root_logger.setLevel(levels[0])
        top.setLevel(levels[1])
    printed = capfd.readouterr().err
    assert [printed.count(word) for word in ("once", "also", "then")] == [1, 1, 1]
