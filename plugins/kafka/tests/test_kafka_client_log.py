"""What reaches the log, and at which level."""

from __future__ import annotations

import logging

import pytest
from outbox_kafka.client import clients
from outbox_kafka.client.clients import ClientLog

TEMPLATE = "%s %s %s"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of other tests may still log, which look for brokers that are gone."""
    monkeypatch.setattr(clients, "LOGGER", logging.getLogger("outbox.kafka.alone"))


def test_a_line_that_repeats_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "outbox.kafka")
    log = ClientLog()
    for _ in range(2):
        log.log(logging.ERROR, TEMPLATE, "FAIL", "client", "connection refused")
        log.warn_once("all brokers are down")
    assert [record.levelno for record in caplog.records] == [
        logging.WARNING,
        logging.WARNING,
        logging.DEBUG,
        logging.DEBUG,
    ]


@pytest.mark.parametrize(
    ("facility", "level"),
    [
        ("CONFWARN", logging.DEBUG),
        ("GETPID", logging.INFO),
        ("TXNERR", logging.DEBUG),
        ("OTHER", logging.ERROR),
    ],
)
def test_level_follows_the_facility(caplog: pytest.LogCaptureFixture, facility: str, level: int) -> None:
    caplog.set_level(logging.DEBUG, "outbox.kafka")
    ClientLog().log(logging.ERROR, TEMPLATE, facility, "client", "line")
    assert [record.levelno for record in caplog.records] == [level]
