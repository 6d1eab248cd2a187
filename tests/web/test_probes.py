"""What machines ask: metrics, and is it alive and ready."""

from __future__ import annotations

import httpx
import psycopg
from fastapi import FastAPI

from leasework import App
from leasework.web import probes
from tests.support.wait import until, until_async
from tests.web.conftest import TOKEN, Make, Scene


def test_the_real_endpoint_says_who_leads_and_what_was_done(scene: Scene):
    job = scene.enqueue("send", "mail", payload={"user_id": 1})
    scene.wait_state(job, "completed")

    def told() -> str:
        answer = httpx.get(f"{scene.url}metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.text

    until(lambda: 'leasework_leader_held{name="default"} 1.0' in told(), 60, "a leader")
    text = told()
    assert 'leasework_lease_acquired_total{name="default"} 1.0' in text
    assert 'leasework_queue_slots{queue="mail"}' in text
    assert 'leasework_problems{cause="",kind="no_leader",subject=""} 0.0' in text
    until(lambda: 'leasework_leader_claimants{name="default"} 1.0' in told(), 60, "its word")
    until(lambda: _value(told(), 'leasework_lease_renewed_total{name="default"}') > 2, 60)


def _value(text: str, series: str) -> float:
    return next(float(x.rpartition(" ")[2]) for x in text.splitlines() if x.startswith(series))


async def test_metrics_want_the_login_and_the_probes_do_not(make: Make):
    from leasework.web import Login

    async with make(login=Login(token=TOKEN)) as inside:
        plain = {"accept": "*/*"}
        assert (await inside.http.get("/metrics", headers=plain)).status_code == 401
        right = await inside.http.get("/metrics", headers=plain, auth=("prometheus", TOKEN))
        assert "leasework_up 1.0" in right.text
        for path in ("/livez", "/readyz"):
            answer = await inside.http.get(path, headers=plain)
            assert (answer.status_code, answer.text) == (200, "ok\n")
            assert "set-cookie" not in answer.headers


async def test_livez_never_asks_the_database_and_readyz_does(dsn: str, migrated: str):
    app = App(dsn=dsn)
    web = FastAPI()
    web.mount("/ops", probes(app))
    transport = httpx.ASGITransport(web)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://test") as http,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection,
    ):

        async def none_is_open() -> bool:
            cursor = await connection.execute(
                "select count(*) from pg_stat_activity where application_name like 'leasework%'"
                " and pid <> pg_backend_pid() and datname = current_database()"
            )
            return await cursor.fetchone() == (0,)

        await until_async(none_is_open, 30, "the one that applied the schema to be gone")
        assert (await http.get("/ops/livez")).text == "ok\n"
        assert await none_is_open(), "no connection was opened"
        assert (await http.get("/ops/readyz")).text == "ok\n"
        await connection.execute("update leasework.migration set number = -1")
        behind = await http.get("/ops/readyz")
        assert (behind.status_code, behind.text) == (503, "schema_behind\n")
        assert 'leasework_problems{cause="",kind="schema_behind",subject=""} 1.0' in (
            (await http.get("/ops/metrics")).text
        )
        assert (await http.get("/ops/livez")).status_code == 200
    await app.close()


async def test_readyz_of_a_database_that_is_away_is_no(tmp_path):
    app = App(dsn=f"host={tmp_path} dbname=nowhere")
    transport = httpx.ASGITransport(probes(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "database_away\n")
        assert "leasework_up 0.0" in (await http.get("/metrics")).text
        assert (await http.get("/livez")).status_code == 200
    await app.close()
