"""A Django project: its commands and its workers."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.e2e.conftest import HAS_TASKS, SHOP, Django, succeeded
from tests.support.procs import ROOT, Process, Processes
from tests.support.wait import until


@pytest.fixture
def sql(direct_dsn: str) -> Any:
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        yield lambda text, *values: connection.execute(text, values).fetchall()


def test_migrate_makes_the_schema_and_the_worker_runs_the_projects_jobs(
    django: Django, sql: Any
) -> None:
    succeeded(django("migrate"))
    assert "The schema is correct" in succeeded(django("leasework", "schema", "verify"))
    assert "Nothing to do" in succeeded(django("leasework", "schema", "apply"))
    code = f"""
from leasework.integrations.django import app
from {SHOP} import tasks
for task in (tasks.add_user.job(name="ada"), tasks.count_in_process.job()):
    print(app.sync.enqueue(task).id)
"""
    if HAS_TASKS:
        code += "tasks.django_tasks.add.enqueue(1)\ntasks.django_tasks.mail.enqueue()\n"
    succeeded(django("shell", "-c", code))
    worker = django("leasework_worker", "--queue", "default=4", "-q", "mail=1", "-q", "ticks=1")
    left = "select task_name, last_error from leasework.jobs where state <> 'completed'"
    until(lambda: not sql(left), 30, f"all jobs: {sql(left)}")
    until(lambda: "tick" in [name for (name,) in sql("select name from leasework.schedules")], 10)
    worker.kill(signal.SIGTERM)
    assert worker.wait(60) == 0
    query = "select result, attempt from leasework.jobs where task_name = 'count_in_process'"
    assert sql(query) == [(1, 1)], "the child was set up before it imported the tasks"


def test_the_worker_of_several_processes_runs_from_any_folder(
    procs: Processes, variables: dict[str, str], sql: Any, tmp_path: Path
) -> None:
    """As ``python /srv/site/manage.py`` does. The project's folder is on sys.path alone."""
    (tmp_path / "site" / "shopfront").mkdir(parents=True)
    (tmp_path / "site" / "shopfront" / "__init__.py").touch()
    (tmp_path / "site" / "shopfront" / "settings.py").write_text(
        "SECRET_KEY = 'x'\n"
        "INSTALLED_APPS = ['leasework.integrations.django']\n"
        f"DATABASES = {{'default': {{'ENGINE': 'django.db.backends.postgresql', "
        f"'NAME': {variables['PGDATABASE']!r}}}}}\n"
    )
    manage = tmp_path / "site" / "manage.py"
    manage.write_text(
        "import os, sys\nfrom django.core.management import execute_from_command_line\n"
        "os.environ['DJANGO_SETTINGS_MODULE'] = 'shopfront.settings'\n"
        "execute_from_command_line(sys.argv)\n"
    )
    assert procs.start(str(manage), "migrate", env=variables).wait(60) == 0
    options = ("leasework_worker", "--processes", "2", "-q", "default=1")
    worker = procs.start(str(manage), *options, env=variables)
    until(lambda: sql("select count(*) from leasework.nodes") == [(2,)], 40, "two nodes")
    pid = sql("select pid from leasework.nodes")[0][0]
    environ = Path(f"/proc/{pid}/environ").read_text().split("\0")
    [folders] = [line for line in environ if line.startswith("PYTHONPATH=")]
    assert str(tmp_path / "site") in folders
    assert "site-packages" not in folders, (
        "a program that a handler starts may be of another Python"
    )
    worker.kill(signal.SIGTERM)
    assert worker.wait(30) == 0


@pytest.mark.parametrize("leasework", ["{}", f'{{"APP": "{SHOP}.own_app:app"}}'])
def test_the_worker_of_several_processes_finds_the_project(
    django: Django, sql: Any, leasework: str
) -> None:
    """Each worker process loads the project's App before anything has set Django up."""
    succeeded(django("migrate"))
    options = ("--processes", "2", "--settings", f"{SHOP}.settings")
    worker = django("leasework_worker", *options, SHOP_LEASEWORK=leasework)
    until(lambda: sql("select count(*) from leasework.nodes") == [(2,)], 40, "two nodes")
    worker.kill(signal.SIGTERM)
    assert worker.wait(30) == 0


@pytest.mark.parametrize(
    ("task", "arguments"), [("add_user", {"name": "ada"}), ("count_in_process", {})]
)
def test_a_job_after_a_broken_connection_gets_a_new_one(
    django: Django, sql: Any, task: str, arguments: dict[str, str]
) -> None:
    """Django's connections live on between jobs, as CONN_MAX_AGE says."""
    succeeded(django("migrate"))

    def enqueue(**given: str) -> Any:
        job = {"task": task, "payload": given, "max_attempts": 2}
        return sql("select id from leasework.enqueue(%s::jsonb)", json.dumps(job))[0][0]

    def completed(job: Any) -> bool:
        [(state, error)] = sql("select state, last_error from leasework.jobs where id = %s", job)
        assert state != "discarded", error
        return bool(state == "completed")

    first = enqueue(**arguments)
    keep = {"SHOP_KEEPS_CONNECTIONS": "1"}
    django("leasework_worker", "-q", "default=1", **keep)
    until(lambda: completed(first), 30, "the first job")
    idle = "from pg_stat_activity where datname = current_database() and application_name = ''"
    broken = sql(f"select pg_terminate_backend(pid) {idle} and pid <> pg_backend_pid()")
    assert broken, "Django keeps no connection"
    second = enqueue(**{name: "eve" for name in arguments})
    until(lambda: completed(second), 30, "the second job")


def test_the_commands_show_leaseworks_help(django: Django) -> None:
    assert "Usage: leasework worker" in succeeded(django("help", "leasework_worker"))
    assert "schedules" in succeeded(django("leasework", "--help"))
    assert "--processes" in succeeded(django("leasework_worker", "--help"))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"SHOP_ENGINE": "django.db.backends.sqlite3"},
            "leasework needs PostgreSQL, and DATA",
        ),
        ({"SHOP_LEASEWORK": '{"SHEMA": "x"}'}, "unknown option 'shema'"),
        ({"SHOP_LEASEWORK": '{"DATABASE": "jobs"}'}, "DATABASES has no 'jobs'"),
        ({"SHOP_LEASEWORK": '{"APP": "shop.nothing:app"}'}, "cannot be imported: No module named"),
        ({"SHOP_LEASEWORK": '{"APP": "json:dumps"}'}, "something that is not a DjangoApp"),
        ({"SHOP_LEASEWORK": '{"APP": "a:b", "NAME": "x"}'}, "so it can have nothing else"),
        ({"SHOP_LEASEWORK": "[]"}, "LEASEWORK must be a dict"),
    ],
)
def test_a_wrong_setting_is_named(django: Django, env: dict[str, str], message: str) -> None:
    process = django("check", **env)
    assert process.wait(30) != 0
    assert message in process.output


def test_a_database_outside_django_is_named_by_its_dsn(
    django: Django, direct_dsn: str, sql: Any
) -> None:
    env = {
        "SHOP_ENGINE": "django.db.backends.sqlite3",
        "PGDATABASE": ":memory:",
        "SHOP_LEASEWORK": json.dumps({"DSN": direct_dsn, "SCHEMA": "user"}),
    }
    assert "Applied" in succeeded(django("leasework", "schema", "apply", **env))
    code = (
        f"from leasework.integrations.django import app; from {SHOP}.tasks import add_user; "
        "print(app.sync.enqueue(add_user.job(name='ada')).created)"
    )
    assert "True" in succeeded(django("shell", "-c", code, **env))
    assert sql('select count(*) from "user".jobs') == [(1,)]


# -- examples/django_gunicorn --------------------------------------------------------------------
def test_four_gunicorn_workers_run_each_due_moment_once_also_when_the_leader_is_killed(
    procs: Processes, variables: dict[str, str], sql: Any, tmp_path: Path
) -> None:
    socket = tmp_path / "shop.sock"
    env = {**variables, "REPORT_EVERY_SECONDS": "1", "LEASEWORK_RECOVER_WITHIN": "9"}

    def start(*arguments: str) -> Process:
        command = ["env", "-C", str(ROOT / "examples" / "django_gunicorn"), sys.executable]
        return procs.run([*command, *arguments], name="shop", env=env)

    def dues() -> list[float]:
        return [float(due) for (due,) in sql("select extract(epoch from due) from shop_report")]

    succeeded(start("manage.py", "migrate"))
    arbiter = start(
        *("-m", "gunicorn", "-c", "gunicorn.conf.py", "shop.wsgi", "--no-control-socket"),
        *("--bind", f"unix:{socket}"),
    )
    nodes = "select pid from leasework.nodes"
    until(lambda: len(sql(nodes)) == 4 and len(dues()) >= 2, 60, "four workers and two reports")
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket))) as web:
        assert web.post("http://shop/orders/", data={"email": "a@example.org"}).status_code == 200
        assert web.post("http://shop/orders/", data={"email": "a@example.com"}).status_code == 500
        until(lambda: not web.get("http://shop/").json()["without_receipt"], 20, "the receipt")
        assert web.get("http://shop/leasework/now").headers["location"].startswith("/admin/login/")
    assert sql("select count(*) from shop_order") == [(1,)]
    assert sql(
        "select count(*) from leasework.jobs where task_name = 'shop.tasks.send_receipt'"
    ) == [(1,)]

    leader = "select n.pid from leasework.leader l join leasework.node n on n.id = l.node"
    [(killed,)] = sql(leader)
    before = len(dues())
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(dues()) >= before + 4, 40, "reports after the kill")
    until(lambda: len(sql(nodes)) == 4 and (killed,) not in sql(nodes), 40, "another worker")

    def each_once() -> bool:
        ran = sorted(dues())
        return ran == [ran[0] + n for n in range(len(ran))]

    until(each_once, 20, "each due moment to have run once")
    arbiter.kill(signal.SIGTERM)
    assert arbiter.wait(40) == 0
    assert sql(nodes) == []
