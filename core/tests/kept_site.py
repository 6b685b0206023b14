"""For tests of what is served of kept records: a configuration of an outbox that keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from outbox_core.settings import Settings

from .http_server import OPERATORS, VIEWER, settings_of

DATABASES = ("postgres", "sqlite")


def keeping(driver: str, source: str, *, create: bool = True) -> Settings:
    """Returns the settings of an outbox that keeps records, which it creates; with a viewer and operators."""
    dialect = {"driver": driver, "keep": {"for": "24h"}}
    harvest = {"dialect": dialect, "dataSource": source, "elector": "static"}
    made = settings_of(harvest, viewerTokens=[VIEWER], operatorTokens=OPERATORS)
    if create:
        made.harvest.dialect.create().create()
    return made


def keeping_for(request: pytest.FixtureRequest, folder: Path) -> Settings:
    """Returns those of the database that a fixture's parameter names, of ``DATABASES``."""
    is_file = request.param == "sqlite"
    source = str(folder / "outbox.db") if is_file else request.getfixturevalue("postgres_dsn")
    return keeping(request.param, source)
