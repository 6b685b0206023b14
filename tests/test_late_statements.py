"""Statements that reach a database after their client has given them up, and others have gone on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from outbox_api import (
    Batch,
    Dialect,
    DriverError,
    Fence,
    LeadershipLost,
    OutboxTable,
    Poison,
    Record,
    Seam,
    Stasher,
    TransactionalLane,
    find,
)
from outbox_servers.late_proxy import LateProxy
from psycopg.conninfo import conninfo_to_dict, make_conninfo

RECORDS = 3


@dataclass
class Hand:
    """A lane's hand on an outbox.

    Attributes:
        table: Its connection.
        fence: Its fence.
        leader: Its leader id.
    """

    table: OutboxTable
    fence: Fence
    leader: UUID = field(default_factory=uuid4)

    def mark(self) -> list[int]:
        return [record.id for record in self.table.mark(self.fence, self.leader, 10)]


@dataclass
class Site:
    """An outbox with records, a lane behind a proxy, and a way for others.

    Attributes:
        dialect: The outbox.
        proxy: Before the database, for the lane.
        distant: The outbox as the lane reaches it.
        stack: Closes what is opened.
    """

    dialect: Dialect
    proxy: LateProxy
    distant: Dialect
    stack: ExitStack

    def lead(self, dialect: Dialect | None = None) -> Hand:
        table = self.stack.enter_context(closing((dialect or self.dialect).connect()))
        return Hand(table, table.enter(0, 1, patiently(lambda: table.bump(1, "leader"))))

    def state(self) -> Mapping[str, Any]:
        """Returns all that a late statement could change."""
        connection = self.dialect.stash_connection()
        columns = "lane, lanes, token, epoch, holder, metrics, transacting, sender, location"
        queries = {
            "rows": "SELECT id, leader_id FROM outbox ORDER BY id",
            "fence": f"SELECT {columns} FROM outbox_fence ORDER BY lane",
            "letters": "SELECT id, status, reason FROM outbox_dead_letters ORDER BY id",
        }
        found = {}
        with closing(connection):
            for name, query in queries.items():
                cursor = connection.cursor()
                cursor.execute(query)
                found[name] = cursor.fetchall()
        return found


Late = Callable[[Hand], object]

FENCED: Mapping[str, Late] = {
    "mark": lambda hand: hand.table.mark(hand.fence, hand.leader, 10),
    "purge": lambda hand: hand.table.purge(hand.fence, hand.leader, [1, 2]),
    "reset": lambda hand: hand.table.reset(hand.fence, hand.leader, [1, 2]),
    "park": lambda hand: hand.table.park(hand.fence, hand.leader, [Poison(1, "late", 1)], [1, 2]),
    "park unmarked": lambda hand: hand.table.park(hand.fence, None, [Poison(1, "late", 1)]),
    "advance": lambda hand: hand.table.advance(hand.fence, [Batch.of([1, 2])], [], 10),
    "heartbeat": lambda hand: hand.table.heartbeat(hand.fence, {"late": 1}),
    "note": lambda hand: hand.table.set_transactional(hand.fence, TransactionalLane(1, "late", "here")),
}
"""What a lane sends under its fence."""

CHANGES: Mapping[str, bytes] = {
    "mark": b"UPDATE",
    "purge": b"DELETE",
    "reset": b"UPDATE",
    "park": b"INSERT",
    "park unmarked": b"INSERT",
    "advance": b"DELETE",
    "heartbeat": b"UPDATE",
    "note": b"UPDATE",
}
"""What the statement that changes something begins with."""

PARTS = ("fence", "change", "commit")
"""Which statement of a transaction arrives late."""


def patiently(act: Callable[[], int]) -> int:
    """Repeats what waits in vain for a lock, as harvesters do."""
    until = time.monotonic() + 60
    while True:
        try:
            return act()
        except DriverError as error:
            if not error.retryable or time.monotonic() > until:
                raise


def postgres(dsn: str, port: int | None = None) -> Dialect:
    driver = find(Seam.DIALECT, "postgres")
    source = dsn if port is None else make_conninfo(dsn, host="127.0.0.1", port=port)
    made: Dialect = driver.create(driver.options(data_source=source))
    return made


def mysql(dsn: str, port: int | None = None) -> Dialect:
    driver = find(Seam.DIALECT, "mysql")
    source = f"{dsn if port is None else dsn.replace(_port_of(dsn), str(port))}?ssl-mode=DISABLED"
    made: Dialect = driver.create(driver.options(data_source=source, lock_timeout=1.0, idle_timeout=3.0))
    return made


def _port_of(dsn: str) -> str:
    return dsn.rpartition(":")[2].partition("/")[0]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def opened(make: Callable[..., Dialect], driver: str, dsn: str, port: int, stack: ExitStack) -> Site:
    dialect = make(dsn)
    dialect.create()
    with closing(dialect.stash_connection()) as connection:
        Stasher(dialect=driver).stash_many(
            connection, [Record("orders", f"k{number}", "v") for number in range(RECORDS)]
        )
        connection.commit()
    proxy = stack.enter_context(LateProxy(lambda: port))
    return Site(dialect, proxy, make(dsn, proxy.port), stack)


@pytest.fixture
def on_postgres(postgres_dsn: str, stack: ExitStack) -> Site:
    port = int(str(conninfo_to_dict(postgres_dsn)["port"]))
    return opened(postgres, "postgres", postgres_dsn, port, stack)


@pytest.fixture(params=["mysql", "mariadb"])
def on_mysql(request: pytest.FixtureRequest, stack: ExitStack) -> Site:
    dsn: str = request.getfixturevalue(f"{request.param}_dsn")
    return opened(mysql, "mysql", dsn, int(_port_of(dsn)), stack)


def give_up(site: Site, hand: Hand, late: Late, *parts: bytes) -> None:
    """Has a statement kept on its way; its client learns that the connection is lost."""
    site.proxy.keep(lambda data: any(part in data for part in parts))
    with pytest.raises(DriverError) as lost:
        late(hand)
    assert not isinstance(lost.value, LeadershipLost)
    assert site.proxy.kept.is_set()


def token_of(hand: Hand) -> tuple[bytes, ...]:
    """Returns how PostgreSQL's client may write the token, as statements have names after a while."""
    token = hand.fence.token
    return str(token).encode(), token.to_bytes(4), token.to_bytes(8)


@pytest.mark.slow
@pytest.mark.parametrize("anew", ["leader", "epoch"])
@pytest.mark.parametrize("what", FENCED)
def test_what_arrives_late_on_postgres_changes_nothing(on_postgres: Site, what: str, anew: str) -> None:
    site = on_postgres
    hand = site.lead(site.distant)
    hand.mark()
    give_up(site, hand, FENCED[what], *token_of(hand))
    if anew == "leader":
        successor = site.lead()
    else:
        table = site.stack.enter_context(closing(site.dialect.connect()))
        successor = Hand(table, table.enter(0, 1, hand.fence.token))
    assert successor.mark() == [1, 2, 3]
    before = site.state()
    assert site.proxy.deliver(), "the server has executed it"
    assert site.state() == before
    assert successor.table.purge(successor.fence, successor.leader, [1, 2, 3]).rows == RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("what", FENCED)
def test_what_arrives_late_on_postgres_is_done_while_nobody_else_has_come(
    on_postgres: Site, what: str
) -> None:
    site = on_postgres
    hand = site.lead(site.distant)
    if what != "mark":
        hand.mark()
    give_up(site, hand, FENCED[what], *token_of(hand))
    before = site.state()
    site.proxy.deliver()
    assert site.state() != before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "part"),
    # Heartbeats and notes compare the fence in the statement that changes it.
    [
        (what, part)
        for what in FENCED
        for part in PARTS
        if part != "fence" or what not in {"heartbeat", "note"}
    ],
)
def test_what_arrives_late_on_mysql_changes_nothing(on_mysql: Site, what: str, part: str) -> None:
    """Whoever comes next waits until the server has ended the transaction that holds the fence."""
    site = on_mysql
    hand = site.lead(site.distant)
    hand.mark()
    if part == "change" and what == "mark":
        hand.table.reset(hand.fence, hand.leader, [1, 2, 3])  # so that there is one
    words = {"fence": b"LOCK IN SHARE MODE", "change": CHANGES[what], "commit": b"\x03COMMIT"}
    give_up(site, hand, FENCED[what], words[part])
    successor = site.lead()
    assert successor.mark() == [1, 2, 3]
    before = site.state()
    site.proxy.deliver()
    assert site.state() == before
    assert successor.table.purge(successor.fence, successor.leader, [1, 2, 3]).rows == RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("what", ["bump", "enter"])
def test_a_late_claim_of_the_fence_costs_a_new_start_and_no_row(on_postgres: Site, what: str) -> None:
    site = on_postgres
    hand = site.lead(site.distant)
    if what == "enter":
        give_up(site, hand, lambda each: each.table.enter(0, 1, each.fence.token), *token_of(hand))
        leader = site.lead()
        site.proxy.deliver()
        assert leader.mark() == [1, 2, 3], "it names another token"
        return
    give_up(site, hand, lambda each: each.table.bump(1, "late"), b"BEGIN")
    leader = site.lead()
    site.proxy.deliver()
    assert leader.mark() == [1, 2, 3], "only the beginning of the transaction has arrived"


@pytest.mark.slow
def test_a_late_enter_under_the_same_token_costs_a_new_start_and_no_row(on_postgres: Site) -> None:
    site = on_postgres
    hand = site.lead(site.distant)
    give_up(site, hand, lambda each: each.table.enter(0, 1, each.fence.token), *token_of(hand))
    table = site.stack.enter_context(closing(site.dialect.connect()))
    again = Hand(table, table.enter(0, 1, hand.fence.token))
    again.mark()
    site.proxy.deliver()
    with pytest.raises(LeadershipLost):
        again.mark()
    assert site.lead().mark() == [1, 2, 3]


@pytest.mark.slow
def test_a_bump_whose_commit_arrives_late_is_over_before_the_next(on_postgres: Site) -> None:
    site = on_postgres
    hand = site.lead(site.distant)
    give_up(site, hand, lambda each: each.table.bump(1, "late"), b"COMMIT")
    began = time.monotonic()
    leader = site.lead()  # waits until the server has ended the late one's transaction
    assert 5 < time.monotonic() - began < 30
    before = site.state()
    site.proxy.deliver()
    assert site.state() == before
    assert leader.mark() == [1, 2, 3]
