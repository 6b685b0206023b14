"""The fence: tokens and epochs rise, and the holder of an old one changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from math import inf
from time import monotonic
from uuid import uuid4

import pytest
from outbox_api import Batch, DriverError, LeadershipLost, Poison, TransactionalLane

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import ALL, Box, Hand


def acts(hand: Hand, batch: Batch, ids: list[int]) -> dict[str, Callable[[], object]]:
    """Every statement of a lane's holder that has selected a batch and marked ids."""
    table, fence, leader = hand.table, hand.fence, hand.leader
    poisons = [Poison(ids[0], "too large", 1)]
    return {
        "mark": lambda: table.mark(fence, leader, 10),
        "mark by a new leader id": lambda: table.mark(fence, uuid4(), 10),
        "purge": lambda: table.purge(fence, leader, ids),
        "reset": lambda: table.reset(fence, leader, ids),
        "park": lambda: table.park(fence, leader, poisons, ids),
        "park without a leader id": lambda: table.park(fence, None, poisons),
        "advance": lambda: table.advance(fence, [], [batch], 10),
        "advance with a finished batch": lambda: table.advance(fence, [batch], [], 10),
        "advance that only deletes": lambda: table.advance(fence, [batch], [], 0),
        "advance that does nothing": lambda: table.advance(fence, [], [], 0),
        "beat": lambda: table.heartbeat(fence, {"zombie": 1}),
        "transact": lambda: table.set_transactional(fence, TransactionalLane(fence.lanes, "sender", "place")),
        "end of transactions": lambda: table.set_transactional(fence, None),
    }


class FenceConformance(Conformance):
    """The right to work on a lane, and its end."""

    def test_before_the_first_leader_nobody_holds_anything(self, box: Box) -> None:
        table = box.connect()
        assert table.lane_statuses() == []
        assert table.transactional_lanes() == {}
        for lane, lanes, token in ((0, 1, 0), (0, 1, 1)):
            with pytest.raises(LeadershipLost):
                table.enter(lane, lanes, token)

    @pytest.mark.parametrize("noted", ["a parked key", "a lane that publishes in transactions"])
    def test_an_outbox_that_was_renamed_is_told_from_a_new_one(self, apart: Box, noted: str) -> None:
        apart.dialect.create()
        apart.fill(3, keys=3)
        hand = apart.lead()
        if noted == "a parked key":
            apart.park(hand, "k1")
        else:
            hand.table.set_transactional(hand.fence, TransactionalLane(1, "sender", "place"))
        identity = hand.table.identity()
        hand.table.close()
        with closing(apart.dialect.history()) as history:
            history.note(1, "seen")
        renamed = apart.renamed()
        for ask in (lambda: renamed.connect().bump(1, "test"), lambda: renamed.connect().identity()):
            with pytest.raises(DriverError, match="If it was renamed") as caught:
                ask()
            assert not caught.value.retryable
        cure = str(caught.value).split(" run: ")[1].split(". If ")[0]
        renamed.execute(*cure.split("; "))
        table = renamed.connect()
        assert table.identity() == identity
        with closing(renamed.dialect.history()) as history:
            assert history.read(0) == [(1, "seen")]
        assert len(renamed.survey()) == (2 if noted == "a parked key" else 3)
        assert list(table.transactional_lanes()) == ([] if noted == "a parked key" else [0])

    def test_tokens_rise_and_attempts_rise_under_a_token(self, box: Box) -> None:
        table, other = box.connect(), box.connect()
        token = table.bump(2, "one")
        fences = [table.enter(1, 2, token) for _ in range(3)]
        assert [(fence.lane, fence.lanes, fence.token) for fence in fences] == [(1, 2, token)] * 3
        assert fences[0].epoch < fences[1].epoch < fences[2].epoch
        next_token = other.bump(2, "two")
        assert token < next_token < other.bump(2, "three")

    def test_only_the_token_that_is_expected_is_raised(self, box: Box) -> None:
        table, other = box.connect(), box.connect()
        first = table.bump(2, "one", 0)
        held = table.bump(2, "two", first)
        for expected in (0, first, held + 1):
            with pytest.raises(LeadershipLost):
                other.bump(2, "late", expected)
        assert {(each.fence.token, each.holder) for each in other.lane_statuses()} == {(held, "two")}
        assert other.bump(2, "three", held) > held

    def test_a_leader_holds_every_lane(self, box: Box) -> None:
        table = box.connect()
        token = table.bump(3, "somebody")
        for lane in (2, 0):
            table.enter(lane, 3, token)
        lane_statuses = box.connect().lane_statuses()
        assert [(h.fence.lane, h.fence.lanes, h.fence.token, h.holder) for h in lane_statuses] == [
            (lane, 3, token, "somebody") for lane in range(3)
        ]
        assert all(lane_status.since.tzinfo for lane_status in lane_statuses)

    def test_whatever_a_holder_is_called_it_leads(self, box: Box) -> None:
        box.connect().bump(1, "zero \0, half \udc80, line\n 世界 🌍 'x' \\ %s {}")
        (found,) = box.connect().lane_statuses()
        assert found.holder == "zero \\0, half \\udc80, line\n 世界 🌍 'x' \\ %s {}"

    @pytest.mark.parametrize("how", ["token", "epoch"])
    def test_who_holds_an_old_one_touches_nothing(self, box: Box, how: str) -> None:
        box.fill(12, keys=3)
        (zombie,) = box.lead_all(1)
        zombie.table.set_transactional(zombie.fence, TransactionalLane(zombie.fence.lanes, "sender", "place"))
        batch, values = zombie.batch(4)
        ids = zombie.ids(8)[4:]
        table = box.connect()
        token = zombie.fence.token if how == "epoch" else table.bump(1, "other")
        leader = Hand(table, table.enter(0, 1, token))
        table.heartbeat(leader.fence, {"leader": 1})
        for name, act in acts(zombie, batch, ids).items():
            with pytest.raises(LeadershipLost):
                raise AssertionError(f"{name} returned {act()!r} under an old {how}")
        assert table.transactional_lanes() == {0: TransactionalLane(1, "sender", "place")}
        assert table.lane_statuses()[0].metrics == {"leader": 1}
        assert box.dead_letters().find() == []
        # The rows that the fenced holder had marked keep its leader id, and the others have none.
        assert leader.reset(*ids, leader=zombie.leader) == 4
        assert table.purge(leader.fence, zombie.leader, batch.ids()).rows == 4
        assert leader.values(ALL) == [f"v{number}" for number in range(5, 13)]
        assert values == ["v1", "v2", "v3", "v4"]

    def test_an_old_token_enters_nothing(self, box: Box) -> None:
        table = box.connect()
        old = table.bump(2, "one")
        token = table.bump(2, "two")
        for lane, lanes, used in ((0, 2, old), (0, 3, token), (2, 2, token), (0, 2, token + 1)):
            with pytest.raises(LeadershipLost):
                table.enter(lane, lanes, used)
        assert table.enter(0, 2, token).token == token

    def test_a_restored_fence_gives_no_token_twice(self, box: Box) -> None:
        box.fill(12, keys=3)
        saved = box.lead()
        with _restored(box, saved.table.name):
            (zombie,) = box.lead_all(1)
            batch, values = zombie.batch(4)
            ids = zombie.ids(8)[4:]
        leader = box.lead()
        assert saved.fence.token < leader.fence.token != zombie.fence.token
        for name, act in acts(zombie, batch, ids).items():
            with pytest.raises(LeadershipLost):
                raise AssertionError(f"{name} returned {act()!r} under a token of lost history")
        with pytest.raises(LeadershipLost):
            zombie.table.enter(0, 1, zombie.fence.token)
        assert leader.values(ALL) == [f"v{number}" for number in range(1, 13)]
        assert values == ["v1", "v2", "v3", "v4"]

    def test_an_attempt_at_one_lane_ends_no_other_lane(self, box: Box) -> None:
        box.fill(60, keys=20)
        first, second = box.lead_all(2)
        first.table.enter(0, 2, first.fence.token)
        with pytest.raises(LeadershipLost):
            first.mark()
        assert second.mark()

    def test_a_leader_with_another_number_of_lanes_ends_every_lane(self, box: Box) -> None:
        box.fill(60, keys=20)
        wide = box.lead_all(4)
        narrow = box.lead_all(2)
        for hand in wide:
            with pytest.raises(LeadershipLost):
                hand.mark()
        assert len(box.connect().lane_statuses()) == 2
        assert sum(len(hand.mark()) for hand in narrow) == 60
        assert sum(len(hand.mark()) for hand in box.lead_all(8)) == 60
        for hand in narrow:
            with pytest.raises(LeadershipLost):
                hand.mark()
        lane_statuses = box.connect().lane_statuses()
        assert len(lane_statuses) == 8
        assert len({lane_status.fence.token for lane_status in lane_statuses}) == 1

    def test_a_call_that_waits_for_others_ends_within_what_the_dialect_tells(
        self, impatient_box: Box
    ) -> None:
        box = impatient_box
        table = box.connect()
        table.bump(1, "one")
        somebody = box.application()
        somebody.cursor().execute(f"UPDATE {box.options.fence} SET holder = 'me'")
        since = monotonic()
        with suppress(DriverError):
            table.bump(1, "two")
        longest = box.dialect.longest_call()
        assert monotonic() - since < longest < inf
        assert longest > getattr(box.options, "statement_timeout", 0.0)
        somebody.rollback()

    def test_a_lane_that_is_no_more_is_settled_by_the_leader(self, box: Box) -> None:
        box.fill(60, keys=20)
        last = box.lead_all(3)[2]
        last.table.set_transactional(last.fence, TransactionalLane(last.fence.lanes, "sender", "place"))
        batch, values = last.batch()
        table = box.connect()
        fence = table.enter(2, 1, table.bump(1, "narrow"))
        assert table.advance(fence, [batch], [], 0).purged == len(values)
        assert table.transactional_lanes() == {2: TransactionalLane(3, "sender", "place")}
        table.set_transactional(fence, None)
        assert table.transactional_lanes() == {}
        assert set(box.survey()).isdisjoint(values)
        with pytest.raises(LeadershipLost):
            last.advance()

    def test_a_lane_keeps_an_identity_that_no_other_has(self, box: Box) -> None:
        boxes = (box, box.beside("b"))
        found = []
        for each in boxes:
            table = each.connect()
            token = table.bump(5, "test")
            found += [table.enter(lane, 5, token).identity for lane in range(5)]
        assert all(identity.isalnum() and identity.isascii() for identity in found)
        assert len(set(found)) == 10
        for each, identities in zip(boxes, (found[:5], found[5:]), strict=True):
            table = each.connect()
            for lanes in (2, 5):
                token = table.bump(lanes, "another")
                again = [table.enter(lane, lanes, token).identity for _ in range(2) for lane in range(lanes)]
                assert again == identities[:lanes] * 2

    def test_an_outbox_keeps_an_identity_and_a_name_that_no_other_has(self, box: Box) -> None:
        other = box.beside("b")
        with ThreadPoolExecutor(4) as pool:
            tables = [box.connect() for _ in range(4)]
            (identity,) = set(pool.map(lambda table: table.identity(), tables))
        assert identity.isalnum()
        assert identity.isascii()
        assert tables[0].lane_statuses() == []
        assert tables[0].transactional_lanes() == {}
        token = tables[0].bump(2, "one")
        assert token < (token := tables[1].bump(3, "two"))
        assert len(tables[0].lane_statuses()) == 3
        again, stranger = box.connect(), other.connect()
        assert (again.identity(), again.name) == (identity, tables[0].name)
        assert stranger.name != again.name
        assert stranger.identity() not in {
            identity,
            *(again.enter(lane, 3, token).identity for lane in range(3)),
        }

    def test_outboxes_of_one_database_have_fences_of_their_own(self, box: Box) -> None:
        other = box.beside("b")
        box.fill(3)
        hand = box.lead()
        table = other.connect()
        token = table.bump(2, "other")
        table.set_transactional(table.enter(1, 2, token), TransactionalLane(2, "sender", "place"))
        other.fill(2)
        table.bump(2, "other")
        assert len(hand.mark()) == 3
        assert [lane_status.holder for lane_status in hand.table.lane_statuses()] == ["test"]
        assert hand.table.transactional_lanes() == {}
        assert len(other.survey()) == 2


@contextmanager
def _restored(box: Box, name: str) -> Iterator[None]:
    """Sets the fence back, at the end of the block, to what it was at its beginning, as a restore does."""
    of_outbox = "name = '{}'".format(name.replace("'", "''"))
    application = box.application()
    with closing(application.cursor()) as cursor:
        cursor.execute(f"SELECT lane, token, epoch FROM {box.options.fence} WHERE {of_outbox}")
        saved = cursor.fetchall()
        application.commit()
        yield
        for lane, token, epoch in saved:
            values = f"token = {token}, epoch = {epoch}"
            cursor.execute(f"UPDATE {box.options.fence} SET {values} WHERE {of_outbox} AND lane = {lane}")
    application.commit()
