"""The shop with Litestar."""

from litestar import Litestar, asgi, get, post
from litestar.types import Receive, Scope, Send
from shop import app, buy, password

from leasework.web import Login, dashboard

site = dashboard(app, login=Login(people={"Ada": (password(), "operator")}))


@asgi("/leasework", is_mount=True, copy_scope=True)
async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Litestar's mounts do not tell an application its path, and end each path with a slash."""
    root = scope.get("root_path", "") + "/leasework"
    path = root + (scope["path"].rstrip("/") or "/")
    await site({**scope, "root_path": root, "path": path}, receive, send)


@post("/orders/{order:int}", status_code=202)
async def order(order: int) -> dict[str, str]:
    return {"job": await buy(order)}


@get("/jobs/{job:str}")
async def status(job: str) -> dict[str, object]:
    record = await app.get(job)
    return {"state": record.state, "result": record.result}


web = Litestar([order, status, pages], lifespan=[app.lifespan])
