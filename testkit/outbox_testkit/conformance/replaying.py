"""Kept records are found, counted and replayed: each once, in order, whoever goes on with a replay."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, timedelta

import pytest
from outbox_api import Capability, ConfigError, DriverError, Record
from outbox_api.portable.keeping import Keep
from outbox_api.portable.replaying import PortableReplays
from outbox_api.seams.journal import Action
from outbox_api.seams.kept import Chosen, Condition, Kept
from outbox_api.seams.replay import REPLAY_HEADER, Replay, ReplayState

from outbox_testkit.conformance.base import needs
from outbox_testkit.conformance.keeping import KeepingConformance, kept, marked
from outbox_testkit.conformance.under_test import ALL, Box, texts

ACTION = Action("alice", "cli", "replay", "all of it", "a test")


class ReplayConformance(KeepingConformance):
    """What ``kept`` and ``replays`` of a dialect do; the fixture is that of the theme before."""

    @pytest.fixture
    def kept_box(self, keeping: Callable[..., Box]) -> Box:
        """An outbox of which 30 records of 3 keys are kept, and nothing waits."""
        box = keeping()
        box.fill(30, keys=3)
        assert marked(box.lead(), ALL) == 30
        return box

    def test_kept_records_are_counted(self, keeping: Callable[..., Box]) -> None:
        box = keeping(topics=("orders",))
        assert box.kept().count(Chosen()) == Kept()
        assert list(box.kept().days()) == []
        assert box.replays().newest() == 0
        box.stash(
            *(Record("orders", f"k{number % 3}", "four") for number in range(9)), Record("bills", "k", "b")
        )
        assert marked(box.lead(), ALL) == 10
        found = kept(box)
        counted = box.kept().count(Chosen())
        assert (counted.records, counted.keys) == (9, 3)
        assert counted.bytes >= 9 * len("k0four")
        assert (counted.first, counted.last) == (found[0].position, found[-1].position)
        assert (counted.since, counted.until) == (found[0].delivered_at, found[-1].delivered_at)
        assert (counted.without_value, counted.without_headers) == (0, 0)
        assert box.replays().newest() == counted.last
        days = dict(box.kept().days())
        assert sum(each.records for each in days.values()) == counted.records
        assert found[0].delivered_at.astimezone(UTC).date() in days
        assert box.kept().count(Chosen(key="k1", through=found[4].position)).records == 2

    def test_what_was_left_out_is_counted(self, keeping: Callable[..., Box]) -> None:
        box = keeping(without=("value",))
        box.fill(3)
        marked(box.lead(), ALL)
        counted = box.kept().count(Chosen())
        assert (counted.without_value, counted.without_headers) == (3, 0)

    def test_conditions_compare_columns(self, kept_box: Box) -> None:
        kept_box.stash(Record("bills", "K1", "other"), Record("Orders", "k1 ", "another"))
        marked(kept_box.lead(), ALL)
        found = kept(kept_box)
        numbers = [each.record.id for each in found]

        def those(*conditions: tuple[str, str, object]) -> list[str]:
            where = [Condition(column, operator, value) for column, operator, value in conditions]  # type: ignore[arg-type]  # of the test
            return texts([each.record for each in kept(kept_box, Chosen(where=where))])

        assert those(("kafka_key", "=", "k1"), ("id", "<=", numbers[4])) == ["v1", "v4"]
        assert those(("kafka_key", "=", "k1 ")) == ["another"]
        assert those(("kafka_topic", "!=", "orders")) == ["other", "another"]
        assert those(("position", ">", found[-2].position)) == ["another"]
        assert those(("id", ">=", numbers[1]), ("id", "<", numbers[3])) == ["v2", "v3"]
        assert those(("token", "!=", found[0].token)) == ["other", "another"]
        later = found[0].delivered_at + timedelta(days=1)
        for column in ("create_time", "delivered_at"):
            assert those((column, ">", later)) == []
            assert len(those((column, "<", later), (column, ">", later - timedelta(days=2)))) == len(found)
        assert those(("kafka_key", "=", "x' OR 'a' = 'a")) == []
        for wrong in (("leader_id", "=", "x"), ("kafka_key", "<", "x"), ("id", "OR", 1), ("id", "=", "1")):
            with pytest.raises(ConfigError):
                those(wrong)

    def test_records_are_found_without_their_values(self, kept_box: Box) -> None:
        found = kept_box.kept().find(Chosen(), 0, 2, whole=False)
        assert [(each.record.key, each.record.value, [*each.record.headers]) for each in found] == [
            ("k1", None, []),
            ("k2", None, []),
        ]

    def test_what_is_replayed_follows_what_waits(self, keeping: Callable[..., Box]) -> None:
        box = keeping()
        headers = (("trace", "a"), ("trace", None), ("empty", ""))
        box.stash(Record("orders", "k1", "1", headers), Record("Orders", "", None), Record("bills", "é", ""))
        marked(box.lead(), ALL)
        box.stash(Record("orders", "k1", "live"))
        last = replayed(box, Chosen())
        assert last.outcome == "3 of 3 records stashed"
        assert last.ended is not None
        assert last.ended >= last.begun
        own = (REPLAY_HEADER, "again")
        records = box.lead().mark(ALL)
        assert [(each.topic, each.key, each.value, tuple(each.headers)) for each in records] == [
            ("orders", "k1", "live", ()),
            ("orders", "k1", "1", (*headers, own)),
            ("Orders", "", None, (own,)),
            ("bills", "é", "", (own,)),
        ]
        with closing(box.dialect.journal()) as journal:
            [entry] = journal.entries()
        assert (entry.action, entry.outcome) == (ACTION, "3 of 3 records stashed")

    def test_values_of_bytes_are_replayed(self, bytes_box: Box, stack: ExitStack) -> None:
        options = {**bytes_box.under.options, "keep": Keep(for_=3600.0)}
        box = Box(replace(bytes_box.under, options=options), stack, bytes_values=True)
        box.dialect.create()
        box.stash(Record("orders", "k", b"\x00\xff"), Record("orders", "k", None))
        marked(box.lead(), ALL)
        replayed(box, Chosen())
        assert [each.value for each in box.lead().mark(ALL)] == [b"\x00\xff", None]

    def test_another_topic_can_be_chosen(self, kept_box: Box) -> None:
        replayed(kept_box, Chosen(key="k1"), topic="repaired")
        records = kept_box.lead().mark(ALL)
        assert {each.topic for each in records} == {"repaired"}
        assert texts(records) == [f"v{number}" for number in range(1, 31, 3)]

    def test_partition_and_timestamp_are_replayed(self, keeping: Callable[..., Box]) -> None:
        box = keeping()
        for column in ("kafka_partition", "kafka_timestamp"):
            box.execute(f"ALTER TABLE {box.options.table} ADD {column} DECIMAL(19) DEFAULT -1")
        box.fill(1)
        box.execute(f"UPDATE {box.options.table} SET kafka_partition = 3, kafka_timestamp = 4711")
        marked(box.lead(), ALL)
        replayed(box, Chosen())
        hand = box.lead()
        [record] = hand.mark(ALL)
        assert (record.partition, record.timestamp_ms) == (3, 4711)
        hand.purge(record.id)
        replayed(box, Chosen(), name="elsewhere", topic="another")
        assert {(each.partition, each.timestamp_ms) for each in box.lead().mark(ALL)} == {(None, 4711)}

    def test_a_replay_takes_only_what_was_kept_when_it_began(self, kept_box: Box) -> None:
        replays = kept_box.replays()
        begin(replays, Chosen())
        hand = kept_box.lead()
        turns = 0
        while not replays.step("again", Chosen(), 7).ended:
            turns += 1
            hand.purge(*(each.id for each in hand.mark(ALL)))
        assert turns == 5
        found = texts([each.record for each in kept(kept_box)])
        assert found == [f"v{number}" for number in range(1, 31)] * 2

    def test_a_name_is_used_once(self, kept_box: Box) -> None:
        replays, other = kept_box.replays(), kept_box.replays()
        assert replays.find("again") is None
        with pytest.raises(DriverError, match="no replay 'again'"):
            replays.step("again", Chosen(), 1)
        begin(replays, Chosen())
        assert not other.begin("again", ACTION, ReplayState(choice="another", chosen=1, through=1))
        found = other.find("again")
        assert found is not None
        assert found.subject == ACTION.subject
        assert found.state == ReplayState(choice="c", chosen=30, through=replays.newest())
        assert replays.step("again", Chosen(), 10).state == other.find("again").state  # type: ignore[union-attr]  # it is there
        while not replays.step("again", Chosen(), 10).ended:
            pass
        ended = other.step("again", Chosen(), 10)
        assert (ended.state, ended.outcome) == (None, "30 of 30 records stashed")
        assert len(kept_box.survey()) == 30

    def test_replays_are_listed_and_given_up(self, kept_box: Box) -> None:
        replays, other = kept_box.replays(), kept_box.replays()
        assert (other.latest(10), other.give_up("first")) == ([], None)
        state = ReplayState(choice="c", chosen=30, through=replays.newest())
        for name in ("first", "second"):
            assert replays.begin(name, replace(ACTION, subject=f"{name}: all of it"), state)
        stashed = replays.step("first", Chosen(), 10)
        replays.journal.begin(replace(ACTION, subject="first: goes on behind position 10"))
        while not replays.step("second", Chosen(), 10).ended:
            pass
        listed = other.latest(10)
        assert [(each.name, each.state) for each in listed] == [("first", stashed.state), ("second", None)]
        assert listed[1].outcome == "30 of 30 records stashed"
        given_up = other.give_up("first")
        assert given_up is not None
        assert (given_up.state, given_up.outcome) == (stashed.state, "given up: 10 of 30 records stashed")
        for last in (replays.step("first", Chosen(), 10), other.give_up("first"), replays.find("first")):
            assert last is not None
            assert (last.state, last.outcome) == (None, given_up.outcome)
        assert {each.name for each in other.latest(10)} == {"first", "second"}
        assert len(kept_box.survey()) == 40

    def test_a_page_that_cannot_be_stashed_is_stashed_later(self, kept_box: Box) -> None:
        replays = kept_box.replays()
        begin(replays, Chosen())
        first = replays.step("again", Chosen(), 10)
        table, condition = kept_box.options.table, "kafka_key = 'k2'"
        kept_box.execute(f"DELETE FROM {table}")
        kept_box.execute(*kept_box.under.refuse(table, condition))
        with pytest.raises(DriverError):
            replays.step("again", Chosen(), 10)
        found = kept_box.replays().find("again")
        assert found is not None
        assert found.state == first.state
        assert kept_box.survey() == []

    def test_what_is_gone_meanwhile_is_told(self, kept_box: Box) -> None:
        replays = kept_box.replays()
        begin(replays, Chosen())
        replays.step("again", Chosen(), 10)
        table = kept_box.options.tables.kept
        kept_box.execute(f"DELETE FROM {table} WHERE kafka_topic = 'orders'")
        last = replays.step("again", Chosen(), 10)
        assert last.outcome == "10 of 30 records stashed; 20 were deleted from the kept records meanwhile"

    @needs(Capability.CONCURRENT_WRITERS)
    def test_two_that_replay_at_once_stash_each_record_once_and_in_order(self, kept_box: Box) -> None:
        kept_box.fill(600, keys=3)
        marked(kept_box.lead(), ALL)
        begin(kept_box.replays(), Chosen())

        def go_on(_: int) -> int:
            replays, turns = kept_box.replays(), 0
            while not replays.step("again", Chosen(), 5).ended:
                turns += 1
            return turns

        with ThreadPoolExecutor(3) as pool:
            assert sum(pool.map(go_on, range(3))) >= 630 // 5
        expected = texts([each.record for each in kept(kept_box)])
        assert kept_box.survey() == expected

    @needs(Capability.SKIP_LOCKED)
    def test_the_last_position_waits_for_purges(self, kept_box: Box) -> None:
        """Otherwise a lower position might appear behind a page that has passed it."""
        idiom, replays = kept_box.dialect.idiom, kept_box.replays()
        purge = idiom.locking_select("lane", str(kept_box.options.tables.fence), "1 = 1", idiom.shared_lock)
        somebody = kept_box.application()
        with closing(somebody.cursor()) as cursor:
            cursor.execute(purge)
            cursor.fetchall()
            cursor.execute(f"DELETE FROM {kept_box.options.tables.kept} WHERE 1 = 0")
        with pytest.raises(DriverError) as caught:
            replays.newest()
        assert caught.value.retryable
        somebody.rollback()
        assert kept_box.replays().newest() == kept(kept_box)[-1].position

    def test_rows_that_flow_are_counted(self, kept_box: Box) -> None:
        kept_box.fill(20, keys=2)
        replays = kept_box.replays()
        assert (replays.waiting(5), replays.waiting(100)) == (5, 20)
        kept_box.park(kept_box.lead(), "k1")
        assert replays.waiting(100) == 10


def begin(replays: PortableReplays, chosen: Chosen, name: str = "again") -> None:
    """Begins a replay of what is chosen."""
    through = replays.newest()
    count = replays.kept.count(chosen).records
    assert replays.begin(name, ACTION, ReplayState(choice="c", chosen=count, through=through))


def replayed(box: Box, chosen: Chosen, *, name: str = "again", topic: str = "") -> Replay:
    """Replays kept records; returns the replay, which has ended."""
    replays = box.replays()
    begin(replays, chosen, name)
    while not (replay := replays.step(name, chosen, 2, topic)).ended:
        pass
    return replay
