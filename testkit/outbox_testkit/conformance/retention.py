"""Kept records go once their time has come, none before it, whatever clocks, partitions and leaders do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from random import Random

import pytest
from outbox_api import Action, Capability, DriverError, Level, OutboxTable, Record
from outbox_api.portable.days import DAY, Days
from outbox_api.portable.keeping import Keep
from outbox_api.portable.partitions import Divided, divided_kept
from outbox_api.portable.session import Session
from outbox_api.portable.sources import quoted
from outbox_api.seams.kept import Chosen, Tended

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.tending import tending, tending_at_once
from outbox_testkit.conformance.under_test import ALL, Box, plain

KEPT_DAYS = 10
"""For how many days records are kept."""

SUBJECT = "table of kept records"

Keeping = Callable[[], Box]


class RetentionConformance(Conformance):
    """How long the option ``keep`` keeps."""

    @pytest.fixture
    def unmade(self, bare: Box, stack: ExitStack) -> Box:
        """The outbox under test with kept records, without its tables."""
        keep = Keep(for_=KEPT_DAYS * DAY.total_seconds())
        return Box(replace(bare.under, options={**bare.under.options, "keep": keep}), stack)

    @pytest.fixture
    def retaining(self, unmade: Box) -> Box:
        """The outbox under test with kept records."""
        unmade.dialect.create()
        return unmade

    def test_what_is_old_goes_and_all_else_stays(self, retaining: Box) -> None:
        now = retaining.watch().now()
        young = [now - age * DAY for age in (0, 1, 5.5, 9.9)]
        keep(retaining, *young, *(now - age * DAY for age in (11.1, 12, 40, 400)))
        table = retaining.connect()
        tend(table)
        assert times(retaining) == rounded(young)
        assert table.tend_kept(1000) == Tended()

    def test_a_call_deletes_no_more_than_it_may(self, retaining: Box) -> None:
        long_ago = retaining.watch().now() - 400 * DAY
        keep(retaining, *(long_ago + number * timedelta(seconds=1) for number in range(25)))
        table = retaining.connect()
        calls = [table.tend_kept(10) for _ in range(3)]
        assert [(each.deleted, each.more) for each in calls] == [(10, True), (10, True), (5, False)]

    def test_what_is_purged_stays(self, retaining: Box) -> None:
        retaining.fill(5)
        hand = retaining.lead()
        assert hand.purge(*hand.ids()) == 5
        assert tend(hand.table) == 0
        assert len(times(retaining)) == 5

    def test_nothing_is_done_where_nothing_is_kept(self, box: Box) -> None:
        assert box.connect().tend_kept(1) == Tended()

    @needs(Capability.CONCURRENT_DDL)
    def test_several_may_tend_at_once(self, retaining: Box) -> None:
        now = retaining.watch().now()
        keep(retaining, now, *(now - age * DAY for age in range(12, 20) for _ in range(50)))
        without_partitions(retaining)
        tables = [retaining.connect() for _ in range(3)]
        found = tending_at_once([partial(table.tend_kept, 1000) for table in tables])
        tend(tables[0])
        assert [each for tended in found for each in tended.faults if "more than a day ago" not in each] == []
        assert times(retaining) == rounded([now])
        assert ahead(retaining)

    def test_init_makes_partitions_ahead(self, retaining: Box) -> None:
        assert ahead(retaining)
        without_partitions(retaining)
        assert retaining.dialect.create() == []
        assert ahead(retaining)

    def test_a_table_in_use_gets_kept_records(self, bare: Box, unmade: Box) -> None:
        bare.dialect.create()
        bare.fill(10)
        former = bare.lead()
        ids = former.ids()
        assert former.purge(*ids[:3]) == 3
        with pytest.raises(DriverError, match="outbox init") as refused:
            unmade.connect()
        assert not refused.value.retryable
        assert unmade.dialect.migrations()
        assert any("_kept" in statement.lower() for statement in unmade.dialect.migrate())
        assert unmade.dialect.migrate() == []
        assert former.purge(*ids[3:5]) == 2
        assert times(unmade) == []
        later = unmade.lead()
        assert later.purge(*later.ids()) == 5
        assert len(times(unmade)) == 5
        assert ahead(unmade)

    def test_check_says_what_is_wrong(self, unmade: Box, bare: Box) -> None:
        bare.dialect.create()
        assert findings(bare) == []
        assert [level for level, _ in findings(unmade)] == [Level.ERROR]
        unmade.dialect.create()
        assert [level for level, _ in findings(unmade)] == [Level.OK] * len(findings(unmade))
        keep(unmade, unmade.watch().now() - (KEPT_DAYS + 3) * DAY)
        assert any(
            "more than a day ago" in seen for level, seen in findings(unmade) if level is Level.WARNING
        )
        tend(unmade.connect())
        if without_partitions(unmade):
            assert any("no partition" in seen for seen in warnings(unmade))

    def test_a_key_is_erased_and_no_other(self, retaining: Box) -> None:
        texts, other = "key 'k1' (record 1)", "key 'k10' (record 2)"
        retaining.fill(30, keys=3)
        retaining.stash(Record("orders", "K1", "other"), Record("orders", "k1 ", "other"))
        hand = retaining.lead()
        assert hand.purge(*hand.ids()) == 32
        retaining.stash(plain("k1", "poison"), plain("k2", "waits"))
        head = retaining.park(retaining.lead(), "k1")["k1"]
        with closing(retaining.dialect.journal()) as journal:
            for subject in (texts, other):
                journal.end(journal.begin(Action("somebody", "cli", "skip", subject)), "done")
        with closing(retaining.dialect.erasing()) as erasing:
            assert erasing.live("k1") == (1, 1)
            assert retaining.dead_letters().skip([head]) == [head]
            assert erasing.live("k1") == (0, 0)
            assert [*erasing.erase_kept("k1", 6)] == [6, 4]
            assert [erasing.erase_skipped("k1", 6) for _ in range(2)] == [1, 0]
            assert sum(erasing.erase_quotes(lambda text: text.replace("'k1'", "a digest"))) == 1
            erasing.stash(Record("customers", "k1", None))
        found = retaining.kept().find(Chosen(), 0, ALL)
        assert {each.record.key for each in found} == {"k0", "k2", "K1", "k1 "}
        assert retaining.dead_letters().find() == []
        with closing(retaining.dialect.journal(read_only=True)) as journal:
            assert {each.action.subject for each in journal.entries()} == {"key a digest (record 1)", other}
        left = [(each.topic, each.key, each.value) for each in retaining.watch().peek(0, ALL)]
        assert left == [("orders", "k2", "waits"), ("customers", "k1", None)]

    def test_a_year(self, retaining: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        """A leader tends each day, but for a month; clocks jump; somebody removes partitions of days to come.

        The database's clock cannot be moved, so it is the days that pass in what it is asked.
        """
        start = retaining.watch().now().astimezone(UTC)
        now = start
        monkeypatch.setattr(Days, "now", lambda _self: now)
        table, random = retaining.connect(), Random(7)
        sent: list[datetime] = []
        for day in range(0, 366, 2):
            now = start + day * DAY
            jump = DAY * {100: 3, 102: -3, 200: 20}.get(day, 0)
            if 150 <= day < 180:
                continue
            if day % 90 == 0:
                without_partitions(retaining, now.date())
            new = [now - random.random() * DAY for _ in range(3)]
            keep(retaining, *new)
            sent += new
            now += jump
            tend(table)
            there, longest = times(retaining), KEPT_DAYS * DAY
            gone_early = [each for each in rounded(sent) if each > now - longest and each not in there]
            assert gone_early == []
            if jump <= timedelta(0):
                assert [each for each in there if each < now - longest - DAY] == []
            sent = [each for each in sent if each >= now - longest]


def tend(table: OutboxTable) -> int:
    """Tends what is kept until nothing is left to do; returns how many records were deleted one by one."""
    done = list(tending(partial(table.tend_kept, 1000)))
    assert done[-1].faults == ()
    return sum(each.deleted for each in done)


def keep(box: Box, *moments: datetime) -> None:
    """Writes records that look as though they had been delivered then."""
    columns = "delivered_at, token, key_hash, lacks, id, kafka_topic, kafka_key"
    with closing(box.dialect.session()) as session:
        idiom = session.idiom
        table = quoted(idiom, box.dialect.names(session).kept)
        insert = f"INSERT INTO {table} ({columns}) VALUES ({{at}}, 1, 1, 0, {{id}}, 'orders', 'k')"
        with session.transaction("keep records"):
            for number, moment in enumerate(moments):
                session.execute(insert, at=idiom.time_parameter(moment), id=number)


def times(box: Box) -> list[datetime]:
    """Returns when the records that are kept were delivered, in order."""
    with closing(box.dialect.session()) as session:
        table = quoted(session.idiom, box.dialect.names(session).kept)
        rows = session.query("look", f"SELECT delivered_at FROM {table}")
        return rounded([session.idiom.read_timestamp(row[0]) for row in rows])


def rounded(moments: Sequence[datetime]) -> list[datetime]:
    """Returns times as every database can hold them, in order."""
    return sorted(
        each.astimezone(UTC).replace(microsecond=each.microsecond // 1000 * 1000) for each in moments
    )


def divided(box: Box, session: Session) -> Divided:
    """Returns the table of kept records as it is divided."""
    return divided_kept(box.dialect.names(session).kept)


def partitions(box: Box, session: Session) -> set[date]:
    """Returns the days that have a partition."""
    parts = session.idiom.partitions
    return set((parts and parts.days(session, divided(box, session))) or ())


def today_of(session: Session) -> date:
    """Returns the database's day in UTC."""
    with session.transaction("ask for the time", reads=True):
        return session.now().astimezone(UTC).date()


def ahead(box: Box) -> bool:
    """Whether there are partitions for the days to come, where the database has any."""
    with closing(box.dialect.session()) as session:
        wanted = {today_of(session) + number * DAY for number in range(1, divided(box, session).ahead + 1)}
        return not session.idiom.partitions or wanted <= partitions(box, session)


def without_partitions(box: Box, today: date | None = None) -> bool:
    """Removes the partitions of the days after today; returns whether the database has any."""
    with closing(box.dialect.session()) as session:
        parts, table = session.idiom.partitions, divided(box, session)
        if not parts:
            return False
        for day in sorted(partitions(box, session)):
            if day > (today or today_of(session)):
                with session.transaction("remove a partition"):
                    for statement in parts.drop(table, day):
                        session.execute_ddl(statement)
        return True


def findings(box: Box) -> list[tuple[Level, str]]:
    """Returns what a check says of kept records."""
    return [(each.level, each.message) for each in box.dialect.check() if each.subject == SUBJECT]


def warnings(box: Box) -> list[str]:
    """Returns what a check warns of."""
    return [seen for level, seen in findings(box) if level is Level.WARNING]
