"""The short form of ``python -m tests.faults``: a round of each fast kind, on the inline engine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from .faults.fault import AT_LEAST_ONCE, EXACTLY_ONCE
from .faults.rounds import FAULTS, run_batch
from .faults.site import Site
from .harvesters import Measure

NAMES = (
    *("lost-replies", "cut-mid-statement", "cut-broker"),
    *("read-only", "expired-password", "disk-full", "database-crash", "broker-crash", "failover"),
)
"""Killed and frozen leaders have their own tests, with tighter bounds: ``test_takeover``."""
LEADERS = ("kill-leader", "freeze-leader")
SHORT_SESSION = 2.0
"""The session timeout in seconds, which the broker of these tests permits."""
SHORT_OPTIONS = {"mysql": {"idleTimeout": "2s"}, "mariadb": {"idleTimeout": "2s"}}
"""Seconds after which the server ends a transaction of a frozen leader."""


@pytest.mark.timeout(400)
def test_faults_lose_and_reorder_nothing(tmp_path: Path, measure: Measure) -> None:
    with Site(tmp_path, "inline", random.Random(7), harvesters=2) as site:
        strike(site, NAMES, measure)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("database", "delivery", "names"),
    [
        ("mysql", AT_LEAST_ONCE, [*LEADERS, "database-crash"]),
        ("mariadb", EXACTLY_ONCE, [*LEADERS, "database-restart", "switchover"]),
        ("sqlite", EXACTLY_ONCE, LEADERS),
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
    ) as site:
        strike(site, names, measure)


def strike(site: Site, names: Sequence[str], measure: Measure) -> None:
    """Injects faults one after the other, and checks each round."""
    by_name = {fault.name: fault for fault in FAULTS}
    told: list[str] = []
    rounds = run_batch(site, [by_name[name] for name in names], told.append)
    assert not any(each.wrong for each in rounds), "\n".join(told)
    assert all(each.records for each in rounds), "a round without records proves nothing"
    for each in rounds:
        measure(f"longest wait of a record, {each.fault.name}", each.stall or 0.0)
