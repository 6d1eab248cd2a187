"""The pages with steps to follow, followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.steps import File, Shell, Step, environ, missing, steps_of, walk
from tests.support.wait import until

DOCS = Path(__file__).parents[2] / "docs"


def test_a_page_is_read_as_files_and_commands_with_what_they_print(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        '```python title="a.py"\nx = 1\n```\n```console\n$ one\n> more\nout …\n\n$ two\n```\n'
    )
    file, one, two = steps_of(page)
    assert file == File("a.py", "x = 1\n")
    assert one == Step("one\nmore", ["out …"]) and two == Step("two")


def test_what_a_page_says_must_come_in_its_order():
    assert missing("a 1\nb 2\n", ["a …", "b 2"]) is None
    assert missing("b 2\na 1\n", ["a …", "b 2"]) == "b 2"
    assert missing("a\n", ["a …x"]) == "a …x"
    assert missing("a 13 at 09:30:13\n", ["a … 3 …"]) and not missing("a 3 at\n", ["a … 3 …"])


@pytest.mark.timeout(600)
def test_the_tutorial_goes_as_it_says(migrated, tmp_path):
    assert walk(DOCS / "tutorial" / "first-ten-minutes.md", tmp_path, environ(migrated)) > 12


@pytest.mark.timeout(600)
def test_the_tutorial_of_an_order_goes_as_it_says(migrated, tmp_path):
    assert walk(DOCS / "tutorial" / "order.md", tmp_path, environ(migrated)) > 12


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("page", "steps"),
    [
        ("index.md", 3),
        ("howto/jobs.md", 3),
        ("howto/from-celery.md", 4),
        ("howto/from-apscheduler.md", 7),
        ("howto/from-procrastinate-or-rq.md", 6),
    ],
)
def test_what_a_page_shows_to_begin_with_goes_as_it_says(page, steps, migrated, tmp_path):
    assert walk(DOCS / page, tmp_path, environ(migrated)) == steps


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("page", "commands"), [("flask.md", 16), ("fastapi.md", 20)])
def test_the_page_of_a_web_framework_goes_as_it_says(migrated, tmp_path, page, commands):
    """On a socket of its own instead of port 8000."""
    socket = tmp_path / "web.sock"
    (tmp_path / ".curlrc").write_text(f'unix-socket = "{socket}"\n')
    servers = {"GUNICORN_CMD_ARGS": f"--bind unix:{socket}", "UVICORN_UDS": str(socket)}
    tests = {"LEASEWORK_TEST_DSN": migrated}
    here = {**environ(migrated), **servers, **tests, "CURL_HOME": str(tmp_path)}
    assert walk(DOCS / "howto" / page, tmp_path, here) == commands


@pytest.mark.timeout(300)
def test_the_recipe_for_tests_of_applications_goes_as_it_says(migrated, tmp_path):
    here = {**environ(migrated), "LEASEWORK_TEST_DSN": migrated}
    assert walk(DOCS / "howto" / "testing.md", tmp_path, here) == 6


@pytest.mark.timeout(300)
def test_the_readme_goes_as_it_says(migrated, tmp_path):
    """Without the installation, and on a socket of its own instead of port 8000."""
    shell = Shell(tmp_path, {**environ(migrated), "GUNICORN_CMD_ARGS": "--bind unix:web.sock"})
    try:
        for step in steps_of(DOCS.parent / "README.md"):
            if isinstance(step, File):
                (tmp_path / step.name).write_text(step.text, "utf-8")
            elif "gunicorn -w 4" in step.command:
                shell.run(f"{step.command.partition('#')[0]} > web.log 2>&1 &")
            elif step.command.startswith(("echo ", "leasework ")):
                fine = f"{step.command} && echo fine"
                until(lambda fine=fine: "fine\n" in shell.run(fine), 60)
        ask = "curl -s --retry 9 --retry-all-errors --unix-socket web.sock"
        [job] = json.loads(shell.run(f"{ask} -X POST http://web/users/42 | sed 's/.*/[&]/'"))
        until(lambda: "completed" in shell.run(f"leasework jobs show {job}"), 60)
    finally:
        shell.close()
