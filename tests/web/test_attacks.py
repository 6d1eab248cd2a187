"""What an attacker tries: nothing gets through."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from leasework.errors import ConfigError
from leasework.tuning import Tuning
from leasework.web import Login, dashboard, site
from leasework.web.gate import LOCAL
from tests.web.conftest import TOKEN, Make

XSS = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
SQL = "x' or 1=1; drop table leasework.job; --"
EVERY = tuple(path for path, *_ in site.PAGES)


async def sql(dsn: str, query: str, *params: Any) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(query, params)
        return await cursor.fetchall() if cursor.description else []


async def enqueue(dsn: str, **request: Any) -> Any:
    given = json.dumps({"task": "t", "queue": "q", **request})
    return (await sql(dsn, "select id from leasework.enqueue(%s)", given))[0][0]


FILTERS = (
    f'queue:"{SQL}"', f'task:"{SQL}"', f'node:"{SQL}"', f'args.a:"{SQL}"',
    "args.a'||(select/**/1)||':1", "args.{a,b}:1", f'state:"{SQL}"', f"id:{uuid4()}'--",
    "args.a:%(jobs)s", "queue:%s%s%s", "task:\\", 'task:"\\"', "queue:\u2028", "args.a:'::int",
)  # fmt: skip


async def test_sql_in_a_filter_is_only_text(make: Make, dsn: str):
    await enqueue(dsn, payload={"a": "b"})
    async with make() as inside:
        assert ">t</a>" in (await inside.http.get("/jobs")).text
        token = await inside.form_token("/jobs/bulk?act=cancel&q=queue:q")
        for text in FILTERS:
            for path in ("/jobs", "/jobs/bulk"):
                answer = await inside.http.get(path, params={"q": text, "act": "cancel"})
                assert answer.status_code in (200, 400), (text, answer.text)
                assert ">t</a>" not in answer.text, text
            await inside.post("/jobs/bulk", form_token=token, act="cancel", q=text)
    assert await sql(dsn, "select state from leasework.jobs") == [("available",)]


async def test_a_filter_on_an_object_does_not_tell_the_secrets_in_it(make: Make, dsn: str):
    secret = {"token": "abc"}
    await enqueue(dsn, payload={"of": secret, "all": [[secret]], "list": ["abc"]})
    async with make() as inside:
        for text in ("args.of:*abc*", "args.all:*abc*", "args.all.0:*abc*", "args.of:*"):
            page = await inside.http.get("/jobs", params={"q": text})
            assert page.status_code == 200 and ">t</a>" not in page.text, text
        for text in ("args.list:*abc*", "args.list.0:abc", "-args.of:*abc*"):
            assert ">t</a>" in (await inside.http.get("/jobs", params={"q": text})).text, text


async def test_guesses_at_the_secret_are_slow_and_requests_are_not(
    make: Make, monkeypatch: pytest.MonkeyPatch
):
    """Whoever asks for the form gets a signature to try guesses on, without asking again."""
    costs: list[int] = []

    def counted(*given: Any, n: int, r: int, **options: Any) -> bytes:
        costs.append(n * r * 128)
        return scrypt(*given, n=n, r=r, **options)

    scrypt = hashlib.scrypt
    monkeypatch.setattr(hashlib, "scrypt", counted)
    secret = f"guess-{uuid4()}"
    async with make(login=Login(token=secret)) as inside:
        form_token = await inside.form_token("/login")
        [cookie] = inside.http.cookies.values()
        for _ in range(3):
            assert (await inside.http.get("/login")).status_code == 200
    async with make(login=Login(token=secret)) as another:
        another.http.cookies.update(inside.http.cookies)
        answer = await another.post("/login", form_token=form_token, secret=secret)
        assert answer.status_code == 303, "each worker knows the sessions of the others"
    assert costs == [2**25], "32 MiB for each guess, and once for all who serve"

    body, _, mac = cookie.strip('"').partition(".")
    for prefix in ("", "leasework dashboard\n"):
        key = hashlib.sha256(f"{prefix}{secret}".encode()).digest()
        tried = hmac.new(key, f"session\n{body}".encode(), hashlib.sha256).hexdigest()
        assert tried != mac, "one hash is enough to try a guess"


PLACES = ("x", "' or 1=1", "2026-01-01|x", "|", "infinity|", "\x00", "0001-01-01T00:00:00+23:59|")


async def test_a_wrong_place_in_a_list_is_refused(make: Make):
    async with make() as inside:
        for after in PLACES:
            for q in ("", "state:scheduled", "state:running", "state:discarded"):
                answer = await inside.http.get("/jobs", params={"q": q, "after": after})
                assert answer.status_code in (200, 400), (after, answer.text)
            for name in ("before", "kind", "level"):
                answer = await inside.http.get("/events", params={name: after})
                assert answer.status_code == 400, (name, after)


HOSTILE_NODE = """
    insert into leasework.node (id, token, lease_seconds, app, release, host, pid, version, queues,
        tasks, info)
    select gen_random_uuid(), 1, 1e6, x, x, x, 1, x, jsonb_build_object(x, 1), array[x],
        jsonb_build_object('leads', jsonb_build_object(x, 1), 'running', x, 'overdue',
            jsonb_build_array(jsonb_build_object('id', x, 'task', x, 'seconds', 1)))
    from (select %s::text as x) given
"""
HOSTILE_STACK = """
    with run as (
        update leasework.job set ready = true, node = gen_random_uuid(), claim_token = 5,
            claimed_at = now(), attempt = 1
        where id = %s returning id, node, claim_token, queue, priority, fresh, seat
    ), claimed as (
        insert into leasework.claimed_to (node, queue, level, seat)
        select node, queue, leasework.level(priority, fresh), seat from run
    )
    insert into leasework.stack select id, id, node, claim_token, now(), now(), %s from run
"""
HOSTILE_ROWS = (
    "insert into leasework.leader (name, node, token, lease_seconds, acquired_at, renewed_at)"
    " select '{x}', id, 1, 10, now() - interval '9 minutes', now() from leasework.node",
    "insert into leasework.term"
    " select '{x}', 1, id, '{x}', now() - interval '9 minutes' from leasework.node",
    "insert into leasework.schedule (app, name, spec, described, task_name, job, missed,"
    " grace_seconds, release)"
    " values ('{x}', '{x}', '{{\"kind\": \"{k}\"}}', '{x}', '{x}', '{{}}', '{x}', 1, '{x}')",
    "insert into leasework.tick (app, schedule, fire_at, state, decided_at)"
    " values ('{x}', '{x}', now(), '{x}', now())",
    "insert into leasework.event (kind, level, worker_id, fields) values"
    " ('{x}', '{x}', '{x}', jsonb_build_object('{x}', '{x}'::text, 'job', '{j}'::text)),"
    " ('service_failed', 'error', '{x}',"
    " jsonb_build_object('service', '{x}'::text, 'error', '{x}'::text))",
    "insert into leasework.attempt (job_id, claim_token, attempt, outcome, error, started_at,"
    " fingerprint) values ('{j}', 1, 1, '{x}', '{x}' || chr(10) || '{x}', now(), '{x}')",
    "insert into leasework.deadline (id, of_job, name, state, since, seconds, until,"
    " due_at, callback, made_at, closed_at, job_state, callback_job) values"
    " ('{j}', true, '{x}', 'breached', 'fixed', 0, '{x}', now(),"
    " jsonb_build_object('task', '{x}'::text), now(), now(), '{x}', '{j}')",
    "insert into leasework.history (at, queue, task_name, completed, failed)"
    " values (date_trunc('minute', now()), '{x}', '{x}', 1, 1)",
)


async def hostile(dsn: str) -> list[Any]:
    """Every text that a page shows is markup; the jobs."""
    payload = {XSS: XSS, "n": {"deep": [XSS]}}
    job = await enqueue(dsn, task=XSS, queue=XSS, payload=payload, unique=XSS)
    query = "update leasework.job set last_error = %s, progress = 0.5, progress_note = %s"
    await sql(dsn, query, XSS, XSS)
    later = [await enqueue(dsn, task=XSS, queue=XSS, run_in=60) for _ in range(2)]
    await sql(dsn, HOSTILE_NODE, XSS)
    await sql(dsn, HOSTILE_STACK, job, XSS)
    for statement in HOSTILE_ROWS:
        await sql(dsn, statement.format(x=XSS, k=XSS.replace('"', ""), j=job))
    return [job, *later]


async def test_markup_in_every_field_that_shows_text_is_escaped(make: Make, dsn: str):
    job, done, late = await hostile(dsn)
    async with make() as inside:
        await inside.app.cancel(done, XSS)
        await (await inside.app.operator(XSS, "web")).discard(late, XSS)
        of_jobs = [f"jobs/{job}", f"jobs/{done}", f"jobs/{late}"]
        for path in (*EVERY, *of_jobs, "leaders?span=7d"):
            answer = await inside.http.get(f"/{path}")
            assert answer.status_code == 200, (path, answer.text)
            assert "alert(1)" in answer.text or path in ("database", "limits"), path
            for bad in ("<script>alert", "<img src=x", 'value=""><'):
                assert bad not in answer.text, path
        asked = {"q": XSS, "kind": XSS, "act": XSS, "level": XSS}
        for path in ("jobs", "events", "jobs/bulk", "nope"):
            answer = await inside.http.get(f"/{path}", params=asked)
            assert "<script>alert" not in answer.text and "<img src=x" not in answer.text


async def test_answers_forbid_scripts_of_others_frames_and_guesses(make: Make):
    async with make() as inside:
        for path in ("/now", "/static/dash.js", "/nope", "/jobs?q=wrong"):
            headers = (await inside.http.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
        inside.http.cookies.clear()
        page = await inside.http.get("/now")
        assert page.headers["cache-control"] == "no-store"
        assert " style=" not in page.text and " onclick=" not in page.text
        cookie = page.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=lax" in cookie


async def test_without_a_login_nothing_is_shown_and_nothing_done(make: Make, dsn: str):
    job = await enqueue(dsn)
    async with make(login=Login(token=TOKEN)) as inside:
        for path in (*EVERY, f"jobs/{job}", "live", "jobs/bulk?act=cancel"):
            answer = await inside.http.get(f"/{path}")
            assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
        plain = await inside.http.get("/jobs", headers={"accept": "application/json"})
        assert plain.status_code == 401 and "Basic" in plain.headers["www-authenticate"]
        for path in (
            f"/jobs/{job}/act",
            "/jobs/bulk",
            "/schedules/act",
            "/schedules/put",
            "/nodes/act",
        ):
            answer = await inside.post(path, act="cancel", q="")
            assert answer.status_code == 303 and answer.headers["location"] == "/login"
        for forged in ("x", "e30.00", "." * 5000, "W10." + "0" * 64):
            inside.http.cookies.clear()
            inside.http.cookies.set("leasework_session", forged)
            assert (await inside.http.get("/jobs")).status_code == 303
    assert await sql(dsn, "select state from leasework.jobs") == [("available",)]


async def test_a_login_is_checked_and_a_wrong_one_is_an_event(make: Make, dsn: str):
    async with make(login=Login(people={"ada": (TOKEN, "operator")})) as inside:
        for name, secret in (("ada", "wrong"), ("eve", TOKEN), ("", ""), ("ada", TOKEN + "\x00")):
            answer = await inside.post("/login", name=name, secret=secret)
            assert answer.status_code == 403
        answer = await inside.post("/login", name="ada", secret=TOKEN)
        assert answer.status_code == 303
        assert (await inside.http.get("/now")).status_code == 200
    async with make(login=Login(people={"ada": (TOKEN, "operator")})) as other:
        assert (await other.http.get("/now", auth=("ada", TOKEN))).status_code == 200
        other.http.cookies.clear()
        began = time.monotonic()
        wrong = [other.http.get("/now", auth=("ada", f"wrong {n}")) for n in range(3)]
        answers = await asyncio.gather(*wrong)
        assert [answer.status_code for answer in answers] == [303] * 3
        assert time.monotonic() - began >= 3 * Tuning.wrong_login_seconds, (
            "one after the other, as of the form"
        )
        program = {"accept": "application/json"}
        refused = await other.http.get("/jobs", auth=("eve", TOKEN), headers=program)
        assert refused.status_code == 401 and "Basic" in refused.headers["www-authenticate"]
        stolen = inside.http.cookies["leasework_session"]
        other.http.cookies.set("leasework_session", stolen)
        assert (await other.http.get("/now")).status_code == 200, "every worker knows the session"
    async with make(login=Login(people={"ada": ("another-secret", "operator")})) as third:
        third.http.cookies.set("leasework_session", stolen)
        assert (await third.http.get("/now")).status_code == 303, "a new password ends it"
    kinds = await sql(dsn, "select kind from leasework.event where kind = 'login_refused'")
    assert len(kinds) == 8, "four of the form, four of programs"


async def test_many_guesses_at_once_learn_no_more_than_one_after_the_other(
    make: Make, monkeypatch: pytest.MonkeyPatch
):
    """A right one is answered at once, so whoever does not wait for the others must not be read."""
    monkeypatch.setattr(Tuning, "wrong_login_seconds", 0.05)
    async with make(login=Login(token=TOKEN)) as inside:
        guesses = [*(f"wrong {n}" for n in range(10)), TOKEN]
        asked = [inside.http.get("/now", auth=("eve", guess)) for guess in guesses]
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {303}
        assert (await inside.http.get("/now", auth=("eve", TOKEN))).status_code == 200


async def test_a_number_of_thousands_of_digits_is_refused(make: Make, dsn: str):
    long, job = "9" * 5000, await enqueue(dsn)
    async with make() as inside:
        token = await inside.form_token(f"/jobs/{job}")
        for path, act, name in (
            ("/problems/act", "silence", "seconds"),
            ("/limits/act", "set", "concurrency"),
            (f"/jobs/{job}/act", "reprioritize", "priority"),
        ):
            form = {"act": act, "kind": "no_live_node", "name": "x", name: long}
            answer = await inside.post(path, form_token=token, **form)
            assert answer.status_code == 400, (path, answer.text)


async def test_a_post_of_another_site_is_refused(make: Make, dsn: str):
    job = await enqueue(dsn)
    path, form = f"/jobs/{job}/act", {"act": "cancel"}
    async with make() as inside:
        token = await inside.form_token(f"/jobs/{job}")
        good = {**form, "form_token": token}
        for headers in (
            {"origin": "https://evil.test"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"}, {"origin": "http://leasework.test.evil.test"},
            {"origin": "http://["},
        ):  # fmt: skip
            answer = await inside.http.post(path, data=good, headers=headers)
            assert answer.status_code == 403, headers
        for wrong in ({}, {"form_token": ""}, {"form_token": "0" * 64}, {"form_token": token[:-1]}):
            assert (await inside.http.post(path, data={**form, **wrong})).status_code == 403
        text = json.dumps(good)
        for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
            answer = await inside.http.post(path, content=text, headers={"content-type": kind})
            assert answer.status_code == 415
        assert (await inside.http.get(path, params=good)).status_code == 405
        assert (
            "Host header"
            in (
                await inside.http.post(path, data=good, headers={"origin": "https://evil.test"})
            ).text
        )
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert (await inside.http.request(method, path, data=good)).status_code == 405
        async with make() as victim:
            answer = await victim.http.post(path, data=good)
            assert answer.status_code == 403, "the token belongs to another session"
        assert await sql(dsn, "select state from leasework.jobs") == [("available",)]
        assert (await inside.http.post(path, data=good)).status_code == 303
    assert await sql(dsn, "select state from leasework.jobs") == [("cancelled",)]


async def test_a_browser_may_post_through_a_proxy_that_replaces_the_host(make: Make, dsn: str):
    job = await enqueue(dsn)
    async with make() as inside:
        token = await inside.form_token(f"/jobs/{job}")
        behind = {"origin": "https://ops.example.org", "sec-fetch-site": "same-origin"}
        form = {"act": "cancel", "form_token": token}
        answer = await inside.http.post(f"/jobs/{job}/act", data=form, headers=behind)
        assert answer.status_code == 303
    assert await sql(dsn, "select state from leasework.jobs") == [("cancelled",)]


async def test_read_only_refuses_every_act(make: Make, dsn: str):
    job = await enqueue(dsn)
    async with make(unprotected=True, read_only=True) as inside:
        for path in (
            f"/jobs/{job}/act",
            "/jobs/bulk",
            "/schedules/act",
            "/schedules/put",
            "/nodes/act",
        ):
            answer = await inside.http.post(
                path, data={"act": "cancel", "q": "", "form_token": "x"}
            )
            assert answer.status_code == 403 and "read-only" in answer.text
    assert await sql(dsn, "select state from leasework.jobs") == [("available",)]


async def test_what_is_too_large_is_refused(make: Make):
    async with make() as inside:
        assert (await inside.http.get("/jobs", params={"q": "x" * 20_000})).status_code == 414
        assert (
            await inside.http.get("/jobs", params={"q": "queue:" + "x" * 5000})
        ).status_code == 400
        token = await inside.form_token("/jobs/bulk?act=cancel&q=queue:none") if False else ""
        big = {"form_token": token, "q": "x" * 100_000}
        assert (await inside.http.post("/jobs/bulk", data=big)).status_code == 413
        many = {f"f{n}": "1" for n in range(500)}
        assert (await inside.http.post("/jobs/bulk", data=many)).status_code == 400
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = await inside.http.post("/jobs/bulk", content=b"\xff\xfe=%ff", headers=headers)
        assert answer.status_code in (400, 403)


TRICKS = (
    "/static/../site.py", "/static/%2e%2e/site.py", "/static/..%2fsite.py", "/static//etc/passwd",
    "/static/%2e%2e%2f%2e%2e%2fcli/root.py", "/static/dash.css%00.py", "/static/", "/static",
    "/jobs/..%2f..%2fetc%2fpasswd", "/jobs/%00", "/jobs/' or 1=1", "//evil.test/now",
    "/jobs/x/act",
)  # fmt: skip


async def test_path_tricks_lead_nowhere(make: Make):
    async with make() as inside:
        for path in TRICKS:
            answer = await inside.http.get(f"http://leasework.test{path}")
            assert answer.status_code in (400, 403, 404, 405, 307), (path, answer.text)
            assert "evil" not in answer.headers.get("location", ""), path
            assert "import" not in answer.text, path


async def test_a_name_of_another_site_for_this_address_is_refused(make: Make):
    async with make(unprotected=True, hosts=LOCAL) as inside:
        assert (await inside.http.get("http://rebound.evil.test/now")).status_code == 421
        for host in ("localhost:8420", "127.0.0.1:8420", "[::1]:8420"):
            assert (await inside.http.get(f"http://{host}/now")).status_code == 200


async def test_a_masked_argument_cannot_be_guessed(make: Make, dsn: str):
    await enqueue(dsn, payload={"user": {"password": "hunter2"}})
    async with make() as inside:
        answer = await inside.http.get("/jobs", params={"q": "args.user.password:hunter2"})
        assert answer.status_code == 400 and "masked" in answer.text


async def test_errors_show_no_inside(make: Make, dsn: str):
    async with make() as inside:
        await sql(dsn, "alter view leasework.events rename to others")
        answer = await inside.http.get("/events")
        assert answer.status_code in (500, 503)
        for inside_word in ("Traceback", "from leasework", "psycopg"):
            assert inside_word not in answer.text, answer.text


def test_a_dashboard_wants_a_login_or_an_explicit_word(tmp_path):
    from leasework import App

    app = App(dsn="postgresql:///nowhere")
    for options in ({}, {"login": Login(token=TOKEN), "unprotected": True}):
        with pytest.raises(ConfigError, match="one of login"):
            dashboard(app, **options)
    people = {"ada": (TOKEN, "viewer")}
    for given in ({}, {"token": "short"}, {"token": TOKEN, "people": people}):
        with pytest.raises(ConfigError):
            Login(**given)
    assert TOKEN not in repr(Login(token=TOKEN))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_another_address_without_a_login_is_refused(procs, host):
    process = procs.start("-m", "leasework", "web", "--host", host, "--dsn", "postgresql:///x")
    assert process.wait(60) == 1
    assert "LEASEWORK_WEB_TOKEN" in process.output


async def test_a_node_is_acted_on_by_its_name_alone(make: Make, dsn: str):
    job = await enqueue(dsn)
    async with make() as inside:
        token = await inside.form_token(f"/jobs/{job}")
        await sql(dsn, HOSTILE_NODE, "n")
        for node in ("", SQL, XSS, "%", "\x00", "x" * 5000, str(uuid4())):
            for act in ("halt", "drain", "resume"):
                answer = await inside.post("/nodes/act", form_token=token, node=node, act=act)
                assert answer.status_code == 400 and "<script>alert" not in answer.text, node
        answer = await inside.post("/nodes/act", form_token=token, node="n:1:", act="explode")
        assert answer.status_code == 400
        assert await sql(dsn, "select halted from leasework.node") == [(False,)]
        answer = await inside.post("/nodes/act", form_token=token, node="n:1:", act="halt")
        assert answer.status_code == 303
        assert await sql(dsn, "select halted from leasework.node") == [(True,)]


async def test_only_the_demo_has_buttons_that_break_things(make: Make, dsn: str):
    job = await enqueue(dsn)
    async with make() as inside:
        token = await inside.form_token(f"/jobs/{job}")
        assert (await inside.http.get("/demo")).status_code == 404
        for path in ("/demo/act", "/demo/end"):
            assert (await inside.post(path, form_token=token, act="kill")).status_code == 404
