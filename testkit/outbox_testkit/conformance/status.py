"""What operators see, and the creation of tables and connections."""

from __future__ import annotations

import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import pytest
from outbox_api import Backlog, Capability, DriverError, Finding, Level, TransactionalLane

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import Box, plain


class StatusConformance(Conformance):
    """Backlog, heartbeats, notes."""

    def test_a_small_backlog_is_counted(self, box: Box) -> None:
        table = box.connect()
        assert table.backlog() == Backlog(records=0, exact=True, oldest=None)
        box.fill(30)
        hand = box.lead()
        ids = hand.ids(20)
        assert (table.backlog().records, table.backlog().exact) == (30, True), "marked or not"
        hand.purge(*ids)
        assert table.backlog().records == 10

    def test_upkeep_is_told_as_far_as_the_database_knows_it(self, box: Box) -> None:
        view = box.watch()
        box.lead()
        upkeep = view.upkeep()
        assert (upkeep.dead or 0) >= 0
        assert upkeep.unit
        assert upkeep.visible or upkeep.snapshot is None or upkeep.snapshot.owner
        box.fill(3)
        assert box.survey(), "the connection and the outbox go on as before"

    def test_the_oldest_grows_older(self, box: Box) -> None:
        table = box.connect()
        box.fill(1)
        young = table.backlog().oldest
        assert young is not None
        assert 0 <= young < 30
        deadline = monotonic() + 60
        while (table.backlog().oldest or 0) < young + 0.5:
            assert monotonic() < deadline
            sleep(0.05)
        box.fill(1)
        assert (table.backlog().oldest or 0) >= young + 0.5, "a younger row makes nothing younger"

    def test_the_oldest_leaves_out_parked_keys(self, box: Box) -> None:
        box.stash(plain("old"))
        hand = box.lead()
        sleep(1.1)
        box.stash(plain("young"))
        began = monotonic()
        before = hand.table.backlog().oldest or 0
        assert before >= 1
        heads = box.park(hand, "old")
        after = hand.table.backlog()
        assert after.records == 2
        assert after.oldest is not None
        assert after.oldest < before + (monotonic() - began) - 1, "the younger one's"
        hand.purge(*hand.ids())
        assert hand.table.backlog() == Backlog(records=1, exact=True, oldest=None)
        box.dead_letters().retry([heads["old"]])
        assert (hand.table.backlog().oldest or 0) >= before

    def test_a_reading_is_shown_with_its_age_until_the_next_leader(self, box: Box) -> None:
        hands = box.lead_all(2)
        metrics = {
            "rate": 1.5,
            "batches": [{"name": "ä 🌍 '\"\\", "rows": 5}, None],
            "on": True,
            "big": 2**53,
        }
        before = box.connect().lane_statuses()
        assert [(h.heartbeat_at, h.age, dict(h.metrics)) for h in before] == [(None, None, {})] * 2
        hands[1].table.heartbeat(hands[1].fence, {"rate": 0})
        hands[1].table.heartbeat(hands[1].fence, metrics)
        idle, busy = box.connect().lane_statuses()
        assert (idle.heartbeat_at, idle.age) == (None, None)
        assert busy.metrics == metrics
        assert busy.heartbeat_at is not None
        assert busy.age is not None
        assert busy.heartbeat_at >= busy.since
        assert 0 <= busy.age < 30
        hands[0].table.bump(2, "next")
        assert [(h.holder, h.heartbeat_at, h.age) for h in box.connect().lane_statuses()] == [
            ("next", None, None)
        ] * 2

    def test_each_lane_notes_for_itself_that_it_publishes_in_transactions(self, box: Box) -> None:
        hands = box.lead_all(3)
        table = box.connect()
        assert table.transactional_lanes() == {}
        for lane in (2, 0, 0):
            hands[lane].table.set_transactional(
                hands[lane].fence, TransactionalLane(hands[lane].fence.lanes, "sender", "place")
            )
        assert list(table.transactional_lanes().items()) == [
            (0, TransactionalLane(3, "sender", "place")),
            (2, TransactionalLane(3, "sender", "place")),
        ]
        for _ in range(2):
            hands[0].table.set_transactional(hands[0].fence, None)
        assert table.transactional_lanes() == {2: TransactionalLane(3, "sender", "place")}

    def test_a_note_outlives_bumps_and_attempts(self, box: Box) -> None:
        hands = box.lead_all(4)
        for lane in (0, 3):
            hands[lane].table.set_transactional(
                hands[lane].fence, TransactionalLane(hands[lane].fence.lanes, "sender", "place")
            )
        table = box.connect()
        token = table.bump(2, "narrow")
        fence = table.enter(0, 2, table.enter(0, 2, token).token)
        table.heartbeat(fence, {})
        assert table.transactional_lanes() == {
            0: TransactionalLane(4, "sender", "place"),
            3: TransactionalLane(4, "sender", "place"),
        }
        table.set_transactional(fence, TransactionalLane(fence.lanes, "sender", "place"))
        assert table.transactional_lanes() == {
            0: TransactionalLane(2, "sender", "place"),
            3: TransactionalLane(4, "sender", "place"),
        }


class TableConformance(Conformance):
    """Tables are created once, connections fail as specified."""

    def test_creates_what_is_missing_and_touches_nothing_that_is_there(self, bare: Box) -> None:
        created = bare.dialect.create()
        assert created
        values = bare.fill(5)
        hand = bare.lead()
        heads = bare.park(hand, "k3")
        assert list(bare.dialect.create()) == []
        assert bare.dead_letters().find()[0].record.id == heads["k3"]
        assert hand.values() == [value for value in values if value != "v3"]

    @needs(Capability.CONCURRENT_DDL)
    def test_several_processes_create_at_the_same_moment(self, bare: Box) -> None:
        with ThreadPoolExecutor(6) as pool:
            created = list(pool.map(lambda _: bare.dialect.create(), range(6)))
        names = list(itertools.chain(*created))
        assert names
        assert len(names) == len(set(names)), "each is created by one of them"
        bare.fill(3)
        assert len(bare.survey()) == 3

    def test_the_ddl_is_text_for_somebody_who_may(self, bare: Box) -> None:
        statements = bare.dialect.ddl()
        assert statements
        assert all(isinstance(statement, str) for statement in statements)

    def test_without_its_tables_an_outbox_cannot_be_harvested(self, bare: Box) -> None:
        for connect in (bare.dialect.connect, bare.dialect.dead_letters):
            with pytest.raises(DriverError) as caught:
                connect()
            assert not caught.value.retryable

    def test_after_closing_nothing_can_be_done(self, box: Box) -> None:
        table = box.connect()
        table.close()
        table.close()
        with pytest.raises(DriverError) as caught:
            table.bump(1, "x")
        assert caught.value.retryable

    def test_the_check_finds_nothing_wrong(self, box: Box) -> None:
        findings = box.dialect.check()
        assert findings
        assert all(isinstance(finding, Finding) for finding in findings)
        assert [finding for finding in findings if finding.level is Level.ERROR] == []
        assert all(finding.cure for finding in findings if finding.level is not Level.OK)

    def test_the_check_tells_that_there_are_no_tables(self, bare: Box) -> None:
        findings = bare.dialect.check()
        assert Level.ERROR in {finding.level for finding in findings}

    def test_a_dialect_travels_as_its_options(self, box: Box) -> None:
        made = pickle.loads(pickle.dumps(box.options))
        assert made == box.options
        assert {field for field in ("data_source", "table") if not hasattr(made, field)} == set()
