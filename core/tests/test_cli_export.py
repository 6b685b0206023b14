"""``outbox export``: what it writes without a schema registry; tests/test_payloads.py has one."""

import json
from pathlib import Path

from outbox_core.cli.command import ExitCode

from .cli_runner import outbox


def written(folder: Path, **harvest: object) -> Path:
    path = folder / "outbox.yaml"
    path.write_text(json.dumps({"harvest": {"engine": "inline"} | harvest}))
    return path


def test_topics_and_brokers_of_the_configuration_are_described(tmp_path: Path) -> None:
    kafka = {
        "bootstrap.servers": "b:9092, a:9092",
        "security.protocol": "SASL_SSL",
        "sasl.password": "secret",
    }
    file = written(tmp_path, topics=["orders", "audit.*"], baseKafkaConfig=kafka)
    done = outbox(file, "export", "asyncapi", "--topic", "bills", "--topic", "orders")
    told = json.loads(done.stdout)
    assert told["asyncapi"] == "3.0.0"
    assert list(told["channels"]) == ["bills", "orders"]
    assert told["operations"]["send orders"] == {"action": "send", "channel": {"$ref": "#/channels/orders"}}
    assert told["servers"] == {
        "broker-0": {"host": "a:9092", "protocol": "kafka-secure"},
        "broker-1": {"host": "b:9092", "protocol": "kafka-secure"},
    }
    assert "payload" not in told["channels"]["orders"]["messages"]["record"]
    assert "secret" not in done.stdout


def test_what_cannot_be_described_is_told(tmp_path: Path) -> None:
    done = outbox(written(tmp_path), "export", "asyncapi")
    assert done.returncode == ExitCode.CONFIG
    assert "name topics there, or with --topic" in done.stderr
    named = ("export", "asyncapi", "--topic", "orders", "--registry")
    assert outbox(written(tmp_path), *named, "file:///etc").returncode == ExitCode.CONFIG
    done = outbox(written(tmp_path), *named, "http://127.0.0.1:1")
    assert done.returncode == ExitCode.UNAVAILABLE
    assert "the schema registry does not answer" in done.stderr
    done = outbox(written(tmp_path), *named, "http://127.0.0.1:port")
    assert "the schema registry does not answer: nonnumeric port" in done.stderr
    done = outbox(written(tmp_path), *named, "http://user:hidden@127.0.0.1:1")
    assert done.returncode == ExitCode.CONFIG
    assert "hidden" not in done.stderr
