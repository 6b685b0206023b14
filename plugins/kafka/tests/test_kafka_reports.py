"""What a sender makes of the client's delivery reports, without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Message
from outbox_api import MarkedRecord

from .kafka_access import publisher


@pytest.mark.parametrize("callback", ["_on_delivery", "_on_unbatched_delivery"])
def test_delivery_without_an_offset_is_none(callback: str) -> None:
    sender = publisher("127.0.0.1:1").open("outbox.0")
    one, other = (MarkedRecord(number, "t", str(number), "v") for number in (1, 2))
    getattr(sender, callback)(one, None, Message("t", 0))
    getattr(sender, callback)(other, None, Message("t", 0, 0))
    reports = sender.poll(0)
    sender.close(0)
    assert reports.delivered == [other]
    [failure] = reports.failed
    assert failure.record == one
    assert failure.retryable
    assert "without an offset" in failure.reason
