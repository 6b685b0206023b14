"""An outbox in partitions: a day goes once it is over and empty, and no row goes with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from random import Random
from threading import Event, Thread
from time import monotonic, sleep
from unittest import mock

import pytest
from outbox_api import Capability, ConfigError, DriverError, Level
from outbox_api.portable.days import DAY, Days
from outbox_api.portable.partitions import divided_outbox
from outbox_api.portable.session import Session
from outbox_api.portable.sources import quoted
from outbox_api.seams.kept import Tended

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.tending import tending, tending_at_once
from outbox_testkit.conformance.under_test import ALL, Box, texts

WRITERS = 3
STEPS = 14
STEP_SECONDS = 0.3


@dataclass
class Clock:
    """The database's clock, as far as its partitions go: it cannot be moved, so it is the days that pass."""

    now: datetime

    @property
    def today(self) -> date:
        """The present day."""
        return self.now.date()


class PartitionConformance(Conformance):
    """An outbox with partitions, where the database can have any; else one without."""

    @pytest.fixture
    def daily(self, bare: Box, stack: ExitStack, clock: Clock) -> Box:
        """The outbox under test, in partitions."""
        del clock  # is set before there is any
        if not bare.dialect.idiom.partitions:
            bare.dialect.create()
            return bare
        box = Box(replace(bare.under, options={**bare.under.options, "by_day": True}), stack)
        box.dialect.create()
        return box

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        """The clock, at noon."""
        clock = Clock(datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0))
        monkeypatch.setattr(Days, "now", lambda _self: clock.now)
        return clock

    def test_a_database_that_has_no_partitions_says_so(self, bare: Box, stack: ExitStack) -> None:
        if bare.dialect.idiom.partitions:
            return
        box = Box(replace(bare.under, options={**bare.under.options, "by_day": True}), stack)
        for call in (box.dialect.ddl, box.dialect.create):
            with pytest.raises(ConfigError, match="only PostgreSQL, MySQL and MariaDB"):
                call()

    def test_an_outbox_without_partitions_is_left_as_it_is(self, bare: Box, stack: ExitStack) -> None:
        bare.dialect.create()
        values = bare.fill(3)
        assert bare.connect().tend_days() == Tended()
        if bare.dialect.idiom.partitions:
            with pytest.raises(DriverError, match="has no partition for each day"):
                Box(
                    replace(bare.under, options={**bare.under.options, "by_day": True}), stack
                ).dialect.create()
        assert bare.survey() == values

    def test_a_day_goes_once_it_is_over_and_empty(self, daily: Box, clock: Clock) -> None:
        first, table = clock.today, daily.connect()
        values = daily_rows(daily, clock, 4)
        ahead = divided_outbox(daily.options.outbox).ahead
        assert has(daily, [first + number * DAY for number in range(ahead + 1)])
        clock.now += 2 * DAY
        assert table.tend_days() == Tended()
        assert has(daily, [first]), "it has rows"
        assert not there(daily, first + DAY), "it has none"
        hand = daily.lead()
        assert hand.purge(*hand.ids()[:-1]) == len(values) - 1
        assert table.tend_days() == Tended()
        assert has(daily, [first]), "it has a row"
        hand.remark()
        assert hand.purge(*hand.ids()) == 1
        assert table.tend_days() == Tended()
        assert not there(daily, first)
        assert has(daily, [clock.today + number * DAY for number in range(3)])

    def test_who_drops_a_day_looks_again(self, daily: Box, clock: Clock) -> None:
        """Whatever is committed after the look that needs no lock."""
        parts, first = daily.dialect.idiom.partitions, clock.today
        values = daily_rows(daily, clock, 2)
        clock.now += DAY
        if parts:
            with mock.patch.object(type(parts), "is_empty", return_value=True):
                assert daily.connect().tend_days() == Tended()
        assert has(daily, [first])
        assert daily.survey() == values

    @needs(Capability.CONCURRENT_WRITERS)
    def test_a_transaction_that_is_open_keeps_its_day(self, daily: Box, clock: Clock) -> None:
        day, table = clock.now, daily.connect()
        clock.now += DAY
        with writing(daily) as session:
            with session.transaction("write"):
                insert(session, daily, day, "k", "late")
                since = monotonic()
                assert table.tend_days() == Tended()
                assert monotonic() - since < 20, "it waits briefly, however loaded the machine is"
                assert has(daily, [day.date()])
            assert table.tend_days() == Tended()
            assert has(daily, [day.date()])
        hand = daily.lead()
        marked = hand.mark()
        assert texts(marked) == ["late"]
        hand.purge(*[each.id for each in marked])
        assert table.tend_days() == Tended()
        assert not there(daily, day.date())

    def test_rows_of_any_time_are_taken_and_keep_their_order(self, daily: Box, clock: Clock) -> None:
        with writing(daily) as session, session.transaction("write"):
            for number, days in enumerate([0, 400, -1, 2, 10_000, 0, -400, 1, -10_000, 3, 0]):
                insert(session, daily, clock.now + days * DAY, "k", f"v{number}")
        values = [f"v{number}" for number in range(11)]
        hand, table = daily.lead(), daily.connect()
        assert hand.values() == values
        assert table.tend_days() == Tended()
        hand.remark()
        ids = hand.ids()
        assert hand.reset(*ids) == len(values)
        hand.remark()
        assert hand.ids() == ids
        assert hand.purge(*ids[:4]) == 4
        lane = daily.lead()
        batch, rest = lane.batch()
        assert rest == values[4:]
        assert lane.batch(finished=[batch])[1] == []
        assert lane.purged == len(rest)
        assert table.tend_days() == Tended()
        assert daily.survey() == []

    def test_no_id_is_given_out_again_after_a_day_has_gone(self, daily: Box, clock: Clock) -> None:
        day, table = clock.now, daily.connect()
        daily_rows(daily, clock, 20)
        hand = daily.lead()
        last = max(ids := hand.ids())
        hand.purge(*ids)
        clock.now += DAY
        assert table.tend_days() == Tended()
        assert not there(daily, day.date())
        daily_rows(daily, clock, 1)
        assert min(daily.lead().ids()) > last

    @needs(Capability.CONCURRENT_DDL)
    def test_several_may_tend_days_at_once(self, daily: Box, clock: Clock) -> None:
        clock.now += 9 * DAY
        tables = [daily.connect() for _ in range(3)]
        found = tending_at_once([table.tend_days for table in tables])
        list(tending(tables[0].tend_days))
        assert [fault for each in found for fault in each.faults] == []
        assert has(daily, [clock.today + number * DAY for number in range(3)])
        assert not there(daily, clock.today - 6 * DAY)

    def test_check_says_which_partitions_are_missing(self, daily: Box, clock: Clock) -> None:
        judged = [each for each in daily.dialect.check() if each.subject in {"partitions", "primary key"}]
        assert {each.level for each in judged} <= {Level.OK}
        clock.now += 5 * DAY
        if daily.dialect.idiom.partitions:
            [found] = [each for each in daily.dialect.check() if each.subject == "partitions"]
            assert found.level is Level.WARNING
            assert "has no partition for" in found.message
        assert daily.dialect.create() == []
        assert has(daily, [clock.today])

    @needs(Capability.CONCURRENT_WRITERS)
    def test_days_end_under_load_and_none_is_lost(self, daily: Box, clock: Clock) -> None:
        """Writers keep inserting into the day that is just dropped, some with transactions that stay open."""
        load, start = Load(daily, clock), clock.today
        dropped = 0
        with load.running():
            for _ in range(STEPS):
                clock.now += DAY
                before = days_of(daily)
                until = monotonic() + STEP_SECONDS
                while monotonic() < until:
                    assert load.table.tend_days().faults == ()
                dropped += len(before - days_of(daily))
        load.drain()
        assert load.lost() == []
        assert list(tending(load.table.tend_days))[-1].faults == ()
        assert not [day for day in days_of(daily) if day < clock.today]
        if daily.dialect.idiom.partitions:
            assert dropped > STEPS // 2
            assert has(daily, [clock.today, clock.today + DAY])
        assert len(load.delivered) > STEPS
        assert clock.today - start == STEPS * DAY


@dataclass
class Load:
    """Writers and a harvester at one outbox; the writers' days are the present one and the one before it."""

    box: Box
    clock: Clock
    written: dict[str, list[str]] = field(default_factory=dict)
    delivered: list[tuple[str, str]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = self.box.connect()
        self._hand = self.box.lead()
        self._done = Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs while a block is executed."""
        threads = self._threads()
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._done.set()
            for thread in threads:
                thread.join()
        if self.errors:
            raise self.errors[0]

    def drain(self) -> None:
        """Delivers what is left."""
        while self._deliver():
            pass

    def lost(self) -> list[str]:
        """Returns keys whose committed records were not delivered once each, in order."""
        found: dict[str, list[str]] = {}
        for key, value in self.delivered:
            found.setdefault(key, []).append(value)
        keys = self.written.keys() | found.keys()
        return [key for key in keys if self.written.get(key, []) != found.get(key, [])]

    def _threads(self) -> list[Thread]:
        targets = [*(lambda key=f"w{number}": self._write(key) for number in range(WRITERS)), self._harvest]
        return [Thread(target=self._noting, args=(target,)) for target in targets]

    def _noting(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - is raised at the end
            self.errors.append(error)
            self._done.set()

    def _write(self, key: str) -> None:
        random, done, number = Random(key), self.written.setdefault(key, []), 0
        with writing(self.box) as session:
            while not self._done.is_set():
                values = [f"{key}-{number + each}" for each in range(random.randint(1, 3))]
                number += len(values)
                day = self.clock.now - random.choice([0, 1, 1, 1]) * DAY
                with suppress(_Undone, DriverError):
                    with session.transaction("write"):
                        for value in values:
                            insert(session, self.box, day, key, value)
                        sleep(random.choice([0, 0, 0.001, 0.03]))
                        if random.random() < 0.1:
                            raise _Undone
                    done += values
                sleep(random.choice([0, 0.002, 0.02]))

    def _harvest(self) -> None:
        while not self._done.is_set():
            if not self._deliver():
                sleep(0.001)

    def _deliver(self) -> int:
        marked = self._hand.mark(ALL)
        self.delivered += zip((each.key for each in marked), texts(marked), strict=True)
        if marked:
            purged = self._hand.purge(*[each.id for each in marked])
            assert purged == len(marked), f"{len(marked) - purged} of the rows that were marked are gone"
        return len(marked)


class _Undone(Exception):  # noqa: N818 - no error
    """A writer has thought better of it."""


def writing(box: Box) -> closing[Session]:
    """Opens a session that writes rows with any time."""
    return closing(box.dialect.session())


def insert(session: Session, box: Box, at: datetime, key: str, value: str) -> None:
    """Inserts a row that was created at a time, in the transaction."""
    columns = "create_time, kafka_topic, kafka_key, kafka_value"
    table = quoted(session.idiom, box.options.outbox)
    sql = f"INSERT INTO {table} ({columns}) VALUES ({{at}}, 'orders', {{key}}, {{value}})"
    session.execute(sql, at=session.idiom.time_parameter(at), key=key, value=value)


def daily_rows(box: Box, clock: Clock, count: int) -> list[str]:
    """Inserts rows of the present day; returns their values."""
    values = [f"v{number}" for number in range(count)]
    with writing(box) as session, session.transaction("write"):
        for value in values:
            insert(session, box, clock.now, "k", value)
    return values


def days_of(box: Box) -> set[date]:
    """Returns the days that have a partition."""
    with writing(box) as session:
        return set(Days(session, divided_outbox(box.dialect.names(session).outbox)).found() or ())


def has(box: Box, days: Collection[date]) -> bool:
    """Whether days have a partition, where the database has any."""
    return not box.dialect.idiom.partitions or set(days) <= days_of(box)


def there(box: Box, day: date) -> bool:
    """Whether a day has a partition."""
    return day in days_of(box)
