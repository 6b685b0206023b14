"""What ``outbox check`` says of servers that are far away: real ones, behind proxies that delay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_core.cli.links import ADVICE, Advice
from outbox_core.config.decode import camel
from psycopg.conninfo import make_conninfo

from .faults.proxy import Proxy
from .harvesters import outbox
from .shop import Shop
from .switchboard import Switchboard

MARGIN = 1.2
"""A proxy delays each way by half of this times the round trip that matters."""


@pytest.fixture
def proxies(shop: Shop, switchboard: Switchboard) -> Iterator[Mapping[str, Proxy]]:
    """Of the database and of the broker."""
    with psycopg.connect(shop.dsn) as connection:
        port = connection.info.port
    with closing(Proxy(lambda: port)) as proxy:
        yield {"database": proxy, "broker": switchboard.proxy}
    switchboard.proxy.delay = 0.0


def said(path: Path, shop: Shop, harvest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    path.write_text(json.dumps({"harvest": {"elector": "static", "engine": "inline", **harvest}}))
    findings = outbox(path, "check", "--json")["findings"]
    return [each for each in findings if each["subject"] == "round trips"]


@pytest.mark.slow
@pytest.mark.parametrize("far", ["database", "broker"])
@pytest.mark.parametrize("advice", ADVICE, ids=lambda advice: "-".join(advice.settings))
def test_a_server_that_is_far_away_makes_settings_pay(
    tmp_path: Path, shop: Shop, proxies: Mapping[str, Proxy], advice: Advice, far: str
) -> None:
    proxies[far].delay = MARGIN * advice.least / 2
    harvest = {
        "delivery": advice.delivery,
        "dataSource": make_conninfo(shop.dsn, host="127.0.0.1", port=proxies["database"].port),
        "baseKafkaConfig": {"bootstrap.servers": f"127.0.0.1:{proxies['broker'].port}"},
    }
    most = {camel(name): value for name, (value, _) in advice.settings.items()}
    [told] = said(tmp_path / "outbox.yaml", shop, {**harvest, "limits": most})
    taken = {camel(name): value for name, (_, value) in advice.settings.items()}
    asked = " and ".join(f"{name}: {value}" for name, value in taken.items())
    assert (told["level"], asked in told["cure"]) == ("warning", True), told
    [told] = said(tmp_path / "outbox.yaml", shop, {**harvest, "limits": taken})
    assert told["level"] == "ok", told


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_servers_on_this_machine_are_near(tmp_path: Path, shop: Shop, delivery: str) -> None:
    harvest = {
        "delivery": delivery,
        "dataSource": shop.dsn,
        "baseKafkaConfig": {"bootstrap.servers": shop.kafka.bootstrap},
    }
    [told] = said(tmp_path / "outbox.yaml", shop, harvest)
    assert told["level"] == "ok", told
    assert "(connection)" in told["message"], told
    assert "(Kafka broker)" in told["message"], told
