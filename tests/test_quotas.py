"""Exactly-once delivery to a broker with a quota for bytes: it uses the quota, under one leader."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from outbox_servers.services import KafkaBroker
from outbox_servers.services.java import find_java
from outbox_servers.services.kafka_home import class_path, kafka_home

from .harvesters import Fleet, Measure
from .shop import OpenShop, Shop

BYTES_A_SECOND = 50_000
SIZE = 9_900
"""Bytes of a value; the hundred records of a lane's first batch would take twenty seconds."""
RECORDS = 250
BURST_SECONDS = 10
"""A broker looks at so many seconds, so it takes the bytes of as many at once."""


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        java = find_java()
        command = [str(java.executable), "-cp", class_path(kafka_home(java)), "kafka.admin.ConfigCommand"]
        command += ["--bootstrap-server", broker.bootstrap, "--entity-type", "users", "--entity-default"]
        command += ["--alter", "--add-config", f"producer_byte_rate={BYTES_A_SECOND}"]
        subprocess.run(command, check=True, capture_output=True)
        yield broker


@pytest.fixture
def limited_shop(open_shop: OpenShop, broker: KafkaBroker) -> Shop:
    return open_shop(broker)


@pytest.mark.slow
def test_transactions_are_as_large_as_a_quota_permits(
    tmp_path: Path, limited_shop: Shop, measure: Measure
) -> None:
    shop, chance = limited_shop, random.Random(1)
    with closing(shop.database.connect()) as connection:
        for number in range(RECORDS):
            shop.sell(connection, f"customer-{number % 20}", number, chance.randbytes(SIZE // 2).hex())
        connection.commit()
    with closing(Fleet(tmp_path, shop)) as fleet:
        kafka = {"compression.type": "none"}
        harvest: dict[str, Any] = {"elector": "neli-kafka", "delivery": "exactly-once", "limits": {}}
        harvesters = [fleet.start(name, producerKafkaConfig=kafka, **harvest) for name in "ab"]
        fair = RECORDS * SIZE / BYTES_A_SECOND - BURST_SECONDS
        began = time.monotonic()
        shop.wait_until_harvested(2 * fair + 30)
        measure("of so much at the rate of the quota", fair)
        measure("it took, with the start of processes", time.monotonic() - began)
        assert sum(each.count("leader acquired") for each in harvesters) == 1
        assert sum(each.count("a quota of Kafka's is used up") for each in harvesters) == 1
        for each in harvesters:
            for words in ("check that its partition is online", "is due"):
                assert each.count(words) == 0, each.tail()
    result = shop.audit()
    assert (result.lost, result.foreign, result.duplicates) == (0, 0, 0), result.summary()
