"""How `outbox check` calls the drivers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from outbox_core.cli.check import _checks, _elector_with_group
from outbox_core.config import parse
from outbox_sdk import DriverError, Finding


class Broker:
    """A publisher's driver and the publisher, which records its calls."""

    driver = "broker"
    options = None

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def create(self) -> "Broker":
        return self

    def check(self, *, transactional: bool) -> Sequence[Finding]:
        self.asked.append(transactional)
        return []


class Outbox:
    """A dialect's driver, the dialect, and the outbox; or a database that is down."""

    driver = "outbox"
    name = "public.outbox"

    def __init__(self, *, away: bool, identity: str | None) -> None:
        self.away = away
        self.identity = identity

    def create(self) -> "Outbox":
        return self

    def watch(self) -> "Outbox":
        if self.away:
            raise DriverError("it is away", retryable=True)
        return self

    def known_identity(self) -> str | None:
        return self.identity

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("away", "identity", "group"),
    [(False, "a1", "outbox-public.outbox-a1"), (False, None, None), (True, "a1", None)],
)
def test_the_elector_is_looked_at_in_the_group_that_the_outbox_names(
    away: bool, identity: str | None, group: str | None
):
    settings = parse("harvest: {}", "f.yaml", {}).harvest
    outbox: Any = Outbox(away=away, identity=identity)
    assert _elector_with_group(replace(settings, dialect=outbox)).options.leader_group_id == group


@pytest.mark.parametrize(("delivery", "transactional"), [("at-least-once", False), ("exactly-once", True)])
def test_transactions_matter_to_exactly_once_only(delivery: str, transactional: bool):
    broker: Any = Broker()
    settings = parse(f"harvest: {{delivery: {delivery}}}", "f.yaml", {}).harvest
    _checks(replace(settings, publisher=broker))["publisher broker"]()
    assert broker.asked == [transactional]


def test_the_publisher_is_told_which_topics_records_may_name():
    settings = parse("harvest: {topics: [sales, stock-*]}", "f.yaml", {}).harvest
    assert settings.publisher.options.topics == ("sales", "stock-*")
