"""What log lines look like, as text and as JSON, and what they are about."""

from __future__ import annotations

import io
import json
import logging
import sys
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outbox_api import AccessDenied, DriverError
from outbox_core.cli.logs import JsonLines, Redacting, configure_logging, time_of
from outbox_core.cli.run import log_event
from outbox_core.control.protocol import Report, decode, encode
from outbox_core.engines.tasks import Messages
from outbox_core.events import LeaderAcquired, LeaderRefreshed
from outbox_core.leadership.leader import Leadership
from outbox_core.settings.logs import LogFormat, LogLevel
from outbox_core.text.log_context import HarvesterFilter, log_about, log_as
from outbox_core.text.printable import printable
from outbox_core.text.redaction import redact


@pytest.fixture
def lines(monkeypatch):
    """Logs as JSON; returns a function that returns the lines."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logging(LogLevel.DEBUG, "one", LogFormat.JSON)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    root.handlers[:] = before
    root.setLevel(level)


def fail(why):
    raise ValueError(why)


def test_a_json_line_has_stable_fields(lines):
    log = logging.getLogger("outbox.x")
    with log_as("one/orders", outbox="orders"), log_about(lane=0, token=7):
        log.warning("%s failed: %s", "mark", DriverError("refused", retryable=True))
    log.info("outside")
    first, second = lines()
    assert list(first) == ["time", "level", "logger", "message", "harvester", "outbox", "lane", "token",
                           "error", "error_type", "error_code"]  # fmt: skip
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "WARNING",
        "logger": "outbox.x",
        "message": "mark failed: refused",
        "harvester": "one/orders",
        "outbox": "orders",
        "lane": 0,
        "token": 7,
        "error": "refused",
        "error_type": "DriverError",
        "error_code": "OUTBOX-UNREACHABLE",
    }
    assert list(second) == ["time", "level", "logger", "message", "harvester"]


def test_a_traceback_is_one_field_without_secrets(lines):
    try:
        fail("password=hunter2 is\nwrong")
    except ValueError:
        logging.getLogger("a").exception("defect, dsn postgres://me:hunter2@db/x")
    (line,) = lines()
    assert "Traceback" in line["traceback"]
    assert line["error_type"] == "ValueError"
    assert "error_code" not in line
    assert "hunter2" not in json.dumps(line)
    assert "\n" in line["traceback"]


def test_events_have_names_and_tokens(lines):
    id_ = UUID(int=5)
    log_event(LeaderAcquired(id_, 9))
    log_event(LeaderRefreshed(id_, 0))
    acquired, refreshed = lines()
    assert (acquired["event"], acquired["token"]) == ("LeaderAcquired", 9)
    assert (refreshed["event"], refreshed["lane"]) == ("LeaderRefreshed", 0)
    assert "token" not in refreshed


@given(st.text(st.characters(exclude_categories=())))
def test_any_content_is_one_line_of_valid_json(text):
    record = logging.LogRecord(text, logging.INFO, "", 0, "%s", (text,), None)
    record.__dict__.update(outbox=text, error=text)
    line = JsonLines(lambda text: text, time_of).format(record)
    assert line.isascii()
    assert "\n" not in line
    read = json.loads(line)
    assert read["message"] == text.encode("utf-8", "replace").decode()
    read["message"].encode()  # no half surrogate is left


@given(st.text())
def test_json_redacts_what_text_redacts(text):
    text = f"password={text.replace(chr(92), '')} connected"
    record = logging.LogRecord("a", logging.INFO, "", 0, "%s", (text,), None)
    message = json.loads(JsonLines(redact, time_of).format(record))["message"]
    assert Redacting("%(message)s").format(record) == printable(message)


def test_lines_say_how_many_like_them_were_left_out(lines):
    log = logging.getLogger("a")
    handler = logging.getLogger().handlers[0]
    clock = SimpleNamespace(now=0.0)
    (repetitions,) = [each for each in handler.filters if hasattr(each, "tell_ends")]
    repetitions._clock = lambda: clock.now  # type: ignore[union-attr]
    for number in range(31):
        clock.now = number / 2
        log.warning("refused")
    assert lines()[-1]["left_out"] == 25
    handler.setFormatter(Redacting("%(message)s"))
    record = logging.LogRecord("a", logging.INFO, "", 0, "refused", (), None)
    record.left_out = 2500
    assert handler.format(record) == "refused (2,500 more such lines were left out)"


def test_a_line_of_text_ends_with_the_code_of_its_error():
    record = logging.LogRecord(
        "a", logging.WARNING, "", 0, "no mark: %s", (AccessDenied("password=x"),), None
    )
    HarvesterFilter().filter(record)
    assert Redacting("%(message)s").format(record) == "no mark: password=*** [OUTBOX-DENIED]"


def test_lines_of_a_worker_reach_the_leaders_log_with_what_they_are_about(lines):
    worker = logging.getLogger("outbox.lanes")
    messages = Messages()
    worker.addHandler(messages)
    worker.propagate = False
    try:
        with log_about(lane=3, token=7):
            worker.warning("lane %d restarts: %s", 3, DriverError("refused \ud800", retryable=True))
            try:
                fail("broken")
            except ValueError:
                worker.exception("lane %d has a defect", 3)
    finally:
        worker.removeHandler(messages)
        worker.propagate = True
    report = decode(Report, encode(Report(7, 1, "a", {}, messages=messages.take())))
    with log_as("one", outbox="orders"):
        Leadership(7, lambda: 1.0).exchange(report)
    first, second = lines()
    assert first["message"] == "group 1: lane 3 restarts: refused ?"
    assert (first["logger"], first["outbox"]) == ("outbox.lanes", "orders")
    assert (first["lane"], first["token"], first["error"]) == (3, 7, "refused ?")
    assert second["traceback"].startswith("Traceback")
    assert second["traceback"].endswith("ValueError: broken")


def test_a_workers_report_cannot_change_what_a_log_record_is(lines):
    line = {"level": 30, "logger": "a", "text": "t", "about": {"levelname": "FAKE", "msg": "fake", "lane": 1}}
    text = json.dumps({"token": 7, "group": 1, "incarnation": "a", "metrics_by_lane": {}, "messages": [line]})
    Leadership(7, lambda: 1.0).exchange(decode(Report, text.encode()))
    (told,) = lines()
    assert (told["level"], told["message"], told["lane"]) == ("WARNING", "group 1: t", 1)
