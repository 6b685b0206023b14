"""The short form of ``python -m tests.faults``: a round of each kind that is quick, inline."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .faults.rounds import FAULTS, run_batch
from .faults.site import Site
from .harvesters import Measure

NAMES = (
    *("lost-replies", "cut-mid-statement", "cut-broker"),
    *("read-only", "expired-password", "disk-full", "database-crash", "broker-crash"),
)
"""Killed and frozen leaders have tests of their own, with tighter bounds: ``test_takeover``."""


@pytest.mark.timeout(300)
def test_faults_lose_and_reorder_nothing(tmp_path: Path, measure: Measure) -> None:
    by_name = {fault.name: fault for fault in FAULTS}
    told: list[str] = []
    with Site(tmp_path, "inline", random.Random(7), harvesters=2) as site:
        rounds = run_batch(site, [by_name[name] for name in NAMES], told.append)
    assert not any(each.wrong for each in rounds), "\n".join(told)
    assert all(each.records for each in rounds), "a round without records proves nothing"
    for each in rounds:
        measure(f"longest wait of a record, {each.fault.name}", each.stall or 0.0)
