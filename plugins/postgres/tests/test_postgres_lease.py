"""The lease: what renewals and standbys cost the server, and who gets it when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from outbox_api import AccessDenied, DriverError
from outbox_api.election import LeaseElector, LeaseTimes, WatchedLease
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_postgres.lease import PostgresLease
from outbox_servers.services import PostgresServer
from outbox_testkit.conformance.recording import RecordingCandidate
from psycopg.conninfo import make_conninfo

from .outbox_hands import WAITING, Outbox, until

RENEWALS = 500
ROW = "name = 'public.outbox'"
FOR_A_MINUTE = "SELECT setval('outbox_lease', (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 60000)"

Open = Callable[..., PostgresLease]


@pytest.fixture(scope="module")
def postgres_server(own_postgres: PostgresServer) -> PostgresServer:
    return own_postgres


@pytest.fixture
def open_lease(outbox: Outbox) -> Iterator[Open]:
    """Connects to the outbox's lease, or to that of other options."""
    opened: list[PostgresLease] = []

    def connect(dsn: str = outbox.dsn, **options: Any) -> PostgresLease:
        opened.append(PostgresDialect(PostgresOptions(data_source=dsn, **options)).lease())
        return opened[-1]

    yield connect
    for lease in opened:
        lease.close()


def column(outbox: Outbox, select: str) -> Any:
    row = outbox.admin.execute(select.encode()).fetchone()
    assert row is not None
    return row[0]


def test_renewals_leave_no_row_version_while_a_snapshot_is_held_open(
    outbox: Outbox, open_lease: Open
) -> None:
    leader = open_lease()
    number = leader.take("leader", 60)
    leader.take("leader", 60)
    with psycopg.connect(outbox.dsn) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM outbox_fence_lease")
        where = f"SELECT ctid::text || xmin::text FROM outbox_fence_lease WHERE {ROW}"
        before = column(outbox, where)
        sizes = "SELECT pg_relation_size('outbox_fence_lease') + pg_relation_size('outbox_lease')"
        size = column(outbox, sizes)
        assert {leader.take("leader", 60) for _ in range(RENEWALS)} == {number}
        assert column(outbox, where) == before, "the row has another version"
        assert column(outbox, sizes) == size


def test_who_does_not_get_the_lease_writes_nothing_and_waits_for_no_lock(
    outbox: Outbox, open_lease: Open, pool: ThreadPoolExecutor
) -> None:
    leader, standby = open_lease(), open_lease()
    leader.take("leader", 60)
    blocker = outbox.session()
    blocker.execute(f"SELECT FROM outbox_fence_lease WHERE {ROW} FOR UPDATE")
    next_transaction = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
    before = column(outbox, next_transaction)
    for _ in range(20):
        assert pool.submit(standby.take, "standby", 60).result(60) is None
    assert column(outbox, next_transaction) == before, "a standby has used a transaction id"


def take_during_a_renewal(
    outbox: Outbox, pool: ThreadPoolExecutor, lease: PostgresLease, seconds: float
) -> int | None:
    """Returns what a process gets that asks for a lease while another one renews it for a minute."""
    renewal = outbox.session()
    renewal.execute(f"SELECT FROM outbox_fence_lease WHERE {ROW} FOR NO KEY UPDATE")
    taken = pool.submit(lease.take, "standby", seconds)
    until(lambda: column(outbox, WAITING) == 1)
    renewal.execute(FOR_A_MINUTE)
    renewal.commit()
    return taken.result(60)


def test_a_lease_that_is_renewed_while_another_process_waits_for_it_is_not_taken(
    outbox: Outbox, open_lease: Open, pool: ThreadPoolExecutor
) -> None:
    leader, standby = open_lease(), open_lease()
    number = leader.take("leader", 0.001)
    time.sleep(0.01)
    assert take_during_a_renewal(outbox, pool, standby, 60) is None
    assert leader.take("leader", 60) == number


def test_a_lease_that_is_renewed_while_a_process_that_saw_no_renewal_waits_for_it_is_not_taken(
    outbox: Outbox, open_lease: Open, pool: ThreadPoolExecutor
) -> None:
    leader, standby = open_lease(), open_lease()
    number = leader.take("leader", 0.5)
    outbox.admin.execute(FOR_A_MINUTE)
    assert standby.take("standby", 0.5) is None
    time.sleep(0.6)
    assert take_during_a_renewal(outbox, pool, standby, 0.5) is None
    assert leader.take("leader", 60) == number


@pytest.mark.parametrize("step", [-3600, 3600])
def test_whatever_the_clock_has_done_a_dead_leader_is_replaced(
    outbox: Outbox, open_lease: Open, step: int
) -> None:
    dead = open_lease().take("dead", 1)
    outbox.admin.execute(f"SELECT setval('outbox_lease', last_value - {step * 1000}) FROM outbox_lease")
    elector = LeaseElector(open_lease, LeaseTimes(session_timeout=1), "e")
    candidate = RecordingCandidate()
    elector.start(candidate)
    candidate.wait(["acquired"])
    assert open_lease().take("dead", 1) is None
    elector.stop()
    assert dead is not None


def test_a_clock_that_goes_forward_lets_another_lead_and_the_former_leader_learns_it_by_its_renewal(
    outbox: Outbox, open_lease: Open
) -> None:
    electors = [LeaseElector(open_lease, LeaseTimes(session_timeout=3600), "e") for _ in range(2)]
    one, other = candidates = [RecordingCandidate() for _ in electors]
    electors[0].start(one)
    one.wait(["acquired"])
    electors[1].start(other)
    outbox.admin.execute("SELECT setval('outbox_lease', last_value - 3600000) FROM outbox_lease")
    for candidate in candidates:
        candidate.wait(["acquired"])
    one.wait(["acquired", "fenced"])
    assert other.story == ["acquired"]
    for elector in electors:
        elector.stop()


def test_a_former_holder_that_waits_behind_its_successor_does_not_renew(
    outbox: Outbox, open_lease: Open, pool: ThreadPoolExecutor
) -> None:
    leader = open_lease()
    leader.take("leader", 0.001)
    successor = outbox.session()
    successor.execute(f"UPDATE outbox_fence_lease SET holder = 'successor', term = term + 1 WHERE {ROW}")
    renewed = pool.submit(leader.take, "leader", 60)
    until(lambda: column(outbox, WAITING) == 1)
    successor.execute(FOR_A_MINUTE)
    successor.commit()
    assert renewed.result(60) is None


def test_a_standby_hears_of_a_release_at_once_and_sleeps_no_longer_than_the_lease(
    outbox: Outbox, open_lease: Open, pool: ThreadPoolExecutor
) -> None:
    leader, standby = open_lease(), open_lease()
    assert isinstance(standby, WatchedLease)
    leader.take("leader", 60)
    assert standby.take("standby", 60) is None
    waiting = pool.submit(standby.wait, 3600)
    time.sleep(0.1)
    assert not waiting.done()
    leader.release("leader")
    waiting.result(60)
    assert standby.take("standby", 0.3) is not None
    began = time.monotonic()
    while leader.take("leader", 60) is None:
        leader.wait(3600)
    assert time.monotonic() - began < 60


def test_many_that_come_at_once_find_one_lease(
    outbox: Outbox, open_lease: Open, pool: ThreadPoolExecutor
) -> None:
    for _ in range(3):
        outbox.admin.execute("SELECT setval('outbox_lease', 1)")
        leases = list(pool.map(lambda _: open_lease(), range(8)))
        taken = list(pool.map(lambda each: each.take(str(id(each)), 60), leases))
        assert sum(number is not None for number in taken) == 1, taken
        for lease in leases:
            lease.close()


def test_two_spellings_of_a_table_are_one_lease(open_lease: Open) -> None:
    one, other = open_lease(table="outbox"), open_lease(table='PUBLIC."outbox"')
    assert one.take("one", 60) is not None
    assert other.take("other", 60) is None


def test_a_missing_sequence_and_a_missing_grant_are_told_with_their_cure(
    outbox: Outbox, open_lease: Open, user: tuple[str, str]
) -> None:
    name, dsn = user
    for grant in (
        "outbox",
        "outbox_fence",
        "outbox_fence_notes",
        "outbox_fence_lease",
        "outbox_dead_letters",
    ):
        outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {grant} TO {name}".encode())
    outbox.admin.execute("DROP SEQUENCE outbox_lease")
    with pytest.raises(DriverError, match=r'sequence "public"."outbox_lease".*: run .outbox init.'):
        open_lease(dsn)
    assert column(outbox, "SELECT to_regclass('outbox_lease')") is None
    outbox.dialect.create()
    with pytest.raises(AccessDenied, match="GRANT SELECT, UPDATE ON SEQUENCE") as refused:
        open_lease(dsn)
    outbox.admin.execute(str(refused.value).split("may run: ")[1].encode())
    assert open_lease(dsn).take("one", 60) == 0


def test_long_names_of_tables_have_leases_of_their_own(outbox: Outbox, open_lease: Open) -> None:
    names = [f"{'o' * 60}{letter}" for letter in "ab"]
    leases = []
    for table in names:
        options = PostgresOptions(data_source=outbox.dsn, table=table, fence_table="outbox_fence")
        PostgresDialect(options).create()
        leases.append(open_lease(table=table, fence_table="outbox_fence"))
    assert leases[0].take("one", 60) == 0
    assert leases[1].take("other", 0.001) == 0
    time.sleep(0.01)
    assert leases[0].take("other", 60) is None


def test_a_lease_survives_a_crash_of_the_server() -> None:
    with PostgresServer() as server:
        dsn = make_conninfo(server.dsn)
        dialect = PostgresDialect(PostgresOptions(data_source=dsn))
        dialect.create()
        leader = dialect.lease()
        number = leader.take("leader", 60)
        leader.take("leader", 60)
        server.restart("immediate")
        leader.close()
        standby, leader = dialect.lease(), dialect.lease()
        assert standby.take("standby", 60) is None
        assert leader.take("leader", 60) == number
        standby.close()
        leader.close()
