"""Handlers of an application. A child that imports the others need not import App, which takes
longer than all the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leasework import App

app = App("postgresql://nobody@127.0.0.1:1/nothing")


class FileConnections:
    """Stands for the app's operations on a user's connection, which is a file's path here."""

    async def assert_mine(self, connection: str, job: Any, node: Any, token: int) -> None:
        _write(connection, f"mine {job} {node} {token}")


def _write(file: str, line: str) -> None:
    with Path(file).open("a") as lines:
        lines.write(line + "\n")


app.on_connection = FileConnections()  # type: ignore[assignment]
app.configure = lambda **_: None  # type: ignore[method-assign]  # the pool's settings have no database


@app.task(executor="process")
def assert_mine(ctx: Any, file: str) -> None:
    ctx.assert_mine(file)


@app.task(executor="process")
def complete(ctx: Any, file: str) -> None:
    ctx.complete(on=file, result=7)


@app.task(executor="process")
async def complete_async(ctx: Any, file: str) -> None:
    await ctx.complete(on=file)
