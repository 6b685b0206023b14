"""Fixtures of a shop and its harvesters; adds logs to failed tests, and prints measurements."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from outbox_servers.services import Kafka

from .harvesters import STARTED, Fleet, Measure
from .shop import OpenShop, Shop
from .switchboard import Switchboard

_MEASURED = "measured"


@pytest.fixture
def open_shop(postgres_dsn: str, topic: str) -> OpenShop:
    """Opens a shop in a new database, on a broker of the test or of the session."""

    def open_shop(kafka: Kafka, largest_message: int | None = None) -> Shop:
        shop = Shop(postgres_dsn, kafka, topic)
        shop.open(largest_message)
        return shop

    return open_shop


@pytest.fixture
def shop(open_shop: OpenShop, kafka_broker: Kafka) -> Shop:
    """A shop on the servers of the session."""
    return open_shop(kafka_broker)


@pytest.fixture(scope="session")
def switchboard() -> Iterator[Switchboard]:
    """A broker of this process, behind a proxy."""
    board = Switchboard()
    with contextlib.closing(board.proxy), board.kafka:
        yield board


@pytest.fixture
def fleet(tmp_path: Path, shop: Shop) -> Iterator[Fleet]:
    """Harvesters of the shop's outbox."""
    fleet = Fleet(tmp_path, shop)
    yield fleet
    fleet.close()


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """Records a number, which is printed after all tests."""

    def note(what: str, number: float) -> None:
        shown = f"{number:8d}  " if isinstance(number, int) else f"{number:8.2f} s"
        request.node.user_properties.append((_MEASURED, f"{shown}  {what} ({request.node.name})"))

    return note


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Forgets the harvesters of earlier tests, but for those that still run, which this one may use."""
    STARTED[:] = [each for each in STARTED if each.running]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the end of every harvester's log, the last entry first, to the report of a failed test."""
    report = yield
    if report.failed:
        for each in STARTED:
            with contextlib.suppress(FileNotFoundError):  # its folder is gone
                report.sections.append((f"log of {each.name}, last entries first", each.newest_first()))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the measurements of all test processes."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    notes = [note for each in reports for name, note in each.user_properties if name == _MEASURED]
    if notes:
        terminalreporter.section("measured")
        for note in notes:
            terminalreporter.line(note)
