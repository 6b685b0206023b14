"""When a producer is replaced by one that has read new certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
from outbox_kafka.next_producer import NextProducer
from outbox_kafka.producer_pool import LaneProducer
from outbox_kafka.settings import producer_settings
from outbox_kafka.topic_lookup import BackgroundCalls
from outbox_servers.certificates import Authority


def test_a_producer_that_protects_from_late_requests_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    kafka = {"security.protocol": "ssl", "ssl.ca.location": str(authority.certificate)}
    settings = producer_settings({"bootstrap.servers": "127.0.0.1:1", **kafka}, client_id="outbox.0")
    former, background = LaneProducer("outbox.0", settings), BackgroundCalls()
    next_producer = NextProducer("outbox.0", settings, background)

    def is_prepared() -> bool:
        former.renewal._look_at = 0.0
        next_producer.prepare(former)
        return bool(background)

    assert not is_prepared()  # nothing has changed
    authority.certificate.write_text(Authority(tmp_path, "next").certificate.read_text())
    former.note_unreported()
    assert former.must_stay
    assert not is_prepared()
    former.is_refused = True  # it cannot connect any more
    assert is_prepared()
    while background:
        background.poll()
    assert not next_producer  # nobody is there
    assert "changed certificates are not used yet" in caplog.text
    former.producer.close()
