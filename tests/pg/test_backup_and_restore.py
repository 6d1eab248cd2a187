"""The commands of the page about deployment back up a database and restore it over itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leasework_lab.server import find_programs

from leasework import App
from leasework.config import Settings
from leasework.pg.schema import migrate

PAGE = Path(__file__).parents[2] / "docs/howto/deployment.md"


def commands() -> list[str]:
    section = PAGE.read_text().split("## Backup and restore")[1]
    return re.findall(r"```sh\n(.*?)```", section, re.S)


async def test_the_commands_of_the_page_restore_a_backup(
    migrated: str, tmp_path: Path, sql: Callable[..., Any]
) -> None:
    backup, restore = commands()[:2]
    [(version,)] = await sql("select current_setting('server_version_num')::integer / 10000")
    programs = find_programs(str(version))[0]
    paths = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {"LEASEWORK_DSN": migrated, "PATH": os.pathsep.join(paths)}

    def run(script: str) -> str:
        return subprocess.run(
            ["bash", "-ec", script],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout

    await sql("create table account (id integer)")
    app = App(migrated)
    task = app.task(name="t")(_handler)
    kept = await task.enqueue()
    await sql("insert into account values (7)")
    run(backup)
    await task.enqueue()
    await sql("delete from account")
    await sql("select leasework.partitions(now() + interval '3 days', 9, 36500)")
    await app.close()
    said = run(restore)
    assert "Tokens continue" in said
    assert await sql("select id from account") == [(7,)]
    assert [job.id for job in await app.jobs()] == [kept.id]
    await app.close()
    assert await migrate.verify(Settings(dsn=migrated)) == []
    # over the schema itself: what fails is only what the page calls harmless
    await sql("select leasework.partitions(now() + interval '3 days', 9, 36500)")
    restore = 'pg_restore --clean --if-exists -d "$LEASEWORK_DSN" shop.dump 2>&1 || true'
    said = run(restore)
    failures = [line for line in said.splitlines() if "error:" in line]
    assert failures and all("cannot drop inherited constraint" in line for line in failures), said
    assert [job.id for job in await app.jobs()] == [kept.id]
    await app.close()
    assert await migrate.verify(Settings(dsn=migrated)) == []


async def _handler() -> None: ...
