"""Log lines: one an event, with stable names, in text or JSON, and no secrets in them."""

from __future__ import annotations

import io
import json
import logging
import re
import traceback
from collections.abc import Iterator

import psycopg
import pytest

from leasework.config import Settings
from leasework.errors import without_secrets
from leasework.jobs.attempt import describe
from leasework.telemetry import CATALOGUE, JsonFormatter, log, make_event

SECRET = "s3cr:et/P@ss"


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    found: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    handler, logger = Keep(), logging.getLogger("leasework")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


VALUES = [
    "plain",
    "two words",
    "line\nbreak",
    "cr\rx",
    "\x1b[31mred",
    "a=b",
    'q"q',
    "\u2028",
    "",
    "é",
]


@pytest.mark.parametrize("kind", CATALOGUE)
def test_each_event_is_one_line_with_its_name_level_and_fields(kind, lines):
    fields = {
        name: VALUES[i % len(VALUES)] for i, name in enumerate(CATALOGUE[kind].fields, len(kind))
    }
    log(make_event(kind, fields, 0.0), "host:1:abc")
    [record] = lines
    text = record.getMessage()
    assert text.startswith(f"{kind} worker=host:1:abc")
    assert text.isprintable(), "nothing that ends the line or writes to the terminal"
    assert re.findall(r' (\w+)=(?:"(?:[^"\\]|\\.)*"|[^ "]+)', text) == ["worker", *fields]
    assert record.levelname.lower() == CATALOGUE[kind].level
    line = json.loads(JsonFormatter().format(record))
    assert (line["event"], line["level"]) == (kind, CATALOGUE[kind].level)
    assert line["worker_id"] == "host:1:abc" and line["logger"] == "leasework"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert not fields.keys() & {"time", "level", "logger", "message", "event", "worker_id"}
    assert line.items() >= fields.items()


def test_json_is_one_line_also_with_a_traceback():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("shop")
    logger.addHandler(handler)
    try:
        raise LookupError(f"no way to postgresql://u:{SECRET}@db/x")
    except LookupError:
        logger.exception("two\nlines with password=%s", "hunter22")
    [text] = stream.getvalue().splitlines()
    line = json.loads(text)
    assert "Traceback" in line["traceback"] and "LookupError" in line["traceback"]
    for piece in (SECRET, "hunter22", "s3cr", "P@ss"):
        assert piece not in text


FORMS = [
    f"postgresql://user:{SECRET}@db:5432/shop",
    f"postgres+asyncpg://user:{SECRET}@db/shop?sslmode=require",
    "redis://:hunter22hunter22@cache:6379/0",
    f"host=db user=u password={SECRET} dbname=x",
    r"host=db password='it\'s hunter22' user=u",
    "PGPASSWORD=hunter22 psql",
    "postgresql://db/x?user=u&password=hunter22&sslmode=require",
    "connect(host='db', password='hunter22')",
    '{"user": "u", "password": "hunter 22"}',
    "{'api_key': 'hunter22', 'n': 1}",
    r"{\"client_secret\": \"hunter22\"}",
    "Authorization: Bearer hunter22",
    "AUTHOR\u0130ZATION: Bearer hunter22",
    "credent\u0131al=hunter22",
    "pa\u017f\u017fword=hunter22",
    "PASSPHRASE=hunter22",
    "Driver={ODBC Driver 18};Server=db;UID=u;PWD=hunter22;",
    "sslpassword=hunter22 x",
    "token=hunter22",
    "mysqldump --password hunter22 -u root",
    "tool --api-key 'hunter 22'",
    'invalid integer value "s3cr" for connection option "port"',
    'could not translate host name "P@ss@db" to address: Name or service not known',
    'missing "=" after "hunter22" in connection info string',
    'invalid URI query parameter: "hunter22"',
    'unexpected spaces found in "hunter22 x", use percent-encoded spaces (%20) instead',
    'invalid percent-encoded token: "%hunter22"',
    'unexpected character "x" at position 9 in URI (expected ":" or "/"): "postgresql://hunter22"',
]


@pytest.mark.parametrize("text", FORMS)
def test_no_form_of_a_secret_is_shown(text):
    shown = without_secrets(f"it failed: {text} (twice)")
    for piece in (SECRET, "s3cr", "P@ss", "hunter", "22'"):
        assert piece not in shown, shown
    assert shown.startswith("it failed: ") and "•" in shown


@pytest.mark.parametrize(
    "text",
    [
        "ack_refused worker=a token=7 outcome=completed",
        'relation "shop.order" does not exist at line 3',
        "KeyError: 'token'",
        "leasework limits set vendor --key customer",
        "see https://example.org/a:b/c and mail ada@example.org",
        'password authentication failed for user "ada"',
        "postgresql://ada@db:5432/shop",
        'could not translate host name "db.example" to address',
    ],
)
def test_what_is_no_secret_stays(text):
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://u:{SECRET}@localhost/x",
        "postgresql://u:hunter22 x@localhost:1/x",
        "host=localhost port=1 hunter22",
        "postgresql://u@localhost/x?hunter22",
        "host=/nowhere password=hunter22 port=s3cr",
    ],
)
def test_what_psycopg_says_of_a_dsn_holds_no_piece_of_its_password(dsn: str):
    with pytest.raises((psycopg.Error, UnicodeError)) as caught:
        psycopg.connect(dsn, connect_timeout=2)
    told = str(describe(caught.value, 8000))
    for piece in (SECRET, "s3cr", "P@ss", "hunter"):
        # the traceback shows lines of this file, which hold none
        assert piece not in told, told


def test_events_hold_no_secrets_and_the_error_that_is_kept_neither():
    error = f"OperationalError: connection to postgresql://u:{SECRET}@db failed"
    event = make_event("job_failed", {"error": error, "job": "j"}, 0.0)
    assert SECRET not in str(event.fields) and "OperationalError" in str(event.fields)
    try:
        raise ConnectionError(error)
    except ConnectionError as raised:
        assert SECRET in traceback.format_exc()
        assert SECRET not in str(describe(raised, 8000))


def test_a_text_cut_in_the_middle_of_a_secret_shows_none_of_it():
    for length in range(7900, 8020, 7):
        text = "x" * length + f" postgresql://u:{SECRET}@db/x"
        told = make_event("job_failed", {"error": text}, 0.0).fields["error"]
        assert "s3cr" not in told and len(told) <= 8000


def test_an_error_cut_in_the_middle_of_a_secret_shows_none_of_it():
    """An error keeps its beginning, and a traceback its end."""
    for length in range(880, 1010, 3):
        told = describe(ValueError(f"{'x' * length} postgresql://u:{SECRET}@db/x"), 8000)
        assert "s3cr" not in told.error and len(told.error) <= 1000
        told = describe(ValueError(f"password='hunter 22' {'x' * length}"), 1000)
        assert told.traceback and " 22" not in told.traceback and len(told.traceback) <= 1000


def test_settings_show_no_dsn():
    assert "hunter22" not in repr(Settings(dsn="postgresql://u:hunter22@db/x"))


def test_long_hostile_text_is_masked_in_no_time():
    for text in ("a://b:" * 4000, "password=" * 3000, '"' * 16000, "password='" + "\\" * 16000):
        without_secrets(text[:16000])  # the test's own time limit is the measure
