"""Where rows were written, and deliberate takeovers."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from time import monotonic, sleep

import pytest
from outbox_api import ColumnIs, ConfigError, DriverError, Level, Origin, Stasher, Takeover

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.clustered import (
    COLUMN,
    OTHER,
    OWN,
    THIRD,
    created,
    led,
    of,
    of_cluster,
    origin,
    until_found,
)
from outbox_testkit.conformance.under_test import Box, plain, texts


class OriginConformance(Conformance):
    """Where rows were written: the stasher, ``create``, ``check`` and ``origins``."""

    @pytest.fixture
    def clusters(self, bare: Box, stack: ExitStack) -> Box:
        """The outbox under test, in the second of three clusters."""
        return created(bare, stack, origin())

    def test_the_backlog_of_each_cluster_is_counted(self, clusters: Box) -> None:
        view = clusters.watch()
        assert view.origins() == []
        of_cluster(clusters, THIRD, "third")
        sleep(1.0)
        of_cluster(clusters, 77, *map(str, range(4)))
        of_cluster(clusters, OWN, *map(str, range(3)))
        clusters.lead().mark(5)
        began = monotonic()
        found = view.origins()
        took = monotonic() - began  # which may be between the moments at which two ages are looked at
        assert [(each.cluster, each.records, each.exact) for each in found] == [
            (OWN, 3, True),
            (THIRD, 1, True),
            (77, 4, True),
        ], "of whatever cluster, marked or not"
        own, third, orphans = (each.oldest for each in found)
        assert 0 <= own <= orphans + took + 1.0
        assert third + took + 0.1 >= orphans + 1.0
        assert third < 60
        assert view.backlog().records == 8

    def test_without_an_origin_there_are_none(self, box: Box) -> None:
        box.fill(3)
        assert box.watch().origins() == []

    def test_many_rows_of_a_cluster_are_not_counted_to_the_end(self, clusters: Box) -> None:
        of_cluster(clusters, OTHER, *map(str, range(10_001)))
        of_cluster(clusters, OWN, "own")
        other, own = clusters.watch().origins()
        assert (other.cluster, other.records, other.exact) == (OTHER, 10_000, False)
        assert (own.cluster, own.records, own.exact) == (OWN, 1, True)
        assert clusters.connect().backlog().records >= 10_001

    def test_a_stasher_writes_its_cluster_or_leaves_it_to_the_database(self, clusters: Box) -> None:
        for cluster in (OTHER, None, THIRD):
            stasher = Stasher(clusters.options.table, clusters.under.driver, cluster=cluster)
            application = clusters.application()
            stasher.stash_many(application, [plain("k", f"{cluster} {number}") for number in range(3)])
            stasher.prepare(application).stash(plain("k", f"{cluster} prepared"))
            application.commit()
        for cluster, written in ((OTHER, OTHER), (OWN, None), (THIRD, THIRD)):
            values = led(clusters, ColumnIs(COLUMN, cluster)).values()
            assert values == [f"{written} 0", f"{written} 1", f"{written} 2", f"{written} prepared"]

    def test_a_stasher_may_name_another_column(self, bare: Box, stack: ExitStack) -> None:
        clusters = created(bare, stack, Origin(column="origin", own=1, known=(1, 2)))
        application = clusters.application()
        stasher = Stasher(clusters.options.table, clusters.under.driver, cluster=2, cluster_column="origin")
        stasher.stash(application, plain(value="there"))
        application.commit()
        clusters.fill(1)
        assert led(clusters, ColumnIs("origin", 2)).values() == ["there"]
        assert led(clusters, ColumnIs("origin", 1)).values() == ["v1"]

    @pytest.mark.parametrize("cluster", [0, -1, 9_001])
    def test_a_stasher_refuses_what_is_no_cluster(self, bare: Box, cluster: int) -> None:
        with pytest.raises(ConfigError, match="cluster"):
            Stasher(bare.options.table, bare.under.driver, cluster=cluster)

    @pytest.mark.parametrize("existing", [OTHER, OWN])
    @pytest.mark.parametrize("arrival", ["", "arrived"])
    def test_an_existing_outbox_gets_the_columns(
        self, box: Box, stack: ExitStack, existing: int, arrival: str
    ) -> None:
        before = box.fill(5)
        marked = box.lead().ids(2)
        clusters = created(box, stack, origin(existing=existing, arrival=arrival))
        assert list(clusters.dialect.create()) == [], "again"
        after = [f"later {number}" for number in range(3)]
        clusters.stash(*(plain(value=value) for value in after))
        old = led(clusters, ColumnIs(COLUMN, existing)).mark()
        assert texts(old)[:5] == before
        assert [record.id for record in old][:2] == marked
        assert led(clusters, ColumnIs(COLUMN, OWN)).values()[-3:] == after
        assert [finding for finding in clusters.dialect.check() if finding.level is Level.ERROR] == []
        if arrival:
            aged_hand = led(clusters, ColumnIs(COLUMN, existing, 0.05, arrival))
            assert until_found(aged_hand.values)[:5] == before

    def test_the_table_of_another_cluster_is_not_harvested(self, clusters: Box, stack: ExitStack) -> None:
        """Two clusters with one ``clusterID`` would deliver its rows twice."""
        mistaken = Box(of(clusters, origin(own=THIRD)), stack)
        (finding,) = [each for each in mistaken.dialect.check() if "default" in each.message]
        assert finding.level is Level.ERROR
        assert f"default of {COLUMN} is {OWN}" in finding.message
        assert finding.cure.startswith("correct clusterID")
        with pytest.raises(DriverError, match=f"default of {COLUMN} is {OWN}.*correct clusterID") as caught:
            mistaken.connect([ColumnIs(COLUMN, THIRD)])
        assert not caught.value.retryable

    def test_the_check_tells_what_is_missing_and_who_is_served_by_nobody(
        self, box: Box, stack: ExitStack
    ) -> None:
        without = Box(of(box, origin()), stack)
        with pytest.raises(DriverError, match="init") as caught:
            without.dialect.connect()
        assert not caught.value.retryable
        (missing,) = [each for each in without.dialect.check() if each.level is Level.ERROR]
        assert COLUMN in missing.message
        assert "init" in missing.cure
        clusters = created(box, stack, origin())
        before = {(each.level, each.subject) for each in clusters.dialect.check()}
        of_cluster(clusters, 77, "nobody's")
        found = [each for each in clusters.dialect.check() if (each.level, each.subject) not in before]
        assert found, f"the check says nothing of rows of no cluster, but what it said before: {before}"
        (orphans,) = found
        assert orphans.level is Level.WARNING
        assert "77" in orphans.message


class TakeoverConformance(Conformance):
    """Deliberate takeovers, and the database's clock."""

    def test_takeovers_begin_and_end_once(self, box: Box) -> None:
        table = box.connect()
        assert table.takeovers() == []
        assert table.end_takeover(1) is False
        assert table.begin_takeover(3, "they move to a new hall: '{ä}%s'") is True
        assert table.begin_takeover(3, "again") is False
        assert table.begin_takeover(1, "") is True
        assert [(each.cluster, each.reason) for each in box.connect().takeovers()] == [
            (1, ""),
            (3, "they move to a new hall: '{ä}%s'"),
        ]
        assert table.end_takeover(3) is True
        assert table.end_takeover(3) is False
        assert [each.cluster for each in table.takeovers()] == [1]
        assert table.begin_takeover(3, "once more") is True
        assert [each.reason for each in table.takeovers()] == ["", "once more"]

    def test_a_takeover_says_since_when_and_why_in_short(self, box: Box) -> None:
        table = box.connect()
        before = table.now()
        table.begin_takeover(9_000, f"zero \0, half \udc80{'x' * 1_000}")
        (found,) = table.takeovers()
        assert found == Takeover(9_000, f"zero \\0, half \\udc80{'x' * 200}"[:200], found.since)
        # A database may keep fewer digits of one than of the other.
        assert before - timedelta(seconds=1) <= found.since <= table.now() + timedelta(seconds=1)

    def test_takeovers_outlive_leaders_and_are_no_lanes(self, box: Box) -> None:
        table = box.connect()
        table.begin_takeover(2, "planned")
        (begun,) = table.takeovers()
        hands = box.lead_all(3)
        assert [each.fence.lane for each in table.lane_statuses()] == [0, 1, 2]
        values = box.fill(6)
        assert sorted(value for hand in hands for value in hand.values()) == sorted(values)
        hands[0].table.heartbeat(hands[0].fence, {})
        token = table.bump(1, "next")
        assert table.bump(1, "next") > token
        assert table.takeovers() == [begun]
        table.end_takeover(2)
        box.lead()
        assert table.takeovers() == []

    def test_outboxes_have_takeovers_of_their_own(self, box: Box) -> None:
        other = box.beside("b")
        box.connect().begin_takeover(2, "here")
        assert other.connect().takeovers() == []
        assert other.connect().end_takeover(2) is False
        assert [each.cluster for each in box.connect().takeovers()] == [2]

    def test_the_clock_of_the_database_goes_on(self, box: Box) -> None:
        table = box.connect()
        first = table.now()
        assert first.tzinfo is not None
        sleep(0.3)
        assert table.now() - first >= timedelta(seconds=0.2)
        fence = table.enter(0, 1, table.bump(1, "test"))
        (lane,) = table.lane_statuses()
        assert lane.fence.token == fence.token
        assert abs(lane.since - table.now()) < timedelta(seconds=60)
