"""The dashboard in a real browser, over a real application."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import psycopg
import pytest
from axe_playwright_python.sync_playwright import Axe

from leasework.web import site
from tests.support.relay import Relay
from tests.support.wait import until
from tests.web.conftest import PATIENCE, TOKEN, Open, Scene

PAGES = tuple(path for path, *_ in site.PAGES)

SIZES = [(1280, "light"), (390, "dark")]
SHOTS = os.environ.get("LEASEWORK_SHOTS", "")
"""A folder for pictures of every page (make web-shots); then in every size and theme."""
if SHOTS:
    SIZES += [(1280, "dark"), (390, "light")]


LONG = "no address for this user" if SHOTS else "x" * 300


def shoot(page: Any, path: str, width: int, theme: str) -> None:
    name = re.sub(r"[^a-z]+.*", "", path)
    name = {"jobs": "job" if "/" in path and "bulk" not in path else "jobs"}.get(name, name)
    name += "-bulk" if "bulk" in path else ""
    page.wait_for_timeout(100)
    page.screenshot(path=f"{SHOTS}/{name}-{theme}{'' if width > 400 else '-phone'}.png")


BROKEN_WORDS = """() => {
    const broken = [];
    const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        if (walk.currentNode.parentElement.closest("details:not([open]) > :not(summary)")) continue;
        for (const word of walk.currentNode.data.matchAll(/[\\w/]{2,14}(?![\\w/])/g)) {
            if (word.index && /[\\w/]/.test(walk.currentNode.data[word.index - 1])) continue;
            const range = document.createRange();
            range.setStart(walk.currentNode, word.index);
            range.setEnd(walk.currentNode, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
            if (lines.size > 1) broken.push(word[0]);
        }
    }
    return broken;
}"""
"""Short words that begin on one line and end on the next."""


def assert_accessible(page: Any, path: str) -> None:
    """By the rules of axe, light and dark: nothing serious or critical, and each target is 24 by
    24 pixels large or stands apart."""
    options = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
    grave = []
    for theme in ("light", "dark"):
        page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
        grave += [
            f"{path}, {theme}: {rule['id']}: {node['failureSummary']} {node['html'][:200]}"
            for rule in Axe().run(page, options=options).response["violations"]
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]
    page.evaluate("delete document.documentElement.dataset.theme")
    assert not grave, "\n".join(grave)


HISTORY = """
insert into leasework.history (at, queue, task_name, completed, failed, wait, run)
select date_trunc('minute', now()) - interval '1 min' * n, q, t, c, f,
    jsonb_build_object('12', c * 6 / 10, '20', c * 3 / 10, '33', c / 10 + 1),
    jsonb_build_object('18', c * 7 / 10, '27', c * 2 / 10, '41', c / 10 + 1)
from generate_series(2, 60) n,
    (values ('mail', 'send', 90), ('mail', 'broken', 4), ('work', 'flaky', 12),
            ('ticks', 'tick', 60), ('reports', 'report', 1)) k (q, t, base),
    lateral (select (base * (1 + sin(n / 7.0) / 3))::int as c,
                    case when t in ('broken', 'flaky') and n % 5 = 0 then 3 else 0 end as f) x
on conflict do nothing
"""


PUT = """
select leasework.schedule_put('default', '{"name": "report-42", "task_name": "report",
    "spec": {"kind": "cron", "expression": "0 7 * * *", "timezone": "UTC"},
    "described": "At 07:00 every day (UTC)", "missed": "latest", "grace_seconds": 5,
    "next_at": "2030-01-01T07:00:00Z",
    "job": {"task": "report", "queue": "reports", "payload": {}}}')
"""


@pytest.mark.parametrize("width, theme", SIZES)
def test_every_page_is_usable(scene: Scene, page_at: Open, width: int, theme: str):
    done = scene.enqueue("send", "mail", payload={"user_id": 1, "password": "hunter2"})
    bad = scene.enqueue("broken", "mail", payload={"says": LONG}, max_attempts=1)
    scene.wait_state(done, "completed")
    scene.wait_state(bad, "discarded")
    running = scene.enqueue("long", "work", payload={"pages": 20})
    scene.wait_state(running, "running")
    scene.sql(HISTORY)
    scene.sql("update leasework.schedule set paused = true where name = 'sync-contacts'")
    scene.sql(PUT)
    page = page_at(scene.url, width, theme)
    paths = (*PAGES, f"jobs/{done}", f"jobs/{bad}", "jobs/bulk?act=retry&q=state:discarded")
    with psycopg.connect(scene.dsn) as reader:
        # a transaction with a snapshot and a long statement is shown on the page of the database
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select " + ", ".join(f"{n} as number_{n}" for n in range(40)))
        for path in paths:
            page.goto(scene.url + path)
            page.wait_for_selector("main h1")
            for summary in page.locator("details.edit summary").all() if not SHOTS else []:
                summary.click()
            assert page.evaluate(BROKEN_WORDS) == [], path
            assert_accessible(page, path)
            assert page.locator("h1").count() == 1, path
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{path} scrolls sideways: {wide}"
            if path == "database":
                assert "number_3" in page.content()
            if SHOTS:
                shoot(page, path, width, theme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(19, 21, 22)") == (theme == "dark")


def test_the_page_follows_what_happens(scene: Scene, page_at: Open):
    page = page_at(scene.url + "jobs?q=queue:later")
    assert "No matching jobs" in page.content()
    scene.enqueue("send", "later", run_in=3600, payload={"user_id": 5})
    page.wait_for_selector("text=user_id=5")
    page.goto(scene.url + "now")
    page.wait_for_selector(".link.on")


def test_the_filter_finds(scene: Scene, page_at: Open):
    job = scene.enqueue("send", "mail", payload={"user_id": 4711, "password": "hunter2"})
    scene.wait_state(job, "completed")
    page = page_at(scene.url + "jobs")
    page.keyboard.press("/")
    page.keyboard.type("task:send")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=task%3Asend")
    page.fill("#q", "task:send args.user_id:4711 state:completed")
    page.keyboard.press("Enter")
    page.wait_for_selector(f'a.row[href$="{job}"]')
    assert page.locator("a.row").count() == 1
    assert "hunter2" not in page.content() and "••••••" in page.content()
    page.keyboard.press("Escape")
    page.locator("body").press("j")
    page.locator("body").press("Enter")
    page.wait_for_url(f"**/jobs/{job}")
    assert "hunter2" not in page.content() and "&lt;4711@example.org&gt;" in page.content()


def test_many_jobs_are_cancelled_after_a_preview(scene: Scene, page_at: Open):
    jobs = [scene.enqueue("send", "parked", payload={"user_id": n}) for n in range(7)]
    page = page_at(scene.url + "jobs?q=queue:parked")
    page.click("text=Cancel …")
    assert page.inner_text("#preview") == "7 jobs match"
    assert {scene.state(job) for job in jobs} == {"available"}, "a preview changes nothing"
    page.click("button:has-text('Cancel 7 jobs')")
    page.wait_for_selector("text=7 jobs cancelled, or cancellation requested if running")
    assert {scene.state(job) for job in jobs} == {"cancelled"}
    assert page.locator("text=Retry …").count() == 0, "it would run completed jobs again"
    page.goto(scene.url + "jobs?q=queue:parked state:cancelled")
    page.click("text=Retry …")
    page.click("button:has-text('Retry 7 jobs')")
    page.wait_for_selector("text=7 jobs queued to run now")
    page.goto(scene.url + "jobs?q=queue:parked")
    page.click("text=Discard …")
    page.click("button:has-text('Discard 7 jobs')")
    page.wait_for_selector("text=7 jobs discarded")
    assert {scene.state(job) for job in jobs} == {"discarded"}
    page.goto(scene.url + "events?kind=person_acted")
    assert "jobs queue:parked" in page.content() and "local" in page.content()


def test_a_running_job_is_asked_to_end(scene: Scene, page_at: Open):
    job = scene.enqueue("long", "work", payload={"pages": 20})
    scene.wait_state(job, "running")
    page = page_at(f"{scene.url}jobs/{job}")
    page.wait_for_selector("text=page 7 of 20")
    page.click("button:text-is('Cancel')")
    page.wait_for_selector("text=Cancellation requested.")
    scene.wait_state(job, "cancelled")
    page.wait_for_selector(".timeline li >> text=cancelled")
    page.wait_for_selector(".timeline li >> text=person acted")


def test_the_stack_of_a_running_job_is_shown(scene: Scene, page_at: Open):
    job = scene.enqueue("long", "work", payload={"pages": 20})
    scene.wait_state(job, "running")
    page = page_at(f"{scene.url}jobs/{job}")
    page.click("text=Show stack")
    page.wait_for_selector("text=Stack requested from the node")
    page.wait_for_selector("#stack pre", timeout=60_000)
    assert "await asyncio.Event().wait()" in page.inner_text("#stack pre")
    reader = page_at(f"{scene.web('--read-only')}jobs/{job}")
    assert "asyncio.Event" in reader.inner_text("#stack pre")
    assert reader.locator("main button").count() == 0
    page.click("button:text-is('Cancel')")
    scene.wait_state(job, "cancelled")
    page.goto(f"{scene.url}jobs/{job}")
    assert page.locator("#stack").count() == 0, "it is that of a run, and this one is over"


def test_a_job_says_why_it_waits_and_what_went_wrong(scene: Scene, page_at: Open):
    waits = scene.enqueue("send", "nobody-works-this", payload={"user_id": 1})
    page = page_at(f"{scene.url}jobs/{waits}")
    assert "No live node works the queue 'nobody-works-this'" in page.inner_text(".why")
    page.click("button:text-is('Discard')")
    page.wait_for_selector("text=Job discarded")
    failed = scene.enqueue("flaky", "work", max_attempts=2)
    scene.wait_state(failed, "retryable")
    page.goto(f"{scene.url}jobs/{failed}")
    assert "Attempt 1 of 2 failed" in page.inner_text(".why")
    page.click("text=Run now")
    scene.wait_state(failed, "discarded")
    page.goto(f"{scene.url}jobs/{failed}")
    assert "TimeoutError: the API did not answer" in page.inner_text("pre.trace >> nth=0")
    assert page.locator(".timeline li.bad").count() >= 3


def test_a_schedule_runs_now_pauses_and_goes_on(scene: Scene, page_at: Open):
    page = page_at(scene.url + "schedules")
    card = page.locator("tr", has_text="daily-report")
    assert "At 15:00 every day" in card.inner_text()
    card.get_by_role("button", name="Run now").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}$"))
    assert "is queued to run now" in page.content()
    page.wait_for_selector('h1 .state:text-is("completed")')
    page.goto(scene.url + "schedules")
    card.get_by_role("button", name="Pause").click()
    page.wait_for_selector("text=daily-report of default is paused")
    assert scene.sql("select paused from leasework.schedule where name = 'daily-report'") == [
        (True,)
    ]
    card.get_by_role("button", name="Resume").click()
    page.wait_for_selector("text=daily-report of default is resumed")
    until(lambda: scene.sql("select 1 from leasework.ticks where state = 'fired' limit 1"), 60)
    page.goto(scene.url + "schedules")
    page.wait_for_selector(".ticks .completed")


def test_a_node_stops_claiming_and_claims_again(scene: Scene, page_at: Open):
    page = page_at(scene.url + "nodes")
    page.click("button:has-text('Stop claiming')")
    page.wait_for_selector("text=stops claiming jobs at its next renewal")
    page.wait_for_selector(".tag:text-is('not claiming')", timeout=60_000)
    job = scene.enqueue("send", "mail", payload={"user_id": 7})
    page.goto(scene.url + f"jobs/{job}")
    assert "No live node works the queue" in page.inner_text(".why")
    page.goto(scene.url + "nodes")
    page.click("button:has-text('Resume claiming')")
    scene.wait_state(job, "completed")
    page.wait_for_selector(".tag:text-is('not claiming')", state="detached", timeout=60_000)
    acts = "select fields ->> 'act' from leasework.events where fields ->> 'on' like 'node %%'"
    assert {act for (act,) in scene.sql(acts)} == {"stop claiming", "claim again"}


def test_the_leaders_page_shows_what_the_process_believes(scene: Scene, page_at: Open):
    page = page_at(scene.url + "leaders")
    page.wait_for_selector("td >> text=agrees")
    assert page.locator(".terms .held").count() >= 1
    assert page.locator(".terms .overlap").count() == 0


def test_what_is_wrong_is_said_in_the_words_of_status(scene: Scene, page_at: Open):
    scene.enqueue("send", "unworked", payload={"user_id": 1})
    page = page_at(scene.url + "now")
    trouble = "text=Queue 'unworked' has available jobs, but no live node runs them"
    page.wait_for_selector(trouble)
    page.wait_for_selector("#troubles:not([hidden])")
    scene.sql("delete from leasework.job where queue = 'unworked'")
    page.wait_for_selector(trouble, state="detached", timeout=60_000)


def test_an_open_transaction_that_pins_the_past_is_named(scene: Scene, page_at: Open):
    import psycopg

    with psycopg.connect(scene.dsn, application_name="forgotten-shell") as old:
        old.execute("begin isolation level repeatable read")
        old.execute("select 'a secret literal', 1 from leasework.node")
        page = page_at(scene.url + "database")
        row = page.locator("tr", has_text="forgotten-shell").first
        assert str(old.info.backend_pid) in row.inner_text()
        assert "secret literal" not in page.content()


def test_every_filter_leaves_what_it_says(scene: Scene, page_at: Open):
    bad = scene.enqueue("broken", "mail", payload={"says": "for the filter"}, max_attempts=1)
    scene.wait_state(bad, "discarded")
    page = page_at(scene.url + "events")
    until(lambda: scene.sql("select 1 from leasework.event where kind = 'job_discarded'"), 60)
    page.select_option("#level", "error")
    page.click("form.filter button")
    page.wait_for_url("**/events?kind=&level=error")
    page.wait_for_selector("main .level.error")
    assert page.locator("main .level:not(.error)").count() == 0
    page.select_option("#kind", "job_discarded")
    page.click("form.filter button")
    page.wait_for_selector("main .level.error")
    shown = set(page.locator("main td .level").all_inner_texts())
    assert shown == {"job_discarded"}
    page.goto(scene.url + "jobs")
    page.click(".chips a:has-text('discarded')")
    page.wait_for_url("**/jobs?q=state%3Adiscarded")
    page.wait_for_selector(f'a.row[href$="{bad}"]')
    assert page.locator("main tbody .state:not(.discarded)").count() == 0
    page.goto(scene.url + "leaders")
    page.click(".chips a:text-is('7d')")
    page.wait_for_selector(".chips a[aria-current]:text-is('7d')")
    page.goto(scene.url + "deadlines")
    page.click(".chips a:text-is('breached')")
    page.wait_for_selector(".chips a[aria-current]:text-is('breached')")


def test_a_login_with_a_token_and_a_name(scene: Scene, page_at: Open):
    url = scene.web(LEASEWORK_WEB_TOKEN=TOKEN)
    page = page_at(url + "jobs")
    page.wait_for_url("**/login")
    assert_accessible(page, "login")
    page.fill("#name", "Ada")
    page.fill("#secret", TOKEN)
    page.click("button:has-text('Log in')")
    page.wait_for_selector("nav >> text=Schedules")
    job = scene.enqueue("send", "parked", payload={"user_id": 1})
    page.goto(f"{url}jobs/{job}")
    page.click("button:has-text('Cancel')")
    page.wait_for_selector("text=Job cancelled")
    found = scene.sql(
        "select fields ->> 'act' from leasework.events where fields ->> 'who' = %s", "Ada"
    )
    assert found == [("cancel",)]
    page.click("text=Log out")
    page.wait_for_url("**/login")
    page.goto(url + "now")
    page.wait_for_url("**/login")


def test_an_open_page_shows_that_its_session_has_ended(scene: Scene, browser: Any):
    context = browser.new_context()  # its console may complain of refusals
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(scene.web(LEASEWORK_WEB_TOKEN=TOKEN))
    page.fill("#name", "Ada")
    page.fill("#secret", TOKEN)
    page.click("button:has-text('Log in')")
    page.wait_for_selector(".link.on")
    page.keyboard.press("p")  # somebody reads it: it must not go away
    page.wait_for_selector("text=paused")
    context.clear_cookies()
    page.wait_for_selector("text=logged out")
    page.wait_for_selector(".outdated .verdict", state="hidden")
    page.keyboard.press("p")
    page.wait_for_url("**/login")
    context.close()


def test_a_read_only_dashboard_shows_no_buttons(scene: Scene, page_at: Open):
    job = scene.enqueue("send", "parked", payload={"user_id": 1})
    url = scene.web("--read-only")
    page = page_at(f"{url}jobs/{job}")
    assert page.locator("main button").count() == 0
    page.goto(url + "schedules")
    assert page.locator("main button").all_inner_texts() == ["Filter"]
    page.goto(url + "nodes")
    assert page.locator("main table").count() == 1 and page.locator("main button").count() == 0
    page.goto(url + "jobs?q=queue:parked")
    assert page.locator(".bulk").count() == 0
    assert page.locator("text=read-only").count() == 1


@pytest.mark.parametrize("lost", ["database", "dashboard"])
def test_an_open_page_stops_to_say_that_all_is_well(scene: Scene, browser: Any, lost: str):
    context = browser.new_context()  # its console may complain of what does not answer
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    with Relay(scene.dsn) as relay:
        page.goto(scene.web(LEASEWORK_DSN=relay.dsn))
        page.wait_for_selector(".link.on")
        assert page.locator(".verdict").is_visible()
        if lost == "dashboard":
            scene.procs.all[-1].kill(signal.SIGKILL)
            page.wait_for_selector("text=disconnected")
    page.wait_for_selector(".outdated .verdict", state="hidden")
    context.close()


def test_a_form_of_another_site_and_one_with_a_wrong_token_are_refused(scene: Scene, browser: Any):
    job = scene.enqueue("send", "parked", payload={"user_id": 1})
    act = f"{scene.url}jobs/{job}/act"
    context = browser.new_context()  # its console may complain of refusals
    page = context.new_page()
    page.goto(f"{scene.url}jobs/{job}")
    token = page.locator("input[name='form_token'] >> nth=0").get_attribute("value")
    other = context.new_page()
    other.set_content(
        f'<form method="post" action="{act}"><input name="act" value="cancel">'
        f'<input name="form_token" value="{token}"><button>Win a prize</button></form>'
    )
    other.click("button")
    other.wait_for_selector("text=This request came from another site")
    assert scene.state(job) == "available", "also with a token that is right"
    press = "document.querySelector('button[value=cancel]').click()"
    # in one go: a refresh of the page in between would bring the right token back
    page.evaluate(
        f"document.querySelectorAll('[name=form_token]').forEach(i => i.value = '0'); {press}"
    )
    page.wait_for_selector("text=The form belongs to another session")
    assert scene.state(job) == "available"
    page.goto(f"{scene.url}jobs/{job}")
    page.evaluate(press)
    page.wait_for_selector("text=Job cancelled")
    context.close()


def test_the_key_enter_in_a_reason_presses_no_button(scene: Scene, page_at: Open):
    job = scene.enqueue("later", "nowhere", run_in=3600)
    page = page_at(f"{scene.url}jobs/{job}")
    field = 'form.acts input[name="reason"]'
    page.fill(field, "a typo")
    page.press(field, "Enter")
    assert page.input_value(field) == "a typo" and scene.state(job) == "scheduled"
    page.click('button[value="cancel"]')
    page.wait_for_selector("text=Job cancelled")
    acted = scene.sql("select fields ->> 'reason' from leasework.event where kind = 'person_acted'")
    assert ("a typo",) in acted
