"""What end-to-end tests of an application use: a harvester of its outbox in the test's own process.

pytest finds the fixture by itself; ``outbox_database`` is that of :mod:`outbox_api.application.fixtures`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from threading import Condition
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outbox_api import Dialect, Finding, MarkedRecord, Record

    from outbox_core.harvest import Harvest

# ruff: noqa: PLC0415 - every run of pytest loads this module

SECONDS = 10.0
"""For how long a test waits for a record."""
REST_SECONDS = 60.0
"""For how long the end of a test waits for the rest."""

NAME = "outbox_running"
"""What the fence says of who harvests."""

SHOWN = 5
"""How many records from before a test are named."""

_PAUSE = 0.05


class MemoryPublisher:
    """A publisher, and its only sender: keeps what is sent in memory."""

    def __init__(self) -> None:
        self.kept: list[Record] = []
        self.changed = Condition()
        self._sent: list[MarkedRecord] = []

    def open(self, lane: str) -> MemoryPublisher:
        """Returns itself: there is one lane."""
        del lane
        return self

    def prepare(self, topics: Sequence[str], partitions: int) -> Sequence[str]:
        """Creates nothing: there is every topic."""
        del topics, partitions
        return ()

    def check(self, *, transactional: bool) -> Sequence[Finding]:
        """Finds nothing."""
        del transactional
        return ()

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Keeps records."""
        from outbox_api import Record

        self._sent += records
        with self.changed:
            self.kept += [Record(each.topic, each.key, each.value, tuple(each.headers)) for each in records]
            self.changed.notify_all()

    def poll(self, timeout: float) -> Any:
        """Reports everything as delivered."""
        from outbox_api import Deliveries

        del timeout
        sent, self._sent = self._sent, []
        return Deliveries(delivered=sent)

    def close(self, timeout: float) -> Any:
        """Reports what was not reported yet."""
        return self.poll(timeout)


class OutboxRunning:
    """A harvester that runs, and what it has sent; made by :func:`running`."""

    def __init__(self, harvest: Harvest, publisher: MemoryPublisher) -> None:
        self._harvest = harvest
        self._publisher = publisher

    def wait_for(
        self, topic: str | None = None, key: str | None = None, *, timeout: float = SECONDS
    ) -> Record:
        """Waits for a record, and returns it as it was sent. Returns each record once, in the order sent.

        Args:
            topic: Of this topic only.
            key: With this key only.
            timeout: Seconds to wait.

        Raises:
            AssertionError: None was sent in time; the message lists what else was.
            Exception: What has ended the harvester.
        """
        from outbox_api.application.testing import listed, wanted

        __tracebackhide__ = True
        end = monotonic() + timeout
        kept, changed = self._publisher.kept, self._publisher.changed
        with changed:
            while True:
                for place, each in enumerate(kept):
                    if topic in {None, each.topic} and key in {None, each.key}:
                        return kept.pop(place)
                self._harvest.wait(0)
                if monotonic() > end:
                    raise AssertionError(
                        f"no record{wanted(topic, key)} was sent within {timeout:g} s; "
                        f"not yet waited for: {listed(kept)}"
                    )
                changed.wait(_PAUSE)


@contextmanager
def running(database: Any, table: str = "outbox") -> Iterator[OutboxRunning]:
    """Runs a harvester of an outbox, and ends it once it has sent all that is committed.

    What it sends no broker gets, so the outbox must be the tests' own.

    Args:
        database: A dialect's driver name and the data source, or a SQLAlchemy engine with them in its URL.
            Missing tables are created.
        table: The outbox.

    Raises:
        AssertionError: Somebody else has harvested the outbox, or it has records already; nothing was taken.
            Or at the end a key is parked, or records are left.
    """
    from outbox_api import Seam, find
    from outbox_api.application.testing import place

    from outbox_core.builtin import NoOptions
    from outbox_core.harvest import Harvest
    from outbox_core.settings import Choice, Failures, HarvestSettings

    class Made(Choice[MemoryPublisher]):
        """The publisher of this process."""

        def create(self) -> MemoryPublisher:
            """Returns the one that there is."""
            return publisher

    __tracebackhide__ = True  # pytest would print the data source, which may have a password
    driver, data_source = place(database)
    publisher, none = MemoryPublisher(), NoOptions()
    options = find(Seam.DIALECT, driver).options(data_source=data_source, table=table)
    settings = HarvestSettings(
        name=NAME,
        outbox=table,
        dialect=Choice(Seam.DIALECT, driver, options),
        elector=Choice(Seam.ELECTOR, "static", none),
        affinity=Choice(Seam.AFFINITY, "none", none),
        publisher=Made(Seam.PUBLISHER, "memory", none),
        engine=Choice(Seam.ENGINE, "inline", none),
        failures=Failures(park_after=1, stop_after=0.0),
    )
    dialect = settings.dialect.create()
    dialect.create()
    _require_tests_own(dialect, (driver, data_source))
    harvest = Harvest(settings)
    harvest.start()
    try:
        yield OutboxRunning(harvest, publisher)
        _wait_until_sent(harvest, dialect)
    finally:
        harvest.stop()
    _require_nothing_parked(dialect)


def _require_tests_own(dialect: Dialect, database: tuple[str, str]) -> None:
    __tracebackhide__ = True
    with closing(dialect.watch()) as view:
        name, records = view.name, view.backlog().records
        others = sorted({lane.holder for lane in view.lane_statuses()} - {NAME})
    if others:
        why = f"'{others[0]}' has harvested it"
        cure = "drop its tables after each test, they are created again"
    elif records:
        why = f"it has {records} records from before the test: {_first_of(database, name)}"
        cure = "empty the outbox after each test"
    else:
        return
    raise AssertionError(
        f"the outbox {name} is not this test's own: {why}; what outbox_running sends reaches no broker. "
        f"Let outbox_database return an empty database, or {cure}"
    )


def _first_of(database: tuple[str, str], name: str) -> str:
    from outbox_api.application.testing import Stashed, listed

    found = list(islice(Stashed(database, name, earlier=True), SHOWN + 1))
    return listed(found[:SHOWN]) + (", …" if found[SHOWN:] else "")


def _wait_until_sent(harvest: Harvest, dialect: Dialect) -> None:
    end = monotonic() + REST_SECONDS
    with closing(dialect.watch()) as view:
        while (backlog := view.backlog()).oldest is not None and not harvest.wait(0):
            if monotonic() > end:
                raise AssertionError(
                    f"{backlog.records} records are left in the outbox after {REST_SECONDS:g} s"
                )
            sleep(_PAUSE)


def _require_nothing_parked(dialect: Dialect) -> None:
    from outbox_api import DeadLetterStatus

    with closing(dialect.dead_letters(read_only=True)) as letters:
        parked = letters.find(status=DeadLetterStatus.PARKED, whole=False)
    if parked:
        told = "; ".join(f"{each.record.topic} {each.record.key!r}: {each.reason}" for each in parked)
        raise AssertionError(f"keys are parked: {told}")


@pytest.fixture
def outbox_running(outbox_database: Any) -> Iterator[OutboxRunning]:
    """A harvester of the application's outbox that sends into memory; see :func:`running`."""
    __tracebackhide__ = True
    with running(outbox_database) as harvester:
        yield harvester
