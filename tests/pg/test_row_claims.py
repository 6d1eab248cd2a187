"""``claim_rows``: rows of the user's own tables, each to one worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    create_engine,
    func,
    select,
    text,
    union,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column
from sqlalchemy.pool import NullPool

from leasework.errors import ConfigError, WrongConnection, WrongSelect
from leasework.integrations.rows import claim_rows
from tests.pg.drivers import url

PLAIN = "select id from orders where sent is null order by id limit 2"


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"))
    sent: Mapped[int | None]


orders = Table("orders", MetaData(), Column("id", Integer), Column("sent", Integer))


@pytest.fixture
def shop(direct_dsn: str) -> str:
    """Ten orders of one customer."""
    engine = create_engine(url(direct_dsn, "psycopg"), poolclass=NullPool)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Customer(id=1, name="Kim"))
        session.flush()
        session.add_all([Order(id=n, customer_id=1) for n in range(1, 11)])
    return direct_dsn


@pytest.fixture
def sessions(shop: str) -> Iterator[tuple[Session, Session]]:
    engine = create_engine(url(shop, "psycopg"), poolclass=NullPool)
    with Session(engine) as one, Session(engine) as two:
        yield one, two


@pytest.fixture
async def other(shop: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(shop) as connection:
        yield connection


def ids(rows: Any) -> list[int]:
    """Whatever the driver's rows are: tuples, dicts, records."""
    return [row["id"] if isinstance(row, dict | asyncpg.Record) else row[0] for row in rows]


def test_a_claimed_row_is_passed_over_by_everybody_until_the_end(
    sessions: tuple[Session, Session],
) -> None:
    one, two = sessions
    first = select(Order).where(Order.sent.is_(None)).order_by(Order.id).limit(2)
    [order, _] = claim_rows(one, first)
    assert [o.id for o in claim_rows(two, first)] == [3, 4]
    two.rollback()
    order.sent = 1
    one.commit()
    assert [row.id for row in claim_rows(two.connection(), select(orders.c.id).limit(1))] == [2]


async def test_workers_that_claim_at_once_get_each_row_once(shop: str) -> None:
    engine = create_async_engine(url(shop, "asyncpg"), pool_size=5)
    got: Counter[int] = Counter()

    async def work() -> None:
        while True:
            async with AsyncSession(engine) as session, session.begin():
                claimed = await claim_rows(
                    session, select(Order).where(Order.sent.is_(None)).order_by(Order.id).limit(1)
                )
                if not claimed:
                    return
                got[claimed[0].id] += 1
                claimed[0].sent = 1
                await session.flush()
                await asyncio.sleep(0.01)

    await asyncio.gather(*(work() for _ in range(5)))
    await engine.dispose()
    assert got == Counter(range(1, 11))


def test_a_mapped_class_gives_fresh_entities(sessions: tuple[Session, Session]) -> None:
    """What the session has loaded before is read again: it may have changed until the claim."""
    one, two = sessions
    stale = one.get(Order, 1)
    assert stale is not None and stale.sent is None
    one.commit()
    before = one.scalars(select(Order).where(Order.id == 1)).one()
    two.execute(update(Order).where(Order.id == 1).values(sent=7))
    two.commit()
    [claimed] = claim_rows(one, select(Order).where(Order.id == 1))
    assert claimed is before and claimed.sent == 7


def test_only_the_named_table_of_a_join_is_locked(sessions: tuple[Session, Session]) -> None:
    one, two = sessions
    joined = select(Order, Customer.name).join(Customer, Order.customer_id == Customer.id).limit(2)
    rows = claim_rows(one, joined.order_by(Order.id), of=Order)
    assert [(order.id, name) for order, name in rows] == [(1, "Kim"), (2, "Kim")]
    assert [c.id for c in claim_rows(two, select(Customer))] == [1], "the customer is free"
    two.rollback()
    renamed = aliased(Order)
    assert claim_rows(two, select(renamed).order_by(renamed.id).limit(1))[0].id == 3


def test_the_lock_is_for_update_and_weaker_only_by_name(sessions: tuple[Session, Session]) -> None:
    one, two = sessions
    first = select(Order).where(Order.id == 1)
    excludes = {
        # what this lock keeps out, of the four
        "update": {"update", "no key update", "share", "key share"},
        "no key update": {"update", "no key update", "share"},
        "share": {"update", "no key update"},
        "key share": {"update"},
    }
    for lock, kept_out in excludes.items():
        claim_rows(one, first, lock=lock)
        seen = set()
        for rival in excludes:
            if not claim_rows(two, first, lock=rival):
                seen.add(rival)
            two.rollback()
        assert seen == kept_out, lock
        one.rollback()
    assert claim_rows(one, first) and not claim_rows(two, first, lock="key share")
    with pytest.raises(ConfigError, match="Did you mean 'update'"):
        claim_rows(one, first, lock="updat")


# -- wrong use -------------------------------------------------------------------------------------
JOIN = select(Order).join(Customer)


WRONG: list[tuple[Any, Any, str]] = [
    (JOIN, None, "more than one table"),
    (select(Order.id, Customer.name), None, "more than one table"),
    (select(select(Order).subquery()), None, "more than one table"),
    (select(func.now()), None, "more than one table"),
    (select(Order).with_for_update(), None, "already has a lock"),
    (union(select(Order.id), select(Customer.id)), None, "not by a union"),
    (update(Order), None, "not by a union"),
    (text("select id from orders"), Order, "not by a union"),
]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_wrong_select_is_refused_with_the_reason(shop: str, driver: str) -> None:
    with Session(create_engine(url(shop, driver), poolclass=NullPool)) as session:
        for statement, of, words in WRONG:
            with pytest.raises(WrongSelect, match=words):
                claim_rows(session, statement, of=of)
            session.rollback()


async def test_without_a_transaction_it_is_refused(shop: str) -> None:
    engine = create_engine(url(shop, "psycopg"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with (
        Session(engine) as session,
        pytest.raises(WrongConnection, match=r"unlocked at once.*AUTOCOMMIT"),
    ):
        claim_rows(session, select(Order))
    lazy = create_async_engine(
        url(shop, "asyncpg"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    async with AsyncSession(lazy) as asynchronous:
        with pytest.raises(WrongConnection, match="unlocked at once"):
            await claim_rows(asynchronous, select(Order))


async def test_sqlite_is_refused_because_it_cannot_lock_rows() -> None:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        # what happens without the helper: no lock, and not a word
        assert "FOR UPDATE" not in str(select(Order).with_for_update().compile(engine)).upper()
        with pytest.raises(WrongConnection, match=r"SQLite cannot lock rows.*the same rows"):
            claim_rows(session, select(Order))


def test_what_is_no_connection_of_sqlalchemy_is_refused() -> None:
    with pytest.raises(WrongConnection, match="of SQLAlchemy"):
        claim_rows(object(), select(Order))


# -- the versions by hand that this replaces -------------------------------------------------------
def test_hand_made_claims_hand_a_row_to_two(sessions: tuple[Session, Session]) -> None:
    """No lock; a lock that excludes nobody of its kind; a lock that ends with its statement."""
    first = select(Order).where(Order.id == 1)
    for weak in (first, first.with_for_update(read=True, skip_locked=True)):
        assert [[o.id for o in s.scalars(weak)] for s in sessions] == [[1], [1]]
        for session in sessions:
            session.rollback()
    engine = sessions[0].get_bind()
    with engine.connect() as one, engine.connect() as two:
        rows = []
        for connection in (one, two):
            auto = connection.execution_options(isolation_level="AUTOCOMMIT")
            rows.append(auto.execute(first.with_for_update(skip_locked=True)).first().id)
        assert rows == [1, 1]


def test_a_hand_made_claim_of_a_join_locks_all_its_tables(
    sessions: tuple[Session, Session],
) -> None:
    one, two = sessions
    joined = select(Order.id).join(Customer, Order.customer_id == Customer.id).order_by(Order.id)
    limited = joined.limit(2)
    assert one.scalars(limited.with_for_update(skip_locked=True)).all() == [1, 2]
    assert two.scalars(limited.with_for_update(skip_locked=True)).all() == [], "the customer"
    one.rollback()
    two.rollback()
    assert [claim_rows(s, limited, of=Order) for s in (one, two)] == [[(1,), (2,)], [(3,), (4,)]]
