"""Settings in files: what is read when, what is kept secret, and when a client is opened anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from outbox_api import ConfigError, DriverError, FileText, OutboxError
from outbox_kafka.client import clients
from outbox_kafka.client.clients import Producer, try_files
from outbox_kafka.client.files import Renewal, present
from outbox_kafka.client.settings import client_settings, config_error, redact


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    return path


def test_secrets_are_read_late_and_other_settings_at_once(password: Path, tmp_path: Path) -> None:
    (tmp_path / "name").write_text("outbox\n")
    secret = FileText((password,))
    kafka = {"sasl.password": secret, "client.id": FileText((tmp_path / "name",)), "linger.ms": 5}
    settings = client_settings(kafka)
    assert settings == {"sasl.password": secret, "client.id": "outbox", "linger.ms": "5"}
    password.write_text("hunter3")
    assert present(settings)["sasl.password"] == "hunter3"


def test_a_file_that_is_missing_may_come_back(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="cannot read the file") as caught:
        present({"sasl.password": FileText((tmp_path / "nowhere",))})
    assert caught.value.retryable


def test_errors_keep_the_content_of_files(password: Path, tmp_path: Path) -> None:
    settings = {"sasl.password": FileText((password,)), "ssl.key.password": FileText((tmp_path / "nowhere",))}
    assert redact("it is hunter2, nothing else", settings) == "it is [redacted], nothing else"


@pytest.mark.parametrize(
    "name",
    [
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    ],
)
def test_settings_of_librdkafka_that_are_secret(name: str) -> None:
    assert redact("it is hunter2", {name: "hunter2"}) == "it is [redacted]"


@pytest.mark.parametrize(
    ("message", "settings", "kind"),
    [
        ("ssl.key.location failed: mismatch", {"ssl.key.location": "key.pem"}, DriverError),
        ("ssl.key.pem failed: no PEM", {"ssl.key.pem": FileText(("x",))}, DriverError),
        ("ssl.key.pem failed: no PEM", {"ssl.key.pem": "x"}, ConfigError),
    ],
)
def test_a_file_that_cannot_be_used_may_be_replaced(
    message: str, settings: dict[str, object], kind: type[Exception]
) -> None:
    error = config_error(message, settings)
    assert type(error) is kind
    assert not isinstance(error, DriverError) or error.retryable


def test_files_that_cannot_be_used_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=r"ssl\.ca\.location"):
        try_files({"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "nowhere")})


def test_a_renewal_is_due_once_a_file_has_changed(tmp_path: Path, password: Path) -> None:
    now = 0.0
    certificate = tmp_path / "client.crt"
    certificate.write_text("first")
    settings = {
        "ssl.certificate.location": str(certificate),
        "ssl.key.pem": FileText((tmp_path / "key",)),
        "sasl.password": FileText((password,)),
    }
    renewal = Renewal(settings, lambda: now)
    now = 5.0
    assert not renewal.is_due()
    password.write_text("a password needs no new client")
    now = 10.0
    assert not renewal.is_due()
    certificate.write_text("second")
    assert not renewal.is_due()  # it looked at this moment
    now = 11.5
    assert renewal.is_due()
    renewal.postpone()
    now = 14.0
    assert not renewal.is_due()
    now = 17.0
    assert renewal.is_due()
    assert not Renewal(settings, lambda: now).is_due()


def test_a_client_is_told_of_a_new_password_as_long_as_it_lives(
    password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(clients, "_watch", clients._Watch())
    told: list[tuple[str, str]] = []

    class Told(Producer):
        def set_sasl_credentials(self, username: str, password: str) -> None:
            super().set_sasl_credentials(username, password)
            told.append((username, password))

    sasl = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "log_level": 0}
    kafka = {"bootstrap.servers": "127.0.0.1:1", **sasl, "sasl.username": "me"}
    client = Told({**kafka, "sasl.password": FileText((password,))})
    plain = Told({**kafka, "sasl.password": "in the configuration"})
    password.touch()
    _replace(password, "hunter3\n")
    _until(lambda: told == [("me", "hunter3")])
    password.unlink()  # the former one stays in use
    time.sleep(0.2)
    _replace(password, "hunter4\n")
    _until(lambda: told == [("me", "hunter3"), ("me", "hunter4")])
    del client
    _until(lambda: clients._watch._thread is None)
    del plain


def test_what_is_wrong_with_one_client_keeps_no_password_from_another(
    password: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(clients, "_watch", clients._Watch())
    told: list[str] = []

    class Told(Producer):
        def set_sasl_credentials(self, username: str, password: str) -> None:
            super().set_sasl_credentials(username, password)
            told.append(password)

    (other := tmp_path / "other").write_text("hunter1")
    sasl = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "log_level": 0}
    kafka = {"bootstrap.servers": "127.0.0.1:1", **sasl, "sasl.username": "me"}
    odd, closed = (Told({**kafka, "sasl.password": FileText((other,))}) for _ in range(2))
    client = Told({**kafka, "sasl.password": FileText((password,))})
    closed.close()
    _replace(other, "with a \0 inside")
    time.sleep(0.2)
    _replace(password, "hunter3\n")
    _until(lambda: told == ["hunter3"])
    _replace(other, "hunter4")
    _until(lambda: told == ["hunter3", "hunter4"])
    del odd, client


def test_librdkafka_knows_the_settings_that_are_renewed() -> None:
    for name in ("ssl.ca.location", "ssl.crl.location", "ssl.keystore.location"):
        with pytest.raises(OutboxError) as caught:
            Producer({name: "nowhere", "security.protocol": "ssl", "log_level": 0})
        assert name.removesuffix(".location") in str(caught.value)


def _replace(file: Path, text: str) -> None:
    """Replaces a file at once: who looks at one that is being written finds it empty, and tells that, too."""
    draft = file.with_name(f"{file.name}.new")
    draft.write_text(text)
    draft.rename(file)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
