"""The elector ``lease`` does what every elector must, on the databases that there are."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from outbox_core.builtin import LeaseOptions
from outbox_sdk import Lease, Seam, find
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest

SESSION = 3.0
"""Seconds: short, but more than the pauses of a busy machine."""


def connect(dialect: str, options: Any) -> Lease:
    return find(Seam.DIALECT, dialect).create(options).lease()


def lease(dialect: str, **options: Any) -> ElectorUnderTest:
    driver = find(Seam.DIALECT, dialect)
    made = driver.options(**options)
    driver.create(made).create()
    return ElectorUnderTest(
        "lease", LeaseOptions(partial(connect, dialect, made), session_timeout=SESSION), SESSION
    )


class TestLeaseOnPostgres(ElectorConformance):
    @pytest.fixture
    def elector(self, postgres_dsn: str) -> ElectorUnderTest:
        return lease("postgres", data_source=postgres_dsn)


class TestLeaseOnSqlite(ElectorConformance):
    @pytest.fixture
    def elector(self, tmp_path: Path) -> ElectorUnderTest:
        return lease("sqlite", data_source=str(tmp_path / "outbox.db"))
