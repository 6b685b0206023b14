"""How long a quota delays a client, and what the log says of it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from outbox_kafka.client.quotas import Quota


def event(seconds: float) -> Any:
    return SimpleNamespace(broker_name="b", broker_id=3, throttle_time=seconds)


def test_the_longest_delay_counts_and_the_first_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "outbox.kafka")
    now = [100.0]
    quota = Quota("outbox.0", clock=lambda: now[0])
    quota(event(0.02))
    assert (quota.seconds, quota.is_used_up) == (0, False)
    quota(event(2.5))
    quota(event(1))
    assert (quota.seconds, quota.is_used_up) == (2.5, True)
    [line] = [line for line in caplog.messages if "quota" in line]
    assert "outbox.0: a quota of Kafka's is used up: broker 3" in line
    assert "producer_byte_rate" in line
    now[0] += 3
    assert (quota.seconds, quota.is_used_up) == (0, True)
    quota(event(1))
    now[0] += 700
    assert not quota.is_used_up
    quota(event(1))
    assert sum("quota" in line for line in caplog.messages) == 2
