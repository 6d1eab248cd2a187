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
from leasework.config import Settings
from leasework.embedded import EmbeddedServer, binaries, find_binaries, folder, reaper
from leasework.embedded import server as server_module
from leasework.embedded.account import server_account
from leasework.env import Env
from leasework.errors import EmbeddedError
from leasework.pg.schema import migrate
from tests.support.postgres import quick_place
from tests.support.procs import ROOT, Process, Processes
from tests.support.wait import until

AS_ROOT = os.geteuid() == 0


# One use of the server of argv[1]. SIGUSR1: leave, and say so. SIGINT: only say so.
USER = """
import signal, sys
from pathlib import Path
from leasework.embedded import EmbeddedServer
server = EmbeddedServer.start(Path(sys.argv[1]))
signals = {signal.SIGUSR1, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("pid", server.pid, flush=True)
while signal.sigwait(signals) == signal.SIGINT:
    print("interrupted", flush=True)
server.close()
print("closed", flush=True)
"""
# The child of a fork closes its copy; the parent goes on.
FORKER = USER.replace(
    'print("pid"',
    """
import os
child = os.fork()
if child == 0:
    server.close()
    os._exit(0)
os.waitpid(child, 0)
print("pid\"""",
)

VISITOR = """
import sys
from pathlib import Path
import psycopg
from leasework.embedded import EmbeddedServer
for _ in range(10):
    with EmbeddedServer.start(Path(sys.argv[1])) as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("select pg_sleep(0.01)")
"""


def mentioned(place: Path) -> list[int]:
    """Live processes that name a path in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            arguments = reaper.command_line(int(entry.name)) or []
            if any(str(place) in argument for argument in arguments):
                found.append(int(entry.name))
    return found


def reapers(data: Path) -> list[int]:
    return [pid for pid in mentioned(data) if "REAPER_LOCK" in " ".join(command(pid))]


def command(pid: int) -> list[str]:
    return reaper.command_line(pid) or []


def alive(pid: int) -> bool:
    """A zombie is not."""
    return bool(command(pid))


def waits_for(pid: int, lock: Path) -> bool:
    """The kernel lists a process that is blocked on a lock with an arrow."""
    inode = str(lock.stat().st_ino)
    lines = Path("/proc/locks").read_text().splitlines()
    waiting = [line.split() for line in lines if "->" in line]
    return any(str(pid) in words and words[-3].endswith(f":{inode}") for words in waiting)


def ask(dsn: str, query: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return str(row[0]) if row else ""


def tell(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def socket_folder(home: Path) -> Path:
    """Of the server that runs; in /tmp, where other servers have theirs."""
    (names_it,) = home.glob("**/socket")
    found = Path(names_it.read_text().strip())
    assert found.is_dir()
    return found


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that the server's account may enter, unlike pytest's own. What the test left
    running in it is killed: only our own processes name it."""
    for name in (binaries.BINARIES_SETTING, binaries.VERSION_SETTING, folder.HOME_SETTING):
        monkeypatch.delenv(name, raising=False)
    place = Path(tempfile.mkdtemp(prefix="lh-embedded-", dir=quick_place()))
    place.chmod(0o711)
    yield place
    for pid in mentioned(place):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not mentioned(place), 10, "the end of what the test started")
    for socket_file in place.glob("**/socket"):
        shutil.rmtree(socket_file.read_text().strip(), ignore_errors=True)
    shutil.rmtree(place)


@pytest.fixture
def use(procs: Processes) -> Callable[[Path], Process]:
    return lambda data: procs.start(str(data), code=USER, name="user")


def server_of(user: Process) -> int:
    return int(user.wait_for(r"^pid (\d+)$", 60).group(1))


def leave(user: Process) -> None:
    user.kill(signal.SIGUSR1)
    user.wait_for("^closed$", 30)


# -- shared by processes -------------------------------------------------------------------------
def test_processes_that_start_at_once_share_one_server_and_the_last_one_stops_it(home, use):
    users = [use(home / "data") for _ in range(4)]
    pids = {server_of(user) for user in users}
    assert len(pids) == 1
    (pid,) = pids
    sockets = socket_folder(home)
    for user in users[:-1]:
        leave(user)
        assert alive(pid)
    leave(users[-1])
    assert not alive(pid)
    until(lambda: not reapers(home), 10, "the end of the reaper")
    assert not sockets.exists()


def test_users_that_are_killed_do_not_take_the_server_with_them(home, use):
    first, second, third = (use(home / "data") for _ in range(3))
    pid = server_of(first)
    assert server_of(second) == server_of(third) == pid
    first.kill()
    second.kill()
    first.wait()
    second.wait()
    late = use(home / "data")
    assert server_of(late) == pid
    leave(late)
    assert alive(pid)
    leave(third)
    assert not alive(pid)


def test_the_server_ends_when_all_its_users_are_killed(home, use):
    users = [use(home / "data") for _ in range(2)]
    pid = server_of(users[0])
    server_of(users[1])
    sockets = socket_folder(home)
    for user in users:
        user.kill()
    until(lambda: not alive(pid), 30, "the end of the server")
    until(lambda: not reapers(home), 10, "the end of the reaper")
    assert not sockets.exists()
    with EmbeddedServer.start(home / "data") as server:
        assert ask(server.dsn, "select 1") == "1"


def test_who_comes_while_the_reaper_is_about_to_stop_the_server_keeps_it(home, use):
    user = use(home / "data")
    pid = server_of(user)
    (watcher,) = reapers(home)
    place = folder.Folder.prepare(home / "data", Env())
    with place.starting():
        user.kill()
        until(lambda: waits_for(watcher, home / "data/start.lock"), 10, "the reaper to see it")
        mine = place.join()
    until(lambda: waits_for(watcher, home / "data/users.lock"), 10, "the reaper to go back")
    assert place.pid() == pid and place.answers()
    os.close(mine)
    until(lambda: not alive(pid), 30, "the end of the server")


def test_processes_that_come_and_go_always_have_a_server_while_they_are_there(home, procs):
    EmbeddedServer.start(home / "data").close()
    visitors = [procs.start(str(home / "data"), code=VISITOR, name="visitor") for _ in range(4)]
    assert [visitor.wait(60) for visitor in visitors] == [0] * 4, procs.report()
    until(lambda: not mentioned(home), 10, "the end of everything")


def test_there_is_one_reaper_and_the_next_user_replaces_a_killed_one(home, use):
    first = use(home / "data")
    pid = server_of(first)
    (old,) = reapers(home)
    os.kill(old, signal.SIGKILL)
    until(lambda: not alive(old), 10, "the end of the reaper")
    first.kill()
    first.wait()
    assert alive(pid)  # nobody is there to stop it: the next one finds it

    second = use(home / "data")
    assert server_of(second) == pid
    third = use(home / "data")
    assert server_of(third) == pid
    assert len(reapers(home)) == 1
    second.kill()
    third.kill()
    until(lambda: not alive(pid), 30, "the end of the server")


def test_a_forked_child_that_closes_does_not_throw_out_its_parent(home, procs, use):
    parent = procs.start(str(home / "data"), code=FORKER, name="forker")
    pid = server_of(parent)
    other = use(home / "data")
    assert server_of(other) == pid
    leave(other)
    assert alive(pid)
    leave(parent)
    assert not alive(pid)


def test_ctrl_c_in_a_terminal_is_not_for_the_server(home, use):
    user = use(home / "data")
    pid = server_of(user)
    (watcher,) = reapers(home)
    user.kill(signal.SIGINT, group=True)
    user.wait_for("interrupted")
    with EmbeddedServer.start(home / "data") as other:
        assert other.pid == pid
        assert os.getsid(pid) == pid
        assert {os.getsid(pid), os.getsid(watcher)}.isdisjoint({os.getsid(user.pid)})
        assert reapers(home) == [watcher]


def test_closing_twice_is_nothing_and_a_closed_use_cannot_restart(home):
    with EmbeddedServer.start(home / "data") as server:
        pass
    server.close()
    with pytest.raises(EmbeddedError, match="is closed"):
        server.restart()
    with pytest.raises(EmbeddedError, match="is not running"):
        _ = server.pid


# -- crashes ---------------------------------------------------------------------------------------
def test_a_killed_postmaster_is_started_again_at_the_same_address(home, use):
    with EmbeddedServer.start(home / "data") as server:
        old, dsn = server.pid, server.dsn
        tell(dsn, "create table kept as select 7 as n")
        os.kill(old, signal.SIGKILL)
        user = use(home / "data")
        new = server_of(user)
        assert new != old
        assert (server.pid, server.dsn) == (new, dsn)
        assert ask(dsn, "select n from kept") == "7"
        assert len(reapers(home)) == 1
        leave(user)
        assert alive(new)
    assert not alive(new)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_keeps_the_data_and_the_address(home, mode):
    with EmbeddedServer.start(home / "data", settings={"work_mem": "7MB"}) as server:
        old, dsn = server.pid, server.dsn
        tell(dsn, "create table kept as select 7 as n")
        server.restart(mode)
        assert server.pid != old and server.dsn == dsn
        assert ask(dsn, "select n from kept") == "7"
        assert ask(dsn, "show work_mem") == "7MB"
    log = (home / "data/postgres.log").read_text()
    assert ("automatic recovery in progress" in log) == (mode == "immediate")


def test_a_pid_file_whose_pid_is_now_another_process_does_not_stop_a_start(home):
    with EmbeddedServer.start(home / "data") as server:
        pid_file = server.data_dir / "pgdata/postmaster.pid"
        lines = pid_file.read_text().splitlines()
        account = server_account(server.data_dir / "pgdata")
    who = {"user": account.uid} if account else {}
    with subprocess.Popen(["/bin/sleep", "60"], **who) as stranger:
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        try:
            with EmbeddedServer.start(home / "data") as server:
                assert server.pid != stranger.pid
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_starter_killed_in_the_middle_of_initdb_harms_nobody(home, use):
    user = use(home / "data")
    until((home / "data/pgdata.new/global").exists, 30, "initdb to be at work", every=0.002)
    user.kill()
    user.wait()
    assert not (home / "data/pgdata").exists()
    with EmbeddedServer.start(home / "data") as server:
        assert ask(server.dsn, "select 1") == "1"
    assert not (home / "data/pgdata.new").exists()


def test_what_a_half_done_initdb_left_is_thrown_away(home):
    (home / "data/pgdata.new/base").mkdir(parents=True)
    (home / "data/pgdata.new/PG_VERSION").write_text("18\n")
    with EmbeddedServer.start(home / "data") as server:
        assert ask(server.dsn, "select 1") == "1"


def test_a_start_that_fails_shows_the_log_and_leaves_nothing_running(home):
    EmbeddedServer.start(home / "data").close()
    with pytest.raises(EmbeddedError, match=r"stopped while starting(.|\n)*no_such_setting"):
        EmbeddedServer.start(home / "data", settings={"no_such_setting": "1"})
    until(lambda: not mentioned(home), 10, "the end of everything")
    with EmbeddedServer.start(home / "data") as server:
        assert ask(server.dsn, "select 1") == "1"


def test_a_start_that_gives_up_does_not_leave_the_server_behind(home, monkeypatch):
    EmbeddedServer.start(home / "data").close()
    monkeypatch.setattr(server_module, "READY_SECONDS", -1.0)
    monkeypatch.setattr(folder.Folder, "answers", lambda _: False)
    with pytest.raises(EmbeddedError, match="not ready in"):
        EmbeddedServer.start(home / "data")
    assert reaper.is_free(home / "data/server.lock")


# -- places ----------------------------------------------------------------------------------------
def test_a_path_may_be_long_and_have_spaces_and_only_the_socket_is_open(home):
    data = home / ("a long name, " * 8) / ('it\'s "quoted" = 100% ' * 8) / "data"
    with EmbeddedServer.start(data) as server:
        assert server.data_dir == data
        assert ask(server.dsn, "select current_user") == "leasework"
        assert ask(server.dsn, "show listen_addresses") == ""
        assert ask(server.dsn, "show server_encoding") == "UTF8"
        assert ask(server.dsn, "show fsync") == "on"
        socket = Path(ask(server.dsn, "show unix_socket_directories"))
    assert stat.S_IMODE((data / "pgdata").stat().st_mode) == 0o700
    assert len(str(socket)) < 60


def test_the_socket_folder_is_private_and_a_symlink_in_its_place_is_not_followed(home):
    with EmbeddedServer.start(home / "data") as server:
        socket = reaper.socket_folder(server.data_dir)
        assert stat.S_IMODE(socket.lstat().st_mode) == 0o700
    trap = home / "trap"
    trap.mkdir(mode=0o700)
    if AS_ROOT:  # all that the launcher looks at but the link itself is right
        os.chown(trap, server_account(home / "data/pgdata").uid, -1)
    socket.symlink_to(trap)
    try:
        with EmbeddedServer.start(home / "data") as server:
            assert reaper.socket_folder(server.data_dir) != socket
            assert list(trap.iterdir()) == []
    finally:
        socket.unlink()


@pytest.mark.parametrize("original", ["runs", "runs, its lock file is gone", "was killed"])
def test_a_copy_of_a_data_folder_is_another_server_at_another_address(home, original):
    with EmbeddedServer.start(home / "one") as one:
        tell(one.dsn, "checkpoint")
        subprocess.run(["cp", "-a", home / "one", home / "two"], check=True)
        (home / "two/pgdata/postmaster.pid").unlink()
        copy = folder.Folder.prepare(home / "two", Env())
        assert copy.socket() == reaper.socket_folder(one.data_dir) and not copy.answers()
        if original == "was killed":
            os.kill(one.pid, signal.SIGKILL)
        elif original != "runs":
            (copy.socket() / ".s.PGSQL.5432.lock").unlink()
        with EmbeddedServer.start(home / "two") as two:
            assert one.dsn != two.dsn
            assert ask(two.dsn, "show data_directory") == str(home / "two/pgdata")
            if original == "was killed":
                one.restart()
            assert ask(one.dsn, "show data_directory") == str(home / "one/pgdata")
        assert ask(one.dsn, "select 1") == "1"


def test_the_default_folder_carries_the_version(home, monkeypatch):
    monkeypatch.setenv(folder.HOME_SETTING, str(home / "state"))
    with EmbeddedServer.start() as server:
        assert server.data_dir == home / "state/pg18"


def test_somebody_elses_data_directory_is_refused(home):
    (home / "data").mkdir()
    (home / "data/PG_VERSION").write_text("18\n")
    with pytest.raises(EmbeddedError, match="which leasework did not create"):
        EmbeddedServer.start(home / "data")


@pytest.mark.parametrize("name", ["port", "listen_addresses", "unix_socket_directories", "a b"])
def test_settings_that_the_launcher_depends_on_are_refused(home, name):
    with pytest.raises(EmbeddedError, match=r"leasework itself sets|not a setting"):
        EmbeddedServer.start(home / "data", settings={name: "5433"})
    assert not (home / "data").exists()


# -- versions and programs -------------------------------------------------------------------------
@pytest.mark.parametrize("version", ["18", "16", "15"])
def test_each_version_runs(home, version):
    with EmbeddedServer.start(home / "data", version=version) as server:
        assert server.version.split(".")[0] == version
        assert ask(server.dsn, "show server_version").split()[0] == server.version
        assert ask(server.dsn, "select upper('leasework')") == "LEASEWORK"


def test_a_data_folder_of_another_version_is_refused_with_what_to_do(home, monkeypatch):
    EmbeddedServer.start(home / "data", version="16").close()
    with pytest.raises(EmbeddedError, match=r"PostgreSQL 16 created.*version='16'"):
        EmbeddedServer.start(home / "data", version="18")
    until(lambda: not mentioned(home), 10, "the end of everything")
    monkeypatch.setenv(binaries.VERSION_SETTING, "16")
    with EmbeddedServer.start(home / "data") as server:
        assert server.version.startswith("16.")


def test_no_programs_at_all_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(binaries, "WHEEL", "no_such_wheel")
    monkeypatch.setattr(binaries, "DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedError, match=r"extra 'embedded'"):
        find_binaries()


def test_an_unknown_version_lists_what_there_is():
    with pytest.raises(EmbeddedError, match=r"No PostgreSQL 9 was found.*18\.\d+ in "):
        find_binaries("9")


def test_a_program_on_the_path_that_does_not_run_is_passed_over(monkeypatch, tmp_path):
    real = find_binaries("15").bin_dir
    broken, links = tmp_path / "broken", tmp_path / "links"
    for place in (broken, links):
        place.mkdir()
    for name in ("postgres", "initdb"):
        (broken / name).write_text("#!/bin/sh\nexit 1\n")
        (broken / name).chmod(0o755)
    (links / "postgres").symlink_to(real / "postgres")
    monkeypatch.setattr(binaries, "WHEEL", "no_such_wheel")
    monkeypatch.setattr(binaries, "DEBIAN", tmp_path / "none")
    monkeypatch.setenv("PATH", str(broken))
    with pytest.raises(EmbeddedError, match="No PostgreSQL was found"):
        find_binaries()
    monkeypatch.setenv("PATH", str(links))  # initdb is beside the link's target
    assert find_binaries().bin_dir == real


def test_the_setting_for_the_programs_goes_first_and_must_be_right(monkeypatch, tmp_path):
    debian = find_binaries("15")
    monkeypatch.setenv(binaries.BINARIES_SETTING, str(debian.bin_dir))
    assert find_binaries() == debian
    with pytest.raises(EmbeddedError, match="18 was requested"):
        find_binaries("18")
    monkeypatch.setenv(binaries.BINARIES_SETTING, str(tmp_path))
    with pytest.raises(EmbeddedError, match="not a folder with a postgres"):
        find_binaries()


# -- accounts: an ordinary user has only the tests above -----------------------------------------
def python_for(account: str) -> tuple[str, dict[str, str]]:
    """A Python that the account may run (root's own may be closed to it), and its environment."""
    packages = str(Path(psycopg.__file__).parents[1])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{packages}"}
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            subprocess.run(
                [python, "-c", "import psycopg"], user=account, env=env, check=True, cwd="/"
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return python, env
    pytest.skip(f"no Python that {account} may run")


if AS_ROOT:

    def test_an_ordinary_user_runs_the_server_as_himself(home):
        python, env = python_for("nobody")
        shutil.chown(home, "nobody", "nogroup")
        script = (
            "import os, sys; from pathlib import Path\n"
            "from leasework.embedded import EmbeddedServer, reaper\n"
            "a = EmbeddedServer.start(); b = EmbeddedServer.start()\n"
            "assert a.pid == b.pid and os.stat(f'/proc/{a.pid}').st_uid == os.geteuid() != 0\n"
            "assert a.data_dir.stat().st_mode & 0o777 == 0o700\n"
            "a.restart('immediate'); a.close(); pid = b.pid; b.close()\n"
            "assert not reaper.command_line(pid)\n"
            "print('well', a.data_dir)\n"
        )
        done = subprocess.run(
            [python, "-c", script],
            user="nobody",
            group="nogroup",
            extra_groups=[],
            env={**env, "XDG_STATE_HOME": str(home / "state")},
            cwd="/",
            capture_output=True,
            text=True,
        )
        assert done.stdout == f"well {home}/state/leasework/pg18\n", done.stderr

    def test_root_gives_the_server_to_an_account_and_keeps_the_folder(home):
        with EmbeddedServer.start(home / "data") as server:
            account = server_account(server.data_dir / "pgdata")
            assert account.uid != 0
            assert Path(f"/proc/{server.pid}").stat().st_uid == account.uid
            for lock in server.data_dir.glob("*.lock"):
                assert lock.stat().st_uid == 0
            assert (server.data_dir / "pgdata").stat().st_uid == account.uid
            assert server.data_dir.stat().st_uid == 0

    def test_root_opens_its_own_data_folder_but_never_a_parent(home, monkeypatch):
        closed = home / "closed"
        (closed / "data").mkdir(parents=True)
        (closed / "data").chmod(0o700)
        with EmbeddedServer.start(closed / "data"):
            pass
        closed.chmod(0o700)
        with pytest.raises(EmbeddedError, match=f"may not enter {closed}.*chmod"):
            EmbeddedServer.start(closed / "data")
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700

    def test_root_does_not_start_in_a_folder_of_another_account(home):
        (home / "data").mkdir()
        shutil.chown(home / "data", "nobody")
        with pytest.raises(EmbeddedError, match="not a folder of this account"):
            EmbeddedServer.start(home / "data")

    def test_a_wheel_that_is_closed_to_the_account_is_copied(home, monkeypatch):
        found = find_binaries("18")
        wheel, prefix = found.bin_dir.parents[1], found.bin_dir.parent
        closed = home / "closed"
        closed.mkdir(mode=0o700)
        keep = shutil.ignore_patterns("*.a", "include")
        shutil.copytree(prefix, closed / wheel.name / prefix.name, symlinks=True, ignore=keep)
        shutil.copytree(wheel.with_name(f"{wheel.name}.libs"), closed / f"{wheel.name}.libs")
        bin_dir = closed / wheel.name / prefix.name / "bin"
        monkeypatch.setenv(binaries.BINARIES_SETTING, str(bin_dir))
        for _ in range(2):
            with EmbeddedServer.start(home / "data") as server:
                assert command(server.pid)[0].startswith(f"{home}/data/programs-{found.version}/")
                assert ask(server.dsn, "select 1") == "1"


def test_tables_of_the_user_do_not_get_into_the_schema_of_leasework(home: Path):
    """Both the embedded role and the schema are named leasework."""
    with EmbeddedServer.start(home / "data") as server:
        asyncio.run(migrate.apply(Settings(dsn=server.dsn)))
        tell(server.dsn, "create table event (title text)")
        assert ask(server.dsn, "select 'event'::regclass = 'public.event'::regclass") == "True"
        assert asyncio.run(migrate.verify(Settings(dsn=server.dsn))) == []


def test_an_app_says_what_it_applied_and_is_given_on_as_it_was_configured(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(folder.HOME_SETTING, str(home))
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
