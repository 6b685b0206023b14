"""Keys of records are not in log lines if they are to be hashed, and an operator finds the key of a hash."""

import json
import logging
import pickle
from pathlib import Path

import psycopg
import pytest
from outbox_api import ConfigError, Failure, MarkedRecord, Poison
from outbox_core.config import parse
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.settings.logs import KeyNames

from .cli_runner import configure, harvester, told, until, wait_for

SECRET = "0123456789abcdef"
PERSONAL = "jane.doe@example.com"


def test_a_hash_is_short_and_the_same_for_the_same_key_and_secret():
    names = KeyNames(SECRET)
    assert names.of(PERSONAL) == KeyNames(SECRET).of(PERSONAL)
    assert len(names.of(PERSONAL)) == 13
    assert names.of(PERSONAL) != names.of("jane.doe@example.org")
    assert names.of(PERSONAL) != KeyNames(SECRET[::-1]).of(PERSONAL)
    assert names.of("\udcff").startswith("#"), "a key that is no Unicode"
    assert KeyNames().of("a'b") == '"a\'b"'


def test_the_secret_goes_to_workers_and_into_no_text():
    settings = parse(f"logging: {{keys: hash, keySecret: {SECRET}}}\nharvest: {{}}", "f.yaml", {})
    assert pickle.loads(pickle.dumps(settings.harvest)).key_names == KeyNames(SECRET)
    assert SECRET not in repr(settings) + repr(settings.harvest)


def test_each_of_several_outboxes_names_keys_alike():
    outboxes = "{a: {outboxTable: x}, b: {outboxTable: 't_*.outbox'}}"
    text = f"logging: {{keys: hash, keySecret: {SECRET}}}\noutboxes: {outboxes}"
    settings = parse(text, "f.yaml", {})
    [template] = settings.templates
    assert [each.key_names for each in settings.outboxes] == [KeyNames(SECRET)]
    assert template.settings_for("t_1.outbox").key_names == KeyNames(SECRET)


@pytest.mark.parametrize("logs", ["keys: hash", "keys: hash, keySecret: short-and-secre"])
def test_a_hash_needs_a_secret_that_nobody_guesses(logs: str):
    with pytest.raises(ConfigError, match="keySecret must be a random text of 16 characters") as caught:
        parse(f"logging: {{{logs}}}", "f.yaml", {})
    assert "short-and" not in str(caught.value)


def test_a_line_about_a_failure_names_the_key_by_its_hash(caplog: pytest.LogCaptureFixture, logged):
    failure = Failure(MarkedRecord(7, "orders", PERSONAL, "v"), "too large", retryable=False)
    for names in (KeyNames(), KeyNames(SECRET)):
        with caplog.at_level(logging.WARNING):
            telemetry = Telemetry(3, 1.0, 0.0, key_names=names)
            telemetry.failed([failure])
            telemetry.write_lines()
    plain, hashed = (record.getMessage() for record in logged("outbox.lanes"))
    assert f"its key '{PERSONAL}' is held" in plain
    assert f"its key {KeyNames(SECRET).of(PERSONAL)} is held" in hashed
    assert PERSONAL not in hashed


def test_an_operator_finds_the_key_of_a_hash(
    tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str, topic: str
):
    file = configure(tmp_path, postgres_dsn, kafka_bootstrap, failures={"parkAfter": 1})
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "logging": {"level": "debug", "keys": "hash", "keySecret": SECRET}}))
    told(file, "init")
    with harvester(file) as running:
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute(
                "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_header_keys,"
                " kafka_header_values) VALUES (now(), %s, %s, '{name}', '{}')",
                (topic, PERSONAL),
            )
        log = wait_for(running, "are parked after")
        until(lambda: "example" in told(file, "parked", "list"))
        [letter] = json.loads(told(file, "parked", "list", "--json"))["letters"]
    assert letter["key"] == PERSONAL
    assert letter["key_in_logs"] == KeyNames(SECRET).of(PERSONAL)
    assert f"its key {letter['key_in_logs']} is held" in log
    assert PERSONAL not in log
    assert SECRET not in log
    shown = told(file, "parked", "list")
    assert "key in logs" in shown
    assert json.loads(told(file, "parked", "show", PERSONAL, "--json"))["letters"][0]["key_in_logs"]


def test_each_parked_key_is_told(logged) -> None:
    telemetry = Telemetry(3, 1.0, 0.0)
    telemetry.parked([Poison(1, "too large", 5)], 1)
    telemetry.write_lines()
    [record] = logged("outbox.lanes")
    assert record.__dict__["always"], "however many were parked before"
