"""When a sender ends because its certificates have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from outbox_api import DriverError
from outbox_kafka import sender as sender_module
from outbox_kafka.sender import KafkaSender
from outbox_kafka.settings import producer_settings
from outbox_servers.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def sender(authority: Authority) -> KafkaSender:
    kafka = {"security.protocol": "ssl", "ssl.ca.location": str(authority.certificate)}
    return KafkaSender(
        "outbox.0", producer_settings({"bootstrap.servers": "127.0.0.1:1", **kafka}, client_id="outbox.0")
    )


def polled(sender: KafkaSender) -> bool:
    """Polls as if a while had passed; returns whether the files are being tried."""
    sender._open_producer().renewal._look_at = 0.0
    sender.poll(0)
    return bool(sender._background)


def test_a_producer_that_protects_from_late_requests_stays(
    authority: Authority, sender: KafkaSender, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not polled(sender)  # nothing has changed
    authority.certificate.write_text(Authority(tmp_path, "next").certificate.read_text())
    producer = sender._open_producer()
    producer.note_unreported()
    assert not polled(sender)
    producer.is_refused = True  # it cannot connect any more
    assert polled(sender)
    while sender._background:
        sender.poll(0.1)
    assert "changed certificates are not used yet" in caplog.text  # nobody is there
    sender.close(0)


def test_a_sender_ends_only_with_nothing_in_flight(
    authority: Authority, sender: KafkaSender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "try_files", lambda _settings: None)
    settled = [False, True]
    monkeypatch.setattr(sender, "_settle", lambda *_: settled.pop(0))
    authority.certificate.write_text(Authority(tmp_path, "next").certificate.read_text())
    for ends in (False, True):
        assert polled(sender)
        while sender._background:
            sender._poll_once(sender._open_producer().producer, 0.1)
        if ends:
            with pytest.raises(DriverError, match="certificates have changed; open a new sender") as caught:
                sender.poll(0)
            assert caught.value.retryable
        else:
            sender.poll(0)
            assert sender._error is None
    monkeypatch.undo()
    sender.close(0)
