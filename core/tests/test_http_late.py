"""Requests that a proxy repeats long after they were answered: what they name is gone, so nothing is done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import OutboxTable, Poison
from outbox_core.settings import HarvestSettings

from .http_server import ALICE, Server, serving
from .test_http_api import settings_for
from .test_operations_services import KEYS, park


class Operator:
    """Sends verbs, and the same bytes again when everybody has forgotten them."""

    def __init__(self, site: Server) -> None:
        self._site = site

    def post(self, verb: str, code: int = 200, **body: object) -> Any:
        headers = [("Authorization", f"Bearer {ALICE}"), ("Content-Type", "application/json")]
        answered = self._site.ask("POST", f"/api/{verb}", *headers, body=json.dumps(body))
        assert answered.code == code, answered
        return json.loads(answered.text)


@pytest.fixture
def box(postgres_dsn: str) -> HarvestSettings:
    """Three parked keys with two records each."""
    made = settings_for(postgres_dsn).harvest
    park(made)
    return made


@pytest.fixture
def table(box: HarvestSettings) -> Iterator[OutboxTable]:
    with closing(box.dialect.create().connect()) as opened:
        yield opened


@pytest.fixture
def operator(postgres_dsn: str, box: HarvestSettings) -> Iterator[Operator]:
    with serving(settings_for(postgres_dsn)) as site:
        yield Operator(site)


def park_next(table: OutboxTable) -> list[int]:
    """Parks the next record of each key that is free; returns their ids."""
    fence, leader = table.enter(0, 1, table.bump(1, "leader")), uuid4()
    marked = table.mark(fence, leader, 10)
    heads = {record.key: record.id for record in reversed(marked)}
    poisons = [Poison(number, "too large", 5) for number in heads.values()]
    assert table.park(fence, leader, poisons, [each.id for each in marked]).rows == len(poisons)
    return sorted(heads.values())


def letters(box: HarvestSettings) -> dict[int, str]:
    with closing(box.dialect.create().dead_letters(read_only=True)) as dead:
        return {each.record.id: str(each.status) for each in dead.find()}


def test_a_late_skip_leaves_the_next_parked_record_of_the_key(
    box: HarvestSettings, operator: Operator, table: OutboxTable
) -> None:
    heads = sorted(letters(box))
    assert operator.post("skip", ids=heads)["changed"] == heads
    following = park_next(table)
    assert len(following) == len(KEYS)
    assert "none of these dead letters" in operator.post("skip", 409, ids=heads)["error"]
    assert letters(box) == dict.fromkeys(heads, "skipped") | dict.fromkeys(following, "parked")


def test_a_late_redrive_stashes_nothing_again(
    box: HarvestSettings, operator: Operator, table: OutboxTable
) -> None:
    heads = sorted(letters(box))
    operator.post("skip", ids=heads)
    assert operator.post("redrive", ids=heads)["changed"] == heads
    operator.post("redrive", 409, ids=heads)
    assert table.backlog().records == 2 * len(KEYS)


def test_a_late_retry_tries_the_same_record_and_no_other(
    box: HarvestSettings, operator: Operator, table: OutboxTable
) -> None:
    heads = sorted(letters(box))
    assert operator.post("retry", ids=heads)["changed"] == heads
    assert park_next(table) == heads
    assert operator.post("retry", ids=heads)["changed"] == heads
    assert table.backlog().records == 2 * len(KEYS)


def test_a_late_takeover_does_not_begin_again(operator: Operator, table: OutboxTable) -> None:
    seen = table.lane_statuses()[0].fence.token
    begun = operator.post("take-over", cluster=2, reason="moving", fence_token=seen)
    ended = operator.post("end-takeover", cluster=2, fence_token=begun["token"])
    late = operator.post("take-over", 409, cluster=2, reason="moving", fence_token=seen)
    assert "nothing was done: the fence has changed meanwhile" in late["error"]
    again = operator.post("take-over", cluster=2, reason="again", fence_token=ended["token"])
    operator.post("end-takeover", 409, cluster=2, fence_token=begun["token"])
    assert [each.reason for each in table.takeovers()] == ["again"]
    assert table.lane_statuses()[0].fence.token == again["token"]
