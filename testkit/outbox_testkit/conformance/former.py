"""What a harvester of the first version of outbox sends, and what a migration must keep for it.

Portable dialects whose first version is in the history of this repository derive :class:`FormerConformance`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from string import Template
from uuid import uuid4

import pytest
from outbox_sdk import (
    OLDEST,
    SCHEMA,
    DriverError,
    LeadershipLost,
    Level,
    Schema,
    TransactionalLane,
)
from outbox_sdk.portable import PortableDialect, Session

from outbox_testkit.conformance.under_test import Box, Hand, OutboxUnderTest, plain, texts
from outbox_testkit.conformance.watching import CONNECTIONS, refusal

_HELD = "name = {name} AND lane = {lane} AND lanes = {lanes} AND token = {token} AND attempt = {attempt}"
STATEMENTS = {
    "make_lane": (
        "INSERT INTO $fence"
        " (name, lane, lanes, token, attempt, holder, since, reading, transacting, identity)"
        " VALUES ({name}, {lane}, {lanes}, {token}, 0, {holder}, $now, '{{}}', 0, {identity})"
    ),
    "hold_guard": "SELECT lane FROM $fence WHERE name = {name} AND lane = -1$alone",
    "tokens": "SELECT lane, token FROM $fence WHERE name = {name} AND lane >= -1",
    "bump": (
        "UPDATE $fence SET lanes = {lanes}, token = {token}, attempt = 0, holder = {holder}, since = $now,"
        " beat = NULL, reading = '{{}}' WHERE name = {name} AND lane >= -1"
    ),
    "enter": (
        "UPDATE $fence SET attempt = attempt + 1"
        " WHERE name = {name} AND lane = {lane} AND lanes = {lanes} AND token = {token}"
    ),
    "entered": "SELECT attempt, identity FROM $fence WHERE name = {name} AND lane = {lane}",
    "hold": f"SELECT lane FROM $fence WHERE {_HELD}$shared",
    "transact": f"UPDATE $fence SET transacting = {{noted}} WHERE {_HELD}",
    "beat": f"UPDATE $fence SET beat = $now, reading = {{reading}} WHERE {_HELD}",
    "choose": (
        "SELECT id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values FROM $outbox"
        " WHERE (leader_id IS NULL OR leader_id NOT IN ({leader})) AND COALESCE(kafka_key, '') NOT IN"
        " (SELECT COALESCE(kafka_key, '') FROM $letters WHERE name = {name} AND fate = 'parked')"
        " ORDER BY id LIMIT {limit}"
    ),
    "claim": "UPDATE $outbox SET leader_id = {leader} WHERE id IN ({ids})",
    "purge": "DELETE FROM $outbox WHERE id IN ({ids}) AND leader_id = {leader}",
    "park": (
        "INSERT INTO $letters (name, id, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
        " kafka_header_values, fate, reason, attempts, since)"
        " VALUES ({name}, {id}, 'orders', {key}, {value}, NULL, NULL, 'parked', 'too large', 5, $now)"
    ),
}
"""The statements of the first version, as the history has them, but for hints of indexes."""


@dataclass(frozen=True)
class FormerOutbox:
    """Tables of the first version, which exist already and are empty.

    Attributes:
        under: The outbox under test; its options name these tables.
        name: The outbox's name in its fence.
        words: What the statements have in place of ``$fence``, ``$now`` and so on.
    """

    under: OutboxUnderTest
    name: str
    words: Mapping[str, str]


class FormerHarvester:
    """A harvester of the first version, with one lane.

    Args:
        session: A connection of its own.
        outbox: Its tables.
    """

    def __init__(self, session: Session, outbox: FormerOutbox) -> None:
        self._session = session
        self._name = outbox.name
        self._sql = {name: Template(sql).substitute(outbox.words) for name, sql in STATEMENTS.items()}
        self._leader = str(uuid4())
        self._held: dict[str, object] = {}

    def lead(self, holder: str = "former") -> int:
        """Becomes the leader, and enters the lane; returns the token."""
        named = {"name": self._name}
        with self._session.transaction("bump"):
            self._session.fetch(self._sql["hold_guard"], **named)
            found = {row[0]: row[1] for row in self._session.fetch(self._sql["tokens"], **named)}
            token = int(max([0, *found.values()])) + 1
            for lane in (-1, 0):
                if lane not in found:
                    new = {
                        "lane": lane,
                        "lanes": 0,
                        "token": 0,
                        "holder": holder,
                        "identity": uuid4().hex[:12],
                    }
                    self._session.execute(self._sql["make_lane"], **named, **new)
            self._session.execute(self._sql["bump"], **named, lanes=1, token=token, holder=holder)
        place = {**named, "lane": 0}
        with self._session.transaction("enter"):
            assert self._session.execute(self._sql["enter"], **place, lanes=1, token=token)
            attempt, _ = self._session.fetch(self._sql["entered"], **place)[0]
        self._held = {**place, "lanes": 1, "token": token, "attempt": attempt}
        return token

    @contextmanager
    def holding(self) -> Iterator[bool]:
        """Holds the fence for a transaction, and tells whether it is still its own."""
        with self._session.transaction("hold"):
            yield bool(self._session.fetch(self._sql["hold"], **self._held))

    def mark(self, limit: int) -> dict[int, str]:
        """Marks the earliest rows; returns their ids and values. None if another one leads."""
        named = {"name": self._name, "leader": self._leader}
        with self.holding() as holds:
            rows = self._session.fetch(self._sql["choose"], **named, limit=limit) if holds else []
            for row in rows:
                self._session.execute(self._sql["claim"], leader=self._leader, ids=row[0])
        return {int(row[0]): str(row[3]) for row in rows}

    def purge(self, ids: Sequence[int]) -> int:
        """Deletes marked rows; none if another one leads."""
        with self.holding() as holds:
            return sum(
                self._session.execute(self._sql["purge"], leader=self._leader, ids=each)
                for each in (ids if holds else ())
            )

    def note(self, lanes: int) -> None:
        """Notes that it publishes in transactions, and writes a heartbeat."""
        with self._session.transaction("note"):
            assert self._session.execute(self._sql["transact"], **self._held, noted=lanes)
            assert self._session.execute(self._sql["beat"], **self._held, reading="{}")

    def park(self, number: int, key: str, value: str) -> None:
        """Parks a key by its head."""
        with self._session.transaction("park"):
            self._session.execute(
                self._sql["park"], name=self._name, id=number, key=key, value=value.encode()
            )


class FormerConformance:
    """What happens to an outbox of the first version; a plugin's subclass provides ``former_outbox``."""

    @pytest.fixture
    def stack(self) -> Iterator[ExitStack]:
        """Closes at the end of a test what the test opened."""
        with ExitStack() as opened:
            yield opened

    @pytest.fixture
    def box(self, former_outbox: FormerOutbox, stack: ExitStack) -> Box:
        """The outbox, as the present version sees it."""
        return Box(former_outbox.under, stack)

    @pytest.fixture
    def former(self, former_outbox: FormerOutbox, box: Box, stack: ExitStack) -> FormerHarvester:
        """A harvester of the first version, which leads."""
        dialect = box.dialect
        assert isinstance(dialect, PortableDialect)
        harvester = FormerHarvester(stack.enter_context(closing(dialect.session())), former_outbox)
        harvester.lead()
        return harvester

    def test_its_tables_are_refused_until_they_are_migrated(self, box: Box, former: FormerHarvester) -> None:
        dialect = box.dialect
        former.note(1)
        for created in (1, 0):  # the journal, which init creates, too
            assert dialect.schema() is None
            for how in CONNECTIONS:
                assert "run 'outbox migrate'" in refusal(dialect, how), how
            assert [each for each in dialect.check() if each.level is Level.ERROR and "migrate" in each.cure]
            pending = list(dialect.migrations())
            altered = [each for each in pending if each.startswith("ALTER TABLE")]
            made = [each for each in pending if each.startswith(("CREATE TABLE", "CREATE INDEX"))]
            assert (len(altered), len(made)) == (len(pending) - len(made) - 1, 2 * created)
            assert len(list(dialect.create())) == created, "init alters nothing"
        assert list(dialect.migrate()) == pending
        assert (list(dialect.migrations()), list(dialect.migrate())) == ([], [])
        assert dialect.schema() == Schema(SCHEMA, OLDEST)
        assert not [each for each in dialect.check() if each.level is Level.ERROR or "migrate" in each.cure]
        assert not any(refusal(dialect, how) for how in CONNECTIONS)

    def test_a_migration_keeps_what_was_there(self, box: Box, former: FormerHarvester) -> None:
        values = box.fill(6)
        marked = former.mark(4)
        assert list(marked.values()) == values[:4]
        head = next(iter(marked))
        former.park(head, "k1", "v1")
        former.note(2)
        box.dialect.migrate()
        table = box.connect()
        identity = table.known_identity()
        (status,) = table.lane_statuses()
        assert (status.holder, status.fence.token, status.heartbeat_at is None) == ("former", 1, False)
        assert table.transactional_lanes() == {0: TransactionalLane(2)}
        (letter,) = box.dead_letters().find()
        assert (letter.record.id, letter.record.key, letter.record.value) == (head, "k1", "v1")
        hand = box.lead()
        assert hand.values() == values[1:]
        assert table.identity() == identity
        assert box.dead_letters().retry([head]) == [head]
        assert box.survey() == values

    def test_both_versions_harvest_the_tables_in_turn(self, box: Box, former: FormerHarvester) -> None:
        values = box.fill(12)
        before = former.mark(3)
        box.dialect.migrate()
        assert former.purge(list(before)) == 3, "it goes on while the tables are migrated"
        assert list(former.mark(3).values()) == values[3:6]
        former.note(1)
        hand = box.lead()
        assert (former.mark(3), former.purge(range(100))) == ({}, 0), "the successor ends it"
        marked = hand.mark(6)
        assert texts(marked) == values[3:9]
        hand.purge(*[record.id for record in marked[:3]])
        token = former.lead("downgraded")
        assert token == hand.fence.token + 1
        for act in (lambda: hand.mark(1), lambda: hand.purge(1), lambda: _ahead(hand)):
            with pytest.raises(LeadershipLost):
                act()
        assert list(former.mark(100).values()) == values[6:], "and a downgrade ends the successor"
        assert box.dialect.schema() == Schema(SCHEMA, OLDEST)
        assert box.survey() == values[6:]

    def test_several_processes_migrate_at_the_same_moment(self, box: Box, former: FormerHarvester) -> None:
        former.note(1)
        pending = list(box.dialect.migrations())
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda _: list(box.dialect.migrate()), range(4)))
        assert sorted(each for one in done for each in one) == sorted(pending)
        assert box.connect().transactional_lanes() == {0: TransactionalLane(1)}

    def test_a_migration_gives_up_before_it_holds_up_the_harvesters(
        self, box: Box, former: FormerHarvester
    ) -> None:
        box.stash(plain())
        since = time.monotonic()
        with former.holding() as holds:
            assert holds
            with pytest.raises(DriverError, match="run 'outbox migrate' again") as caught:
                box.dialect.migrate()
        assert caught.value.retryable
        assert time.monotonic() - since < 40, "it does not wait for as long as locks are waited for"
        assert list(former.mark(1).values()) == ["v"]
        assert box.dialect.migrate()


def _ahead(hand: Hand) -> None:
    hand.advance(1)
