"""What the script does on pages with lists: updates that pause, selected rows, local times."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from tests.support.wait import until
from tests.web.conftest import PATIENCE, Open, Scene


def test_a_list_pauses_while_somebody_points_at_it(scene: Scene, page_at: Open):
    first = scene.enqueue("send", "pointed", run_in=3600)
    page = page_at(scene.url + "jobs?q=queue:pointed")
    page.wait_for_selector(".link.on")
    page.hover(f'a.row[href$="{first}"]')
    page.wait_for_selector(".link:text-is('paused: you point at the list')")
    second = scene.enqueue("send", "pointed", run_in=3600)
    with page.expect_response("**/live"):
        pass
    with page.expect_response("**/live"):
        pass
    assert page.locator(f'a.row[href$="{second}"]').count() == 0, "no row moves under the pointer"
    page.hover("h1")
    page.wait_for_selector(".link.on")
    page.wait_for_selector(f'a.row[href$="{second}"]')
    page.focus(f'a.row[href$="{first}"]')
    page.wait_for_selector(".link:text-is('paused: in use')")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_selector(".link.on")


def test_an_answer_that_comes_while_somebody_types_takes_nothing_away(scene: Scene, page_at: Open):
    scene.enqueue("send", "typed")
    page = page_at(scene.url + "queues")
    page.wait_for_selector(".link.on")
    asked: list[Any] = []
    page.route("**/queues", lambda route: asked.append(route))
    until(lambda: page.wait_for_timeout(50) or asked, 60, "the page to ask for its newest state")
    field = page.locator("main tr", has_text="typed").locator("[name=reason]")
    field.fill("the courier is late")
    with page.expect_response("**/queues"):
        asked[0].continue_()
    page.wait_for_function("!document.querySelector('.htmx-request')")
    assert field.input_value() == "the courier is late"


def test_rows_are_selected_and_acted_on(scene: Scene, page_at: Open):
    jobs = [scene.enqueue("send", "picked", run_in=3600) for _ in range(3)]
    page = page_at(scene.url + "jobs?q=queue:picked")
    assert not page.locator("#picked").is_visible()
    page.check(f'input[name="job:{jobs[0]}"]')
    page.wait_for_selector(".link:text-is('paused: rows are selected')")
    assert page.inner_text("#picks") == "1 selected:"
    page.check("#all")
    assert page.inner_text("#picks") == "3 selected:"
    page.uncheck(f'input[name="job:{jobs[2]}"]')
    assert page.inner_text("#picks") == "2 selected:" and not page.is_checked("#all")
    page.fill("#picked input[name=reason]", "the wrong list")
    page.click("#picked button:has-text('Discard')")
    page.wait_for_selector("text=2 jobs discarded.")
    assert [scene.state(job) for job in jobs] == ["discarded", "discarded", "scheduled"]
    assert page.locator("td.pick :checked").count() == 0


def test_times_are_local_with_utc_in_the_title(scene: Scene, browser: Any):
    job = scene.enqueue("send", "local", run_in=3600)
    [[made]] = scene.sql("select created_at from leasework.jobs where id = %s", job)
    there: datetime = made.astimezone(ZoneInfo("Asia/Seoul"))
    utc = f"{made.astimezone(ZoneInfo('UTC')):%Y-%m-%d %H:%M:%S} UTC"
    for zone, script in (("Asia/Seoul", True), ("UTC", True), ("Asia/Seoul", False)):
        context = browser.new_context(timezone_id=zone, java_script_enabled=script)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{scene.url}jobs/{job}")
        shown = page.locator(".timeline time").first
        if zone == "UTC" or not script:
            assert shown.text_content() == utc
            assert page.inner_text("#zone") == "Times in UTC"
        else:
            assert shown.text_content() == f"{there:%Y-%m-%d %H:%M:%S} GMT+9"
            assert shown.get_attribute("title") == utc
            assert page.inner_text("#zone") == "Times in GMT+9"
            due = page.locator(".facts time").first.get_attribute("title")
            assert due and "GMT+9 = " in due and due.endswith(" UTC")
            page.evaluate("document.getElementById('live').dataset.old = '1'")
            page.wait_for_selector("#live:not([data-old])")
            assert "GMT+9" in (shown.text_content() or ""), "also after an update"
            page.goto(scene.url + "leaders")
            mark = page.locator(".ruler time").first
            at = datetime.fromisoformat(mark.get_attribute("title") or "")
            assert mark.text_content() == f"{at.astimezone(ZoneInfo(zone)):%H:%M}"
            assert "GMT+9" in (page.locator("svg.terms title").first.text_content() or "")
        context.close()
