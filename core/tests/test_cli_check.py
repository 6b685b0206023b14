"""What `outbox check` asks of the drivers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from outbox_core.cli.check import _looks
from outbox_core.config import parse
from outbox_sdk import Finding


class Broker:
    """A publisher's driver and the publisher, which keeps what it was asked."""

    driver = "broker"
    options = None

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def create(self) -> "Broker":
        return self

    def check(self, *, transactional: bool) -> Sequence[Finding]:
        self.asked.append(transactional)
        return []


@pytest.mark.parametrize(("delivery", "transactional"), [("at-least-once", False), ("exactly-once", True)])
def test_transactions_matter_to_exactly_once_only(delivery: str, transactional: bool):
    broker: Any = Broker()
    settings = parse(f"harvest: {{delivery: {delivery}}}", "f.yaml", {}).harvest
    _looks(replace(settings, publisher=broker))["publisher broker"]()
    assert broker.asked == [transactional]
