"""The shop with Starlette."""

from shop import app, buy, password
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from leasework.web import Login, dashboard


async def order(request: Request) -> JSONResponse:
    job = await buy(request.path_params["order"])
    return JSONResponse({"job": job}, status_code=202)


async def status(request: Request) -> JSONResponse:
    record = await app.get(request.path_params["job"])
    return JSONResponse({"state": record.state, "result": record.result})


web = Starlette(
    lifespan=app.lifespan,
    routes=[
        Route("/orders/{order:int}", order, methods=["POST"]),
        Route("/jobs/{job}", status),
        Mount("/leasework", dashboard(app, login=Login(people={"Ada": (password(), "operator")}))),
    ],
)
