"""Settings from configurations: goharvest's files unchanged, and our own keys."""

import os
import pickle
import re
import socket
from pathlib import Path

import pytest
from outbox_api import ConfigError, Seam
from outbox_core.builtin import NoOptions
from outbox_core.config import configure, load, locate, parse
from outbox_core.config.harvest import WITHOUT_EFFECT
from outbox_core.settings import Delivery, Limits
from outbox_core.settings.logs import LogLevel

GOHARVEST = Path(__file__).parents[2] / "tests" / "goharvest"
REAPER = (GOHARVEST / "reaper.yaml").read_text()
REAPER_SECURE = (GOHARVEST / "reaper_secure.yaml").read_text()


def test_goharvests_file_is_read_as_it_is():
    settings = parse(REAPER, "reaper.yaml", {})
    harvest = settings.harvest
    assert settings.logging.level is LogLevel.DEBUG
    assert harvest.outbox == "outbox"
    assert harvest.limits == Limits(
        min_poll_interval=1.0,
        heartbeat_timeout=5.0,
        max_in_flight_records=1000,
        min_metrics_interval=5.0,
        send_concurrency=4,
    )
    assert harvest.delivery is Delivery.AT_LEAST_ONCE
    drivers = [harvest.dialect, harvest.elector, harvest.affinity, harvest.publisher, harvest.engine]
    assert [choice.driver for choice in drivers] == ["postgres", "neli-kafka", "none", "kafka", "spark"]
    optional = (Seam.TRANSFORM, Seam.LISTENER)
    assert [choice.seam for choice in drivers] == [each for each in Seam if each not in optional]
    assert harvest.dialect.options.data_source.startswith("host=localhost port=5432 user=postgres")
    assert harvest.publisher.options.kafka == {
        "bootstrap.servers": "localhost:9092",
        "compression.type": "lz4",
        "delivery.timeout.ms": "10000",
    }
    elector = harvest.elector.options
    assert elector.kafka == {"bootstrap.servers": "localhost:9092"}
    assert (elector.leader_topic, elector.leader_group_id) == ("my-app-name", "my-app-name")
    assert (elector.min_poll_interval, elector.heartbeat_timeout) == (1.0, 5.0)


def test_what_has_no_effect_here_is_accepted():
    limits = ", ".join(f"{key}: 1" for key in sorted(WITHOUT_EFFECT))
    assert parse(f"harvest: {{limits: {{{limits}}}}}", "f.yaml", {}).harvest.limits == Limits()


def test_goharvests_secure_file_is_read_as_it_is():
    harvest = parse(REAPER_SECURE, "reaper.yaml", {}).harvest
    secure = {
        "bootstrap.servers": "localhost:9094",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "ca-cert.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }
    assert harvest.publisher.options.kafka == secure
    assert harvest.elector.options.kafka == secure


def test_nothing_written_means_the_defaults():
    harvest = parse("harvest: {}", "outbox.yaml", {}).harvest
    assert harvest.limits == Limits()
    assert harvest.dialect.options.data_source == (
        "host=localhost port=5432 user=postgres password= dbname=postgres sslmode=disable"
    )
    assert harvest.publisher.options.kafka == {"bootstrap.servers": "localhost:9092"}
    assert harvest.outbox == "outbox"
    host = re.escape(socket.gethostname())
    assert re.fullmatch(rf"{host}_{os.getpid()}_\d+", harvest.name)


def test_the_limits_have_goharvests_defaults_with_exceptions():
    limits = Limits()
    assert (limits.min_poll_interval, limits.heartbeat_timeout, limits.queue_timeout) == (0.1, 5.0, 30.0)
    assert (limits.mark_backoff, limits.io_error_backoff, limits.min_metrics_interval) == (0.002, 0.5, 5.0)
    assert (limits.max_in_flight_records, limits.send_concurrency) == (8000, 1)
    assert (limits.send_buffer, limits.mark_query_records) == (5000, 5000)


@pytest.mark.parametrize("level", ["Trace", "DEBUG", "info", "Warn", "warning", "Error"])
def test_levels_are_written_in_any_case(level: str):
    assert parse(f"logging: {{level: {level}}}", "outbox.yaml", {}).logging.level.value in level.lower()


def test_a_file_without_brokers_talks_to_the_local_one():
    harvest = parse("harvest: {baseKafkaConfig: {client.id: me}}", "outbox.yaml", {}).harvest
    assert harvest.publisher.options.kafka == {"bootstrap.servers": "localhost:9092", "client.id": "me"}


def test_json_may_write_a_character_as_two_escapes():
    settings = parse('{"harvest": {"name": "\\ud83c\\udf0d", "outboxTable": "b\\u00fccher"}}', "f.json", {})
    assert (settings.process.name, settings.harvest.outbox) == ("🌍", "bücher")
    with pytest.raises(ConfigError, match="name: an escape is half a character"):
        parse('{"harvest": {"name": "\\ud83c"}}', "f.json", {})


def test_settings_travel_and_keep_their_secrets_to_themselves():
    harvest = parse(REAPER_SECURE.replace("password=", "password=hunter2"), "reaper.yaml", {}).harvest
    there = pickle.loads(pickle.dumps(harvest))
    assert there == harvest
    assert there.dialect.options.data_source == harvest.dialect.options.data_source
    assert "hunter2" not in repr(harvest)
    assert "alice-secret" not in repr(harvest)
    assert type(harvest.dialect.create()).__name__ == "PostgresDialect"


def test_engine_takes_a_name_or_settings():
    assert parse("harvest: {engine: inline}", "outbox.yaml", {}).harvest.engine.driver == "inline"
    text = """
harvest:
  engine:
    driver: spark
    master: spark://host:7077
    laneGroups: 4
    settings:
      spark.ui.enabled: on
      spark.executor.memory: 1g
"""
    engine = parse(text, "outbox.yaml", {}).harvest.engine.options
    assert (engine.master, engine.lane_groups) == ("spark://host:7077", 4)
    assert engine.settings == {"spark.ui.enabled": "true", "spark.executor.memory": "1g"}


def test_overrides_win_over_the_file_and_keep_its_neighbours_but_not_options_of_another_driver():
    text = "harvest: {engine: {driver: spark, master: 'local[2]'}}\nlogging: {level: info}"
    overrides = {"harvest.engine.driver": "inline", "logging.level": "error"}
    settings = parse(text, "outbox.yaml", {}, overrides)
    assert (settings.harvest.engine.driver, settings.harvest.engine.options) == ("inline", NoOptions())
    same = parse(text, "outbox.yaml", {}, {"harvest.engine.driver": "spark"}).harvest.engine
    assert (same.driver, same.options.master) == ("spark", "local[2]")
    assert settings.logging.level is LogLevel.ERROR
    assert parse("harvest: {engine: spark}", "", {}, overrides).harvest.engine.driver == "inline"
    assert parse("harvest:\n", "", {}, overrides).harvest.engine.driver == "inline"


def test_an_override_that_is_wrong_names_the_command_line():
    with pytest.raises(
        ConfigError, match=r"^command line: harvest\.engine\.driver: no installed plugin .* 'sprak'"
    ):
        parse("harvest: {}", "outbox.yaml", {}, {"harvest.engine.driver": "sprak"})


def test_scalars_keep_what_was_written():
    text = """
harvest:
  baseKafkaConfig:
    sasl.password: 0123
    sasl.username: 1e3
    client.id: 12:30
    enable.ssl.certificate.verification: no
    ssl.key.password: "no"
    client.rack:
    ssl.cipher.suites: [a, b]
"""
    kafka = parse(text, "outbox.yaml", {}).harvest.publisher.options.kafka
    assert kafka == {
        "bootstrap.servers": "localhost:9092",
        "sasl.password": "0123",
        "sasl.username": "1e3",
        "client.id": "12:30",
        "enable.ssl.certificate.verification": "false",
        "ssl.key.password": "no",
        "ssl.cipher.suites": ["a", "b"],
    }


def test_anchors_and_merges_work():
    text = """
harvest:
  baseKafkaConfig: &base
    bootstrap.servers: here:9092
    client.id: base
  producerKafkaConfig:
    <<: *base
    client.id: producer
"""
    harvest = parse(text, "outbox.yaml", {}).harvest
    assert harvest.publisher.options.kafka == {"bootstrap.servers": "here:9092", "client.id": "producer"}


def test_the_environment_is_put_into_values_only():
    text = """
harvest:
  dataSource: host=${DB_HOST:-db} password=${DB_PASSWORD} $${literal}
  outboxTable: ${TABLE:-outbox}
  leaderTopic: ${TOPIC:-}
  limits:
    sendConcurrency: ${LANES}
    minPollInterval: ${POLL:-10ms}
"""
    variables = {"DB_PASSWORD": "x: {y} ${LANES}", "LANES": "3", "TABLE": ""}
    harvest = parse(text, "outbox.yaml", variables).harvest
    # What a variable holds is neither YAML nor looked at again.
    assert harvest.dialect.options.data_source == "host=db password=x: {y} ${LANES} ${literal}"
    assert harvest.outbox == "outbox"
    assert harvest.limits.send_concurrency == 3
    assert harvest.limits.min_poll_interval == 0.01
    # Nothing counts as not written.
    assert harvest.elector.options.leader_topic is None


def test_plain_data_is_read_like_a_file():
    data = {
        "harvest": {
            "baseKafkaConfig": {
                "bootstrap.servers": "b:1",
                "delivery.timeout.ms": 900,
                "enable.idempotence": True,
            },
            "limits": {"sendConcurrency": 2, "queueTimeout": "1m"},
            "engine": "inline",
        }
    }
    harvest = configure(data, variables={}).harvest
    assert harvest.publisher.options.kafka == {
        "bootstrap.servers": "b:1",
        "delivery.timeout.ms": "900",
        "enable.idempotence": "true",
    }
    assert (harvest.limits.send_concurrency, harvest.limits.queue_timeout) == (2, 60.0)
    with pytest.raises(
        ConfigError, match=r"^configuration: harvest\.limit: unknown key; did you mean 'limits'\?$"
    ):
        configure({"harvest": {"limit": {}}}, variables={})
    with pytest.raises(ConfigError, match=r"^configuration: holds a value that YAML cannot express$"):
        configure({"harvest": {"name": object()}}, variables={})


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert locate(None, {}) is None
    assert load(None, variables={}).harvest.outbox == "outbox"
    Path("outbox.yaml").write_text("harvest: {outboxTable: here}")
    Path("other.yaml").write_text("\ufeffharvest: {outboxTable: there}", encoding="utf-8")
    assert load(None, variables={}).harvest.outbox == "here"
    assert load(None, variables={"OUTBOX_FILE": "other.yaml"}).harvest.outbox == "there"
    assert load(Path("outbox.yaml"), variables={"OUTBOX_FILE": "other.yaml"}).harvest.outbox == "here"
