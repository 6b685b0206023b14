"""The fault runner's own tools: the audit of rounds, the report, and the proxy."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from outbox_api import Dialect
from outbox_audit import Audit
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .faults import judge
from .faults.fault import AT_LEAST_ONCE, EXACTLY_ONCE, Strike
from .faults.heartbeats import Beats
from .faults.hosts import HOSTS
from .faults.judge import Round
from .faults.late_requests import ADD_PARTITIONS, LateRequests, Moment, What
from .faults.process_faults import KillLeader, LeaveInTurn
from .faults.proxy import MYSQL, Proxy, Trap, commits
from .faults.rounds import FAULTS
from .faults.site import Site
from .faults.witness import Arrival

SOLD = [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


def judged(
    *sequences: int, rounds: list[Round], delivery: str = AT_LEAST_ONCE, note: Callable[[str], object] = str
) -> list[Round]:
    """Audits arrivals of customer a, all of them one second after their commit."""
    arrivals = [Arrival(at, "a", sequence) for at, sequence in enumerate(sequences, 101)]
    arrivals.append(Arrival(200.0, "b", 1))
    site = SimpleNamespace(
        witness=SimpleNamespace(arrivals=arrivals),
        shop=SimpleNamespace(commits=dict.fromkeys(SOLD, 100.0)),
        note=lambda what, **_: note(what),
        delivery=delivery,
    )
    audits: defaultdict[str, Audit] = defaultdict(Audit)
    for key, number in SOLD:
        audits[key].committed(key, number)
    judge._enter(cast("Site", site), rounds, audits)
    judge._enter_stale(cast("Site", site), rounds, audits)
    judge._enter_lost(cast("Site", site), rounds, SOLD)
    judge._enter_waits(cast("Site", site), rounds)
    return rounds


def killed(first: int = 0, leaders: int = 1) -> Round:
    return Round(KillLeader(), first, leaders, Strike(100.0), stall=0.0)


def test_the_judge_counts_what_arrived_and_how_long_it_took() -> None:
    (each,) = judged(1, 2, 2, 3, rounds=[killed()])
    assert (each.records, each.repeated, each.reappeared, each.overtaken, each.lost) == (4, 1, 0, 0, 0)
    assert each.stall == 100.0
    assert not each.wrong


@pytest.mark.parametrize(
    ("sequences", "found"),
    [((1, 3), {"lost": 1}), ((1, 3, 2), {"overtaken": 1}), ((1, 2, 3, 9), {"foreign": 1})],
)
def test_the_judge_sees_each_defect(sequences: tuple[int, ...], found: dict[str, int]) -> None:
    (each,) = judged(*sequences, rounds=[killed()])
    assert {name: getattr(each, name) for name in found} == found


def test_a_lost_leader_may_leave_one_stale_run_of_a_key_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "RUN", 1)
    (each,) = judged(1, 2, 3, 1, rounds=[killed()])
    assert (each.reappeared, each.stale, each.wrong) == (1, 1, [])
    (each,) = judged(1, 2, 3, 1, 2, rounds=[killed()])
    assert each.wrong == ["2 stale copies of a key after 1 lost leaders"]
    (each,) = judged(1, 2, 3, 1, rounds=[Round(LeaveInTurn(), 0, 0, Strike(100.0), stall=0.0)])
    assert each.wrong == ["1 stale copies of a key after 0 lost leaders"]


def test_what_is_followed_again_is_not_stale() -> None:
    first, second = judged(1, 2, 3, 1, 2, 3, rounds=[killed(leaders=0), killed(first=2, leaders=0)])
    assert (second.reappeared, first.stale, second.stale) == (2, 0, 0)
    assert not second.wrong


def test_each_round_gets_what_arrived_in_it() -> None:
    first, second = judged(1, 2, 1, 3, rounds=[killed(), killed(first=2)])
    assert (first.records, first.reappeared) == (2, 0)
    assert (second.records, second.reappeared) == (2, 1)


def test_a_duplicate_is_noted_where_there_may_be_none() -> None:
    noted: list[str] = []
    judged(1, 2, 2, 3, rounds=[killed()], delivery=EXACTLY_ONCE, note=noted.append)
    assert noted == ["duplicate"]


def test_what_lanes_count_is_told_by_when_it_rose() -> None:
    beats = Beats(cast("Dialect", None))
    beats._readings[1, 0, 1] = {10.0: {"recovered": 3}, 12.0: {"recovered": 4}, 11.0: {"recovered": 3}}
    beats._readings[1, 0, 2] = {13.0: {"recovered": 0}, 14.0: {"recovered": 2}}
    assert beats.risen("recovered") == [(10.0, 3), (12.0, 1), (14.0, 2)]
    assert beats.risen("aborted") == []


def request(kind: int, version: int, end: bytes) -> bytes:
    body = kind.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\7" + b"\0\5outbox" + end
    return len(body).to_bytes(4) + body


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (request(26, 1, b"\1"), True),
        (request(26, 3, b"\1\0"), True),
        (request(26, 1, b"\0"), False),  # aborts
        (request(25, 1, b"\1"), False),
        (request(26, 1, b"\1") + b"more", False),
        (b"\0", False),
    ],
)
def test_a_request_to_commit_is_known(data: bytes, found: bool) -> None:
    assert commits(data) == found


@pytest.fixture
def arrived() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a broker that refuses each request for its epoch, and what it has received."""
    requests: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            client, _ = listener.accept()
            with client:
                requests.append(client.recv(1000))
                client.sendall(b"\0\0\0\x0a" + b"\0\0\0\7" + bytes(4) + b"\0\x2f")

    Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1], requests
    with socket.create_connection(listener.getsockname()) if not requests else socket.socket():
        pass


COMMIT, ADD = request(26, 1, b"\1"), request(ADD_PARTITIONS, 0, b"")


def test_a_repeated_request_arrives_in_the_next_transaction_of_its_client(
    arrived: tuple[int, list[bytes]],
) -> None:
    port, requests = arrived
    late = LateRequests()
    late.keep(What.COMMIT, Moment(ADD_PARTITIONS, 2))
    first, second = late.watch(lambda: port), late.watch(lambda: port)
    with pytest.raises(ConnectionAbortedError):
        first(COMMIT, True)
    for data in COMMIT, ADD[:9], ADD[9:] + request(ADD_PARTITIONS, 0, b"")[:13]:
        second(data, True)
        assert requests == []
    second(ADD[13:], True)
    assert requests == [COMMIT]
    assert (late.kept, late.answers) == (1, {"epoch": 1})


def test_a_request_is_kept_of_the_kind_that_was_asked_for() -> None:
    late = LateRequests()
    late.keep(What.ABORT, Moment(ADD_PARTITIONS))
    see = late.watch(lambda: 1)
    see(COMMIT, True)
    see(request(26, 1, b"\0"), False)  # not from the client
    assert late.kept == 0
    late.forget()
    see(request(26, 1, b"\0"), True)
    assert late.kept == 0


def test_a_request_to_commit_is_known_of_mysql() -> None:
    assert MYSQL.asks(b"\7\0\0\0\3COMMIT")
    assert not MYSQL.asks(b"\x09\0\0\0\3ROLLBACK")


@pytest.mark.parametrize(
    ("database", "kinds"),
    [
        ("postgres", {"kill-leader", "database-crash", "read-only"}),
        ("mariadb", {"kill-leader", "database-crash", "read-only"}),
        ("sqlite", {"kill-leader"}),
    ],
)
def test_a_fault_exists_where_the_database_can_do_what_it_needs(database: str, kinds: set[str]) -> None:
    asked = [each for each in FAULTS if each.name in ("kill-leader", "database-crash", "read-only")]
    assert {each.name for each in asked if each.fits(HOSTS[database], "inline", AT_LEAST_ONCE)} == kinds


@pytest.fixture
def proxied(postgres_dsn: str) -> Iterator[tuple[Proxy, Any]]:
    """A proxy to a database with a table, and a connection through it."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE things (thing INTEGER)")
    proxy = Proxy(lambda: int(conninfo_to_dict(postgres_dsn)["port"] or 0))
    with psycopg.connect(make_conninfo(postgres_dsn, port=proxy.port), autocommit=True) as through:
        through.execute("INSERT INTO things VALUES (1)")
        yield proxy, through
    proxy.close()


@pytest.mark.parametrize(("trap", "things"), [(Trap.HALF, 1), (Trap.REPLY, 2)])
def test_a_trap_cuts_before_or_after_the_commit(
    proxied: tuple[Proxy, Any], postgres_dsn: str, trap: Trap, things: int
) -> None:
    proxy, through = proxied
    proxy.set_trap(trap)
    with pytest.raises(psycopg.OperationalError):
        through.execute("INSERT INTO things VALUES (2)")
    assert proxy.sprung == 1
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM things").fetchone() == (things,)
