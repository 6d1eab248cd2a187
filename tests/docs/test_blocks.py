"""The blocks of how-to pages run on a database. Those of one page are one module, in their order.

Blocks that are files of the application run in test_steps.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from tests.pg.test_alembic import url

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
_WRONG = re.compile(r"^## What goes wrong without it\n.*?(?=^## |\Z)", re.M | re.S)
_BLOCK = re.compile(r'^( *)```python(?: title="shop.py")?\n(.*?)^\1```', re.M | re.S)

START, END = "start", "end"
APP = """
from datetime import UTC, date, datetime, timedelta
from contextlib import asynccontextmanager
from leasework import App, Backoff, Context
from leasework.testing import drain

app = App()
"""
NODE = "await stack.enter_async_context(app.node(execute=False))"
"""Else a lease starts a light node, which outlives the test's database."""
TABLES = """
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

class Base(DeclarativeBase):
    pass

class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]

class payment(Base):
    __tablename__ = "payment"
    order: Mapped[int] = mapped_column(primary_key=True)

engine = create_async_engine(url)
stack.push_async_callback(engine.dispose)
async with engine.begin() as connection:
    await connection.run_sync(Base.metadata.create_all)
session = await stack.enter_async_context(AsyncSession(engine))
order = Order(id=1, email="kim@example.org")
"""
GIVEN: dict[str, dict[str, str]] = {
    "jobs.md": {
        START: TABLES + APP,
        "class Line": """
stack.push_async_callback(app.close)
assert {record.result for record in await drain(app)} == {"sent to kim@example.org"}
assert len(await app.jobs(task=send_mail.name)) == 3, "one of them is due later"

from asyncio import create_task
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID, uuid4
from tests.support.wait import until_async

async def work():
    await until_async(lambda: app.jobs(task="page_on_jobs.charge"))
    await drain(app)

worker = create_task(work())
order, Receipt = SimpleNamespace(id=uuid4()), None
lines = [{"article": uuid4(), "price": Decimal(1)}]
""",
        "class Encrypted": """
from cryptography.fernet import Fernet

await worker
stack.push_async_callback(app.close)
new_key, old_key = Fernet.generate_key(), Fernet.generate_key()
""",
        "sync_account": """
@app.task
async def sync_account(account: int) -> None: ...
""",
        "await app.cancel": """
job_id = (await sync_account.using(run_in=60).enqueue(account=42)).id
""",
        "lifespan=clients": """
found = await app.get(job_id)
assert found.state == "cancelled" and found.payload == {"account": 42}
await app.close()
""",
        "with seconds.labels": """
from contextlib import nullcontext

seconds = SimpleNamespace(labels=lambda task: SimpleNamespace(time=nullcontext))
sentry_sdk = SimpleNamespace(capture_exception=print)
""",
        END: """
ran = await drain(app)
assert list(ran[-1].tags) == ["billing", "customer-7"]
""",
    },
    "schedules.md": {
        START: TABLES,
        "put(": """
@app.task
async def report(customer: int) -> int:
    return customer
""",
        "warm = warm_cache": """
await session.commit()
[put] = [one for one in await app.schedules.list() if not one.in_code]
assert put.name == "report-42" and put.described == "At 07:00 every day (Asia/Seoul)"
from datetime import timedelta
RELEASE = "1"

@app.task
async def warm_cache() -> None: ...
""",
    },
    "locks.md": {
        START: APP
        + NODE
        + """
synced = []

async def sync():
    synced.append(lock.token)
""",
        END: "assert len(synced) == 1 and not lock.held",
    },
    "leaders.md": {
        START: APP
        + NODE
        + TABLES
        + """
from psycopg import AsyncConnection

terms = []

async def engine(lead):
    terms.append(lead.term)
""",
        "lead.verify": """
lead = await stack.enter_async_context(app.leader("content-engine"))
await lead.wait()
connection = await stack.enter_async_context(await AsyncConnection.connect(dsn))
await connection.execute("create table engine (beat timestamptz)")
""",
        END: "assert len(terms) == 1 and terms[0] < lead.term",
    },
    "deadlines.md": {
        START: """
from datetime import timedelta
from leasework.testing import drain
""",
        END: """
assert not await promise.cancel(), "it was met"
assert len(await drain(app)) == 3
""",
    },
    "row-claims.md": {
        START: """
from datetime import UTC, datetime
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

class Base(DeclarativeBase):
    pass

class Order(Base):
    __tablename__ = "orders"
    __table_args__ = {"schema": "public"}
    id: Mapped[int] = mapped_column(primary_key=True)
    shop: Mapped[int]
    sent_at: Mapped[datetime | None]

engine, sent = create_engine(url), []
stack.callback(engine.dispose)
Base.metadata.create_all(engine)
with Session(engine) as session, session.begin():
    session.add_all([Order(id=1, shop=42), Order(id=2, shop=42, sent_at=datetime(2030, 1, 1))])

def send(order):
    sent.append(order.id)

def now():
    return datetime(2030, 1, 1)
""",
        END: """
assert sent == [1]
""",
    },
    "advisory-locks.md": {START: APP + TABLES},
    "apscheduler.md": {
        START: APP
        + NODE
        + """
from apscheduler.schedulers.asyncio import AsyncIOScheduler

scheduler = AsyncIOScheduler()

async def refresh(): ...
""",
        END: """
async with lifespan(None):
    assert scheduler.get_job("refresh")
""",
    },
    "web.md": {
        START: APP
        + """
from fastapi import FastAPI

@app.task(queue="mail")
async def send() -> None: ...

@asynccontextmanager
async def my_lifespan(web):
    yield
""",
    },
    "managed.md": {
        END: """
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine

engine = create_engine(url)
stack.callback(engine.dispose)
with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
    downgrade()
    upgrade()
app = App()
assert await app.jobs() == []
""",
    },
    "metrics.md": {START: APP + "from fastapi import FastAPI\nfastapi_app = FastAPI()"},
    "dashboard.md": {START: APP + "import os\nfrom fastapi import FastAPI\nweb = FastAPI()"},
    "tokens.md": {
        START: APP + TABLES,
        END: """
await pay.enqueue(order=7)
[record] = await drain(app)
assert record.state == "completed"
assert (await session.scalars(select(payment.order))).all() == [7]
""",
    },
}


def blocks(page: str) -> list[str]:
    """The page's code, without what it advises against."""
    text = _WRONG.sub("", (HOWTO / page).read_text("utf-8"))
    return [dedent(found[2]).replace("…", "...") for found in _BLOCK.finditer(text)]


async def run(code: str, module: ModuleType) -> None:
    """Run code that awaits outside functions too."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    done = eval(compile(code, module.__name__, "exec", flags), vars(module))
    if inspect.iscoroutine(done):
        await done


@pytest.mark.parametrize("page", GIVEN)
async def test_the_blocks_of_a_page_run(page, migrated, monkeypatch):
    monkeypatch.setenv("LEASEWORK_DSN", migrated)
    monkeypatch.setenv("OPS_TOKEN", "a" * 32)
    module, given = ModuleType(f"page_on_{page.removesuffix('.md')}"), dict(GIVEN[page])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    async with AsyncExitStack() as stack:
        vars(module).update(url=url(migrated), dsn=migrated, stack=stack)
        await run(given.pop(START, ""), module)
        end = given.pop(END, "")
        for block in blocks(page):
            for text in [text for text in given if text in block]:
                await run(given.pop(text), module)
            await run(block, module)
        await run(end, module)
    if app := vars(module).get("app"):
        await app.close()
    assert not given, "no block of the page has this text"
