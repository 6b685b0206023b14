"""The short form of ``python -m tests.faults``: a round of each fast kind, on the inline engine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from .faults.fault import AT_LEAST_ONCE, EXACTLY_ONCE
from .faults.late_faults import LATE_FAULTS
from .faults.rounds import FAULTS, run_batch
from .faults.site import Site
from .harvesters import Measure

FAST = ("lost-replies", "cut-mid-statement", "failover")
REFUSALS = ("read-only", "expired-password", "disk-full")
OUTAGES = ("cut-broker", "database-crash", "broker-crash")
"""These have a test of their own, too: ``test_outages``."""
LEADERS = ("kill-leader", "freeze-leader")
"""Killed and frozen leaders of PostgreSQL have their own tests, with tighter bounds: ``test_takeover``."""
slow = pytest.mark.slow

SHORT_SESSION = 2.0
"""The session timeout in seconds, which the broker of these tests permits."""
SHORT_OPTIONS = {"mysql": {"idleTimeout": "2s"}, "mariadb": {"idleTimeout": "2s"}}
"""Seconds after which the server ends a transaction of a frozen leader."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(FAST, id="fast"),
        pytest.param(REFUSALS, id="refusals", marks=slow),
        pytest.param(OUTAGES, id="outages", marks=slow),
    ],
)
def test_faults_lose_and_reorder_nothing(tmp_path: Path, measure: Measure, names: Sequence[str]) -> None:
    with Site(tmp_path, "inline", random.Random(7), harvesters=2, keeps=True) as site:
        strike(site, names, measure)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("database", "delivery", "names"),
    [
        pytest.param("mysql", AT_LEAST_ONCE, [*LEADERS, "database-crash"], marks=slow),
        pytest.param("mariadb", EXACTLY_ONCE, [*LEADERS, "database-restart", "switchover"], marks=slow),
        pytest.param("sqlite", EXACTLY_ONCE, LEADERS, marks=slow),
    ],
)
def test_other_databases_lose_and_reorder_nothing(
    tmp_path: Path, measure: Measure, database: str, delivery: str, names: Sequence[str]
) -> None:
    with Site(
        tmp_path,
        "inline",
        random.Random(7),
        delivery=delivery,
        database=database,
        options=SHORT_OPTIONS.get(database),
        harvesters=2,
        session=SHORT_SESSION,
        keeps=True,
    ) as site:
        strike(site, names, measure)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_rows_of_another_table_are_neither_lost_nor_reordered(tmp_path: Path, measure: Measure) -> None:
    with Site(
        tmp_path,
        "inline",
        random.Random(7),
        delivery=EXACTLY_ONCE,
        intake="order",
        harvesters=2,
        session=SHORT_SESSION,
    ) as site:
        strike(site, ["kill-leader", "locked-row", "switchover"], measure)


@pytest.mark.timeout(400)
@pytest.mark.slow
@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, EXACTLY_ONCE])
@pytest.mark.parametrize("name", [each.name for each in LATE_FAULTS])
def test_late_requests_lose_and_reorder_nothing(
    tmp_path: Path, measure: Measure, name: str, delivery: str
) -> None:
    setup = next(each.setup for each in LATE_FAULTS if each.name == name)
    with Site(tmp_path, "inline", random.Random(7), delivery=delivery, harvesters=2, setup=setup) as site:
        strike(site, [name], measure)


def strike(site: Site, names: Sequence[str], measure: Measure) -> None:
    """Injects faults one after the other, and checks each round."""
    by_name = {fault.name: fault for fault in FAULTS}
    told: list[str] = []
    rounds = run_batch(site, [by_name[name] for name in names], told.append)
    assert not any(each.wrong for each in rounds), "\n".join(told)
    assert all(each.records for each in rounds), "a round without records proves nothing"
    for each in rounds:
        measure(f"longest wait of a record, {each.fault.name}", each.stall or 0.0)
