"""The conformance suite of publishers, with and without transactions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from outbox_testkit.conformance import (
    PublisherConformance,
    PublisherUnderTest,
    RunConformance,
    TransactionalConformance,
)
from outbox_testkit.conformance.publisher import Message

from .kafka_access import committed


def read(bootstrap: str, topic: str, partitions: int) -> list[Message]:
    found = []
    for message in committed(bootstrap, topic, partitions):
        key, partition = message.key(), message.partition()
        headers: Any = message.headers() or ()
        assert key is not None
        assert partition is not None
        found.append(Message(key, message.value(), list(headers), partition))
    return found


class TestKafka(PublisherConformance, RunConformance, TransactionalConformance):
    @pytest.fixture
    def publisher(self, kafka_bootstrap: str) -> PublisherUnderTest:
        options = {"kafka": {"bootstrap.servers": kafka_bootstrap}}
        return PublisherUnderTest("kafka", options, partial(read, kafka_bootstrap))
