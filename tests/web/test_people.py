"""Who may do what on the dashboard, how long a session lasts, and what is recorded of a person."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.errors import ConfigError
from leasework.pg.schema import roles
from leasework.web import Login, dashboard
from leasework.web.login import read_people
from leasework.web.rights import NEEDS, ROLES, Role, needed
from tests.web.conftest import Inside, Make
from tests.web.test_attacks import XSS, enqueue, sql
from tests.web.test_every_button import buttons

TOKENS = {role: f"{role}-horse-battery" for role in ROLES}
PEOPLE: dict[str, tuple[str, Role]] = {f"the {role}": (TOKENS[role], role) for role in ROLES}
LOGIN = Login(people=PEOPLE)
ACTS = "select fields - 'via' from leasework.event where kind = 'person_acted' order by id"


async def enter(inside: Inside, role: str) -> httpx.Response:
    """Log in as a browser does. The client keeps the cookie."""
    inside.http.cookies.clear()
    return await inside.post("/login", name=f"the {role}", secret=TOKENS[role])


# -- roles -----------------------------------------------------------------------------------------
async def test_each_button_has_a_role_and_each_role_its_buttons():
    every = {(f"/{path}", act) for path, act in buttons()}
    every |= {("/jobs/bulk", act) for act in ("retry", "cancel", "discard")}
    known = {(p, a) for p, of in NEEDS.items() for acts in of.values() for a in acts.split()}
    assert every == known
    for path, of in NEEDS.items():
        for role, acts in of.items():
            assert all(needed(path, act) == role for act in acts.split())
    assert needed("/nowhere", "retry") == needed("/jobs/bulk", "") == "admin"


@pytest.mark.parametrize("role", ROLES)
async def test_a_form_that_somebody_made_by_hand_is_refused_by_the_role(make: Make, role: Role):
    refused = "You may not do this"
    async with make(login=LOGIN) as inside:
        assert (await enter(inside, role)).status_code == 303
        token = await inside.form_token("/now")
        for path, of in NEEDS.items():
            for least, acts in of.items():
                for act in [] if path == "/sessions/act" and role == "admin" else acts.split():
                    where = path.format(job=uuid4())
                    page = await inside.post(where, act=act, form_token=token)
                    may = ROLES.index(role) >= ROLES.index(least)
                    assert (refused in page.text) is not may, (path, act, page.text)
                    assert page.status_code == 403 or may, (path, act)
        for act in ("", "explode", "silence end", " "):
            page = await inside.post("/nodes/act", act=act, form_token=token)
            assert page.status_code == (400 if role == "admin" else 403), act


@pytest.mark.parametrize("role", ROLES)
async def test_a_page_shows_the_buttons_of_the_role(make: Make, dsn: str, role: Role):
    job = await enqueue(dsn)
    async with make(login=LOGIN) as inside:
        await enter(inside, role)
        one = (await inside.http.get(f"/jobs/{job}")).text
        listed = (await inside.http.get("/jobs?q=state:available")).text
        preview = (await inside.http.get("/jobs/bulk?act=cancel&q=state:available")).text
        assert ('value="cancel"' in one) is (role != "viewer")
        assert ('value="end"' in one) is (role == "admin")
        assert ("All matching jobs:" in listed) is (role == "admin")
        assert ('<button class="danger"' in preview) is (role == "admin")
        for page in ("now", "queues", "limits", "schedules", "nodes", "failures", "events"):
            assert (await inside.http.get(f"/{page}")).status_code == 200


async def test_the_applications_own_login_may_name_the_role(dsn: str, migrated: str):
    app = App(dsn=dsn)
    given: list[Any] = ["Ada"]
    transport = httpx.ASGITransport(dashboard(app, who=lambda _: given[0]))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        inside = Inside(app, http)
        job = await enqueue(dsn)
        for who, status in (
            ("Ada", 303), (("Ada", "admin"), 303), (("Ada", "operator"), 303),
            (("Ada", "viewer"), 403), (None, 401), (("", "admin"), 401),
        ):  # fmt: skip
            given[0] = "Ada"
            token = await inside.form_token(f"/jobs/{job}")
            given[0] = who
            where = f"/jobs/{job}/act"
            answer = await inside.post(where, act="reprioritize", priority="3", form_token=token)
            assert answer.status_code == status, who
        given[0] = ("Ada", "root")
        with pytest.raises(ConfigError, match="unknown role"):
            await http.get("/now")
    await app.close()


# -- people with tokens ----------------------------------------------------------------------------
async def test_a_token_belongs_to_a_name(make: Make):
    async with make(login=LOGIN) as inside:
        for name, secret in (
            ("the admin", TOKENS["viewer"]), ("", TOKENS["admin"]), ("eve", TOKENS["admin"]),
            ("eve", ""), ("the admin", ""), ("THE ADMIN", TOKENS["admin"]),
        ):  # fmt: skip
            inside.http.cookies.clear()
            answer = await inside.post("/login", name=name, secret=secret)
            assert answer.status_code == 403 and "Wrong" in answer.text, name
        assert (await inside.http.get("/now")).status_code == 303
        inside.http.cookies.clear()
        answer = await inside.http.get("/now", auth=("the viewer", TOKENS["viewer"]))
        assert answer.status_code == 200
        wrong = {"accept": "*/*"}
        answer = await inside.http.get("/now", headers=wrong)
        assert answer.status_code == 401, "the cookie of a program is nothing without its token"


def test_the_file_of_people(tmp_path: Any):
    file = tmp_path / "people"
    file.write_text("# who\nann:operator:long-enough:with:colons\n\nbo:viewer:another-token\n")
    people = read_people(str(file))
    assert people == {
        "ann": ("long-enough:with:colons", "operator"), "bo": ("another-token", "viewer"),
    }  # fmt: skip
    assert Login(people=people).role("bo") == "viewer" and Login(people=people).role("eve") is None
    for text in ("ann", "ann:admin", "ann:admin:", "", "a:admin:12345678\na:viewer:12345678"):
        file.write_text(text)
        with pytest.raises(ConfigError):
            read_people(str(file))
    with pytest.raises(ConfigError):
        read_people(str(tmp_path / "none"))
    wrong: Any
    for wrong in (
        {"ann": ("12345678", "root")}, {"ann": ("short", "admin")}, {" ": ("12345678", "admin")},
        {"a:b": ("12345678", "admin")}, {"x" * 201: ("12345678", "admin")},
    ):  # fmt: skip
        with pytest.raises(ConfigError) as told:
            Login(people=wrong)
        assert "12345678" not in str(told.value)
    assert "horse" not in repr(LOGIN)


def test_nobody_who_knows_one_token_can_sign_a_session():
    assert all(token != LOGIN.secret for token in TOKENS.values())
    fewer = Login(people={name: PEOPLE[name] for name in list(PEOPLE)[1:]})
    more: dict[str, tuple[str, Role]] = {**PEOPLE, "the viewer": (TOKENS["viewer"], "admin")}
    assert len({LOGIN.secret, fewer.secret, Login(people=more).secret}) == 3


# -- sessions --------------------------------------------------------------------------------------
async def test_a_session_that_was_ended_is_over_for_whoever_kept_its_cookie(make: Make, dsn: str):
    async with make(login=LOGIN) as first, make(login=LOGIN) as second:
        await enter(first, "operator")
        cookie = dict(first.http.cookies)
        second.http.cookies.update(cookie)
        job = await enqueue(dsn)
        token = await first.form_token(f"/jobs/{job}")
        assert (await second.http.get("/now")).status_code == 200, "any process knows it"
        assert (await first.post("/logout", form_token=token)).status_code == 303
        for inside in (first, second):
            for path in ("/now", "/live", f"/jobs/{job}", "/events?format=csv", "/metrics", "/no"):
                inside.http.cookies.clear()
                inside.http.cookies.update(cookie)
                answer = await inside.http.get(path)
                assert answer.headers["location"] == "/login", path
            inside.http.cookies.update(cookie)
            answer = await inside.post(f"/jobs/{job}/act", act="cancel", form_token=token)
            assert answer.headers["location"] == "/login"
        assert await sql(dsn, "select state from leasework.jobs") == [("available",)]
        await enter(first, "operator")
        assert (await first.http.get("/now")).status_code == 200, "another session of the person"


async def test_an_admin_ends_all_sessions(make: Make, dsn: str):
    async with make(login=LOGIN) as ann, make(login=LOGIN) as bo:
        await enter(ann, "admin")
        for _ in range(2):
            await enter(bo, "viewer")
            assert (await bo.http.get("/now")).status_code == 200
            await ann.post("/sessions/act", page="/now", act="end", reason="a lost laptop")
            for inside in (ann, bo):
                assert (await inside.http.get("/now")).headers["location"] == "/login"
            await enter(ann, "admin")
            assert (await ann.http.get("/now")).status_code == 200
    acted = await sql(dsn, ACTS)
    assert acted[0][0]["reason"] == "a lost laptop" and acted[0][0]["who"] == "the admin"


async def test_a_form_token_is_that_of_one_session(make: Make, dsn: str):
    job = await enqueue(dsn)
    async with make(login=LOGIN) as ann, make(login=LOGIN) as eve:
        await enter(eve, "viewer")
        hers = await eve.form_token("/login")
        await enter(ann, "admin")
        answer = await ann.post(f"/jobs/{job}/act", act="cancel", form_token=hers)
        assert answer.status_code == 403 and "another session" in answer.text


async def test_a_name_may_be_markup(make: Make):
    login = Login(people={XSS.replace(":", ""): (TOKENS["admin"], "admin")})
    async with make(login=login) as inside:
        await inside.post("/login", name=XSS, secret=TOKENS["admin"])
        page = (await inside.http.get("/now")).text
        assert "alert(1)" in page and "<script>alert" not in page and "<img src=x" not in page


async def test_the_form_of_many_jobs_knows_no_other_action(make: Make, dsn: str):
    await enqueue(dsn, priority=7)
    async with make() as inside:
        token = await inside.form_token("/jobs/bulk?act=cancel&q=queue:q")
        answer = await inside.post("/jobs/bulk", form_token=token, act="reprioritize", q="queue:q")
        assert answer.status_code == 400
    assert await sql(dsn, "select priority from leasework.jobs") == [(7,)]


async def test_old_rows_of_ended_sessions_go(make: Make, dsn: str):
    async with make(login=LOGIN) as inside:
        operator = await inside.app.operator("ann", "web")
        await operator.end_sessions()
        await operator.store.end_session("old", None)
        await sql(dsn, "update leasework.ended_session set at = now() - interval '25 hours'")
        await operator.store.end_session("new", None)
    rows = await sql(dsn, "select session, times from leasework.ended_session order by 1")
    assert rows == [("", 1), ("new", 1)]


# -- records ---------------------------------------------------------------------------------------
async def test_every_act_has_its_reason_and_the_list_is_a_file(make: Make, dsn: str):
    job, other = [await enqueue(dsn) for _ in range(2)]
    async with make() as inside:
        token = await inside.form_token(f"/jobs/{job}")
        for path, form in (
            (f"/jobs/{job}/act", {"act": "retry"}),
            (f"/jobs/{job}/act", {"act": "cancel"}),
            ("/queues/act", {"act": "pause", "name": "q"}),
            ("/jobs/bulk", {"act": "discard", "q": "state:available"}),
        ):
            answer = await inside.post(path, form_token=token, reason=XSS, **form)
            assert answer.status_code == 303, answer.text
        acted = [row[0] for row in await sql(dsn, ACTS)]
        assert [row["reason"] for row in acted] == [XSS] * 4
        rows = await sql(dsn, "select id, last_error, reason from leasework.jobs")
        assert all(XSS in (row[1], row[2]) for row in rows)
        page = await inside.http.get("/events?kind=person_acted")
        assert "alert(1)" in page.text and "<script>alert" not in page.text
        too_long = await inside.post(
            f"/jobs/{other}/act", form_token=token, act="retry", reason="x" * 201
        )
        assert too_long.status_code == 400 and len(await sql(dsn, ACTS)) == 4, "nothing was done"

        answer = await inside.http.get("/events?kind=person_acted&format=csv")
        assert answer.headers["content-type"].startswith("text/csv")
        assert "attachment" in answer.headers["content-disposition"]
        read = list(csv.DictReader(io.StringIO(answer.text)))
        assert [row["act"] for row in read] == ["discard", "pause", "cancel", "retry"]
        assert {row["reason"] for row in read} == {XSS} and {row["who"] for row in read} == {
            "local"
        }
        answer = await inside.http.get("/events?kind=person_acted&format=json")
        assert [row["act"] for row in answer.json()] == [row["act"] for row in read]
        assert (await inside.http.get("/events?format=xml")).status_code == 400


async def test_no_cell_is_a_formula(make: Make, dsn: str):
    await enqueue(dsn, task="=1+1", payload={"@x": "-1"}, queue="+1")
    async with make() as inside:
        text = (await inside.http.get("/jobs?format=csv")).text
        [row] = csv.DictReader(io.StringIO(text))
        assert row["task_name"] == "'=1+1" and row["queue"] == "'+1" and row["priority"] == "0"
        assert json.loads(row["payload"]) == {"@x": "-1"}
        for text in ("\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"):
            await enqueue(dsn, task=text, queue="odd")
            page = (await inside.http.get("/jobs?format=csv&q=queue:odd")).text
            assert next(csv.DictReader(io.StringIO(page)))["task_name"] == f"'{text}"


SECRETS = (
    "postgresql://ann:hunter2@db/x", "redis://:hunter2@cache:6379/0", "host=db password=hunter2",
    "host=db password='hunter2 hunter2' user=ann", "postgresql://ann:hun@ter2/hunter2@db",
    "https://db/?user=ann&sslpassword=hunter2&x=1", "Server=db;Pwd=hunter2;", "PASSWORD = hunter2",
)  # fmt: skip
PLAIN = ("https://host:8080/a@b", "http://[::1]:80/?q=a@b", "mail ann@example.org", "a=b", "::@")


async def test_no_password_of_a_dsn_is_shown_anywhere(make: Make, dsn: str):
    payload = {"plain": list(PLAIN), "nested": [{"at": secret} for secret in SECRETS]}
    job = await enqueue(dsn, payload=payload)
    async with make() as inside:
        for path in (f"/jobs/{job}", "/jobs", "/jobs?format=csv", "/jobs?format=json"):
            text = (await inside.http.get(path)).text
            assert "hunter2" not in text and "ter2" not in text, path
        [row] = (await inside.http.get("/jobs?format=json")).json()
        assert row["payload"]["plain"] == list(PLAIN)


# -- the login of the database ---------------------------------------------------------------------
@asynccontextmanager
async def under(dsn: str, role: str, login: Login | None) -> AsyncIterator[Inside]:
    app = App(make_conninfo(dsn, user=f"p_{role}"))
    given: dict[str, Any] = {"login": login} if login else {"unprotected": True}
    transport = httpx.ASGITransport(dashboard(app, **given))
    headers = {"accept": "text/html"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers=headers
    ) as http:
        yield Inside(app, http)
    await app.close()


async def test_acts_need_a_database_login_that_may_record_them(dsn: str, migrated: str):
    names = ("worker", "operator", "observer", "enqueue", "admin")
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as owner:
        await owner.execute(roles.script("leasework").encode())
    try:
        for role in names:
            await sql(dsn, f"create role p_{role} login in role leasework_{role}")
        job = await enqueue(dsn)
        for role, status in (("worker", 403), ("observer", 403), ("operator", 303)):
            async with under(dsn, role, None) as inside:
                answer = await inside.post(
                    f"/jobs/{job}/act", f"/jobs/{job}", act="reprioritize", priority="3"
                )
                assert answer.status_code == status, role
        async with under(dsn, "operator", LOGIN) as inside:
            await enter(inside, "admin")
            kept = dict(inside.http.cookies)
            await inside.post("/logout", "/now")
            inside.http.cookies.update(kept)
            assert (await inside.http.get("/now")).status_code == 303
        async with under(dsn, "observer", LOGIN) as inside:
            await enter(inside, "admin")
            assert (await inside.post("/logout", "/now")).status_code == 303
    finally:
        for role in names:
            for name in (f"p_{role}", f"leasework_{role}"):
                await sql(dsn, f"drop owned by {name} cascade")
                await sql(dsn, f"drop role {name}")
