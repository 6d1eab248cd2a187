"""The Flask application of the tests. Its tasks and its schedule are those of ``web.py``."""

from __future__ import annotations

import os

from flask import Flask

from leasework.integrations.flask import Leasework
from tests.e2e.apps.web import app, work

web = Flask(__name__)
leasework = Leasework(web, app)
GUNICORN = """
from leasework.integrations.gunicorn import node

worker_class = "gthread"
threads = 2
post_worker_init, worker_exit = node("tests.e2e.apps.flask_web:app")
"""


@web.get("/")
def index() -> dict[str, int]:
    return {"pid": os.getpid()}


@web.get("/enqueue")
def enqueue() -> dict[str, str]:
    return {"job": str(app.sync.enqueue(work.job(seconds=0)).id)}
