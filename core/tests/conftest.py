"""What every test of core's stands on."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from outbox_core.cli.json_lines import JsonLines
from outbox_core.cli.logs import Redacting


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Takes away the log handler of a command that ran in this process: its stream ends with the test."""
    yield
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each.formatter, Redacting | JsonLines)]:
        root.removeHandler(handler)
