"""The shop with Litestar."""

from litestar import Litestar, get, post
from shop import app, buy, password

from leasework.integrations.litestar import mounted
from leasework.web import Login, dashboard


@post("/orders/{order:int}", status_code=202)
async def order(order: int) -> dict[str, str]:
    return {"job": await buy(order)}


@get("/jobs/{job:str}")
async def status(job: str) -> dict[str, object]:
    record = await app.get(job)
    return {"state": record.state, "result": record.result}


pages = dashboard(app, login=Login(user="Ada", password=password()))
web = Litestar([order, status, mounted("/leasework", pages)], lifespan=[app.lifespan])
