"""What reaches the log, and at which level."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from outbox_kafka.client.clients import ClientLog

TEMPLATE = "%s %s %s"

Levels = Callable[[str], list[int]]


@pytest.fixture
def levels(caplog: pytest.LogCaptureFixture) -> Levels:
    """The levels of lines with a text: clients of other tests may still log, whose brokers are gone."""
    caplog.set_level(logging.DEBUG, "outbox.kafka")
    return lambda text: [record.levelno for record in caplog.records if text in record.message]


def test_a_line_that_repeats_is_a_warning_once(levels: Levels) -> None:
    log = ClientLog()
    for _ in range(2):
        log.log(logging.ERROR, TEMPLATE, "FAIL", "client", "refused by a test")
        log.warn_once("a test's brokers are down")
    assert levels("refused by a test") == [logging.WARNING, logging.DEBUG]
    assert levels("a test's brokers") == [logging.WARNING, logging.DEBUG]


@pytest.mark.parametrize(
    ("facility", "level"),
    [
        ("CONFWARN", logging.DEBUG),
        ("GETPID", logging.INFO),
        ("TXNERR", logging.DEBUG),
        ("OTHER", logging.ERROR),
    ],
)
def test_level_follows_the_facility(levels: Levels, facility: str, level: int) -> None:
    ClientLog().log(logging.ERROR, TEMPLATE, facility, "client", "line of a test")
    assert levels("line of a test") == [level]
