"""A leader whose database accepts everything and answers nothing: a standby leads that has answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from .faults.proxy import Proxy
from .harvesters import Fleet, Measure
from .shop import Shop

STATEMENT_SECONDS = 30.0
"""The default of ``statementTimeout``; the client waits five seconds more."""
SLACK = 20.0
"""Seconds that a busy machine may take longer; less than counting from the statement's end would take."""


@pytest.fixture
def proxy(shop: Shop) -> Iterator[Proxy]:
    with psycopg.connect(shop.dsn) as connection:
        port = connection.info.port
    with closing(Proxy(lambda: port)) as proxy:
        yield proxy


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_standby_leads_once_a_statement_has_had_no_answer_for_its_time(
    shop: Shop, fleet: Fleet, proxy: Proxy, measure: Measure, delivery: str
) -> None:
    through = make_conninfo(shop.dsn, host="127.0.0.1", port=proxy.port)
    leader = fleet.start("a", elector="neli-kafka", delivery=delivery, dataSource=through)
    leader.wait_for("leader acquired", 120)
    standby = fleet.start("b", elector="neli-kafka", delivery=delivery)
    standby.wait_for("joined the election", 120)
    shop.stash(100, keys=10)
    shop.wait_until_harvested(60)
    proxy.silence()
    silent_at = shop.deliveries()[-1]
    shop.stash(100, keys=10, start=101)
    acquired = standby.wait_for("leader acquired", STATEMENT_SECONDS + 5 + SLACK, silent_at)
    measure("silent database to acquired by another", acquired.at - silent_at)
    shop.wait_until_harvested(60)
    proxy.speak()
    result = shop.audit()
    assert (result.lost, result.foreign) == (0, 0), result.summary()
