"""How `outbox check` calls the drivers."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from outbox_api import DriverError, Finding, Level
from outbox_core.cli.check import _checks, _elector_with_group, connection_checks
from outbox_core.config import parse


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


class Counted:
    """A dialect's driver and the dialect, which says how many connections are left."""

    driver = "counted"

    def __init__(self, free: int | None, data_source: str = "one") -> None:
        self.free = free
        self.options = SimpleNamespace(data_source=data_source)

    def create(self) -> "Counted":
        return self

    def free_connections(self) -> int | None:
        if self.free is not None and self.free < 0:
            raise DriverError("it is away", retryable=True)
        return self.free


def counted(delivery: str, *dialects: Any, looked_at: bool = False, letters: str = "") -> list[Finding]:
    failures = f"failures: {{topic: '{letters}'}}"
    text = f"harvest: {{delivery: {delivery}, limits: {{sendConcurrency: 3}}, elector: lease, {failures}}}"
    settings = parse(text, "f.yaml", {}).harvest
    outboxes = [replace(settings, dialect=each, label=f"box {at}") for at, each in enumerate(dialects)]
    checks = connection_checks(outboxes, looked_at=looked_at)
    return [finding for check in checks.values() for finding in check()]


def test_connections_of_all_outboxes_of_a_database_are_counted_together():
    [once] = counted("exactly-once", Counted(8), Counted(8))
    assert (once.level, once.message.split(",")[0]) == (Level.WARNING, "a process that leads has up to 9")
    [once] = counted("exactly-once", Counted(9), Counted(9))
    assert once.level is Level.OK
    apart = counted("exactly-once", Counted(5, "one"), Counted(4, "other"))
    assert [each.level for each in apart] == [Level.OK, Level.WARNING]
    [least] = counted("at-least-once", Counted(8), looked_at=True)
    assert (least.level, "up to 9, and" in least.message) == (Level.WARNING, True)
    [most] = counted("exactly-once", Counted(5), letters="letters")
    assert (most.level, "up to 6, and" in most.message) == (Level.WARNING, True)


@pytest.mark.parametrize("free", [None, -1])
def test_connections_without_limit_or_of_a_server_that_is_away_are_no_finding(free: int | None):
    assert counted("exactly-once", Counted(free)) == []


@pytest.mark.parametrize(("delivery", "transactional"), [("at-least-once", False), ("exactly-once", True)])
def test_transactions_matter_to_exactly_once_only(delivery: str, transactional: bool):
    broker: Any = Broker()
    settings = parse(f"harvest: {{delivery: {delivery}}}", "f.yaml", {}).harvest
    _checks(replace(settings, publisher=broker))["publisher broker"]()
    assert broker.asked == [transactional]


def test_the_publisher_is_told_which_topics_records_may_name():
    settings = parse("harvest: {topics: [sales, stock-*]}", "f.yaml", {}).harvest
    assert settings.publisher.options.topics == ("sales", "stock-*")


def test_the_chain_of_transforms_is_told():
    chain = "transform: [identity, {driver: headers, remove: [a]}]"
    [found] = _checks(parse(f"harvest: {{dataSource: x, {chain}}}", "f", {}).harvest)["transforms"]()
    assert (found.level, found.message) == (Level.OK, "records pass identity, then headers")
    assert "transforms" not in _checks(parse("harvest: {dataSource: x}", "f", {}).harvest)
