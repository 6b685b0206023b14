"""Faults of replicated brokers: the runner's tools for them, and a short form with three real brokers."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from .faults.brokers import SETUPS, THREE, Gate
from .faults.fault import EXACTLY_ONCE, Strike
from .faults.judge import Round
from .faults.replica_faults import REPLICA_FAULTS, KillBroker
from .faults.rounds import FAULTS, run_batch
from .faults.site import Site
from .faults.table import Ran, table
from .faults.torn import Part, torn
from .harvesters import Measure, until

SHORT_SESSION = 4.0
"""Of the election, in seconds."""
QUICK = replace(THREE, properties={"broker.session.timeout.ms": "5000"})
"""Brokers that are replaced sooner; a killed one is back before that, but on a very busy machine."""
NAMES = ("broker-at-once", "commits-held")
BATCH = ">qiibIhiqqqhii"
COMMIT, ABORT = 1, 0
COMMIT_REQUEST = bytes.fromhex("00000011 001a 0001 00000007 00066f7574626f78 01")


def batch(producer: int, at: int, attributes: int, records: bytes = b"", epoch: int = 0) -> bytes:
    """Returns a batch as brokers write it into their files."""
    length = struct.calcsize(BATCH) - 12 + len(records)
    return struct.pack(BATCH, 0, length, 0, 2, 0, attributes, 0, at, at, producer, epoch, -1, 1) + records


def data(producer: int, at: int) -> bytes:
    return batch(producer, at, 0x10, b"records")


def marker(producer: int, at: int, kind: int) -> bytes:
    key = struct.pack(">hh", 0, kind)
    return batch(producer, at, 0x30, b"\x20\0\0\0\x08" + key + b"\x0c\0\0\0\0\0\1\0")


def write(folder: Path, *partitions: Sequence[bytes]) -> None:
    for number, batches in enumerate(partitions):
        place = folder / f"shop-1-{number}"
        place.mkdir()
        (place / "00000000000000000000.log").write_bytes(b"".join(batches) + bytes(100))


def test_a_transaction_with_two_outcomes_is_torn(tmp_path: Path) -> None:
    write(
        tmp_path,
        [data(7, 1000), marker(7, 1010, COMMIT), data(7, 1020), marker(7, 1300, COMMIT)],
        [data(7, 1000), marker(7, 1010, COMMIT), data(7, 1021), marker(7, 1400, ABORT)],
        [data(8, 1020), marker(8, 1400, ABORT), marker(7, 1400, ABORT)],
    )
    (found,) = torn(tmp_path, "shop-1")
    assert found == [
        Part((7, 0), "shop-1-0", 1020, 1020, committed=True),
        Part((7, 0), "shop-1-1", 1021, 1021, committed=False),
    ]
    assert torn(tmp_path, "shop") == []


def test_transactions_that_follow_each_other_are_not_torn(tmp_path: Path) -> None:
    write(
        tmp_path,
        [data(7, 1000), marker(7, 1010, COMMIT), data(7, 1011), marker(7, 1400, ABORT)],
        [data(7, 1008), marker(7, 1400, ABORT), data(7, 1500)],
    )
    assert torn(tmp_path, "shop-1") == []


def test_a_gate_holds_commits_until_it_opens() -> None:
    gate = Gate()
    see = gate.watch()
    see(COMMIT_REQUEST, True)  # it is open
    with gate.closed():
        see(b"another request", True)
        see(COMMIT_REQUEST, False)  # an answer
        held = Thread(target=see, args=(COMMIT_REQUEST, True))
        held.start()
        until(lambda: gate.held, "it is held", 60)
        assert held.is_alive()
        gate.open()
        held.join(60)
        assert not held.is_alive()
    assert gate.held == 1


def test_the_table_sums_up_the_rounds_of_a_kind() -> None:
    where = ("postgres", "inline", EXACTLY_ONCE)
    first = Round(KillBroker(), 0, strike=Strike(1.0, facts={"kills": 1}), records=10, lost=2, wrong=["lost"])
    second = Round(KillBroker(), 10, strike=Strike(2.0, facts={"kills": 1}), records=5, torn=1)
    columns, row = table([Ran(where, first), Ran(where, second)]).splitlines()
    assert columns.split()[4:9] == ["rounds", "kills", "records", "lost", "repeated"]
    assert row.split() == [*("broker-at-once", *where), *map(str, (2, 2, 15, 2, 0, 0, 1, 0, 0, 1))]


def test_each_kind_runs_with_the_brokers_that_it_needs() -> None:
    assert {each.setup for each in FAULTS} == set(SETUPS)
    assert all(each.setup.copies == 3 for each in REPLICA_FAULTS)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_faults_of_replicated_brokers_lose_repeat_and_reorder_nothing(
    tmp_path: Path, measure: Measure
) -> None:
    by_name = {fault.name: fault for fault in FAULTS}
    told: list[str] = []
    tell: Callable[[str], None] = told.append
    with Site(
        tmp_path,
        "inline",
        random.Random(7),
        delivery=EXACTLY_ONCE,
        harvesters=1,
        session=SHORT_SESSION,
        setup=QUICK,
    ) as site:
        rounds = run_batch(site, [by_name[name] for name in NAMES], tell)
    assert not any(each.wrong for each in rounds), "\n".join(told)
    assert all(each.records for each in rounds), "a round without records proves nothing"
    for each in rounds:
        measure(f"longest wait of a record, {each.fault.name}", each.stall or 0.0)
