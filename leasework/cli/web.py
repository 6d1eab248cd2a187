"""``leasework web``: the dashboard as a separate process."""

from __future__ import annotations

import os
from typing import Any

import click

from leasework.cli.asking import chosen, database_options
from leasework.errors import ConfigError

PORT = 8420


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
@click.option("--prefix", default="", metavar="/PATH", help="Path under which a proxy serves it.")
@click.option("--read-only", is_flag=True, help="Disable all actions.")
@database_options
def web(target: str | None, host: str, port: int, prefix: str, read_only: bool, **_: Any) -> None:
    """Serve the dashboard.

    It shows the database of --dsn or LEASEWORK_DSN, or that of MODULE:APP. To listen on any
    address but localhost, set a login: LEASEWORK_WEB_TOKEN, or LEASEWORK_WEB_PEOPLE, a file
    with a line name:role:token for each person. The roles are viewer, operator and admin.
    """
    try:
        import uvicorn

        from leasework.web import Login, dashboard
    except ModuleNotFoundError as error:  # of uvicorn; the dashboard says what it needs
        raise ConfigError(
            f"the dashboard needs the package {error.name}", do="install leasework's extra 'web'"
        ) from None
    from leasework.cli.work.logs import set_up_logging
    from leasework.web.gate import LOCAL
    from leasework.web.login import read_people

    token, file = (os.environ.get(f"LEASEWORK_WEB_{name}", "") for name in ("TOKEN", "PEOPLE"))
    login = None
    if token or file:
        login = Login(token, read_people(file) if file else {})
    if login is None and host not in LOCAL:
        raise ConfigError(
            "without a login, the dashboard listens only on localhost",
            got=host,
            do="Set LEASEWORK_WEB_TOKEN or LEASEWORK_WEB_PEOPLE",
        )
    app = chosen(target)
    set_up_logging(app.settings.log, lambda: "web")
    site = dashboard(
        app, login=login, unprotected=login is None, read_only=read_only,
        hosts=None if login else LOCAL, prefix=prefix,
    )  # fmt: skip
    config = uvicorn.Config(
        site,
        host=host,
        port=port,
        log_level="warning",
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    sock = config.bind_socket()
    sock.listen(config.backlog)  # whoever reads the line may connect at once
    shown = f"[{host}]" if ":" in host else host
    click.echo(
        f"leasework: the dashboard is at http://{shown}:{sock.getsockname()[1]}{prefix.rstrip('/')}/"
    )
    server.run(sockets=[sock])
