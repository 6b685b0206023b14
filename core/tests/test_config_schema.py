"""The JSON schema of a configuration takes what the reader takes, and finds what it can of what is wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from outbox_core.config.schema import schema

from .test_config_errors import ALL_TOLD, ALL_WRONG

ROOT = Path(__file__).parents[2]
OUTBOX = str(Path(sys.executable).with_name("outbox"))
VALIDATOR = jsonschema.Draft7Validator(schema())
ONLY_THE_READER = {"harvest.limits.heartbeatTimeout", "logging.level"}
"""A duration of no seconds, and a key that is written twice."""


def wrong(text: str) -> set[str]:
    """Returns the keys that the schema finds wrong."""
    found = set()
    for each in VALIDATOR.iter_errors(yaml.safe_load(text)):
        path = [str(step) for step in each.absolute_path]
        unknown = re.findall(r"'(\w+)'", each.message) if each.validator == "additionalProperties" else [""]
        found |= {".".join(filter(None, [*path, key])) for key in unknown}
    return found


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(schema())


def test_the_published_schema_is_what_the_command_prints() -> None:
    printed = subprocess.run([OUTBOX, "schema"], check=True, capture_output=True, text=True).stdout
    published = (ROOT / "docs" / "outbox.schema.json").read_text("utf-8")
    assert published == printed, "run: outbox schema > docs/outbox.schema.json"


def test_it_finds_what_is_wrong() -> None:
    told = {line.split(": ")[1] for line in ALL_TOLD.splitlines() if line.startswith("  f.yaml")}
    assert wrong(ALL_WRONG) == told - ONLY_THE_READER


@pytest.mark.parametrize("path", ["outbox.yaml", "reaper.yaml"])
def test_examples_are_right_and_name_it(path: str) -> None:
    text = (ROOT / "examples" / path).read_text("utf-8")
    assert wrong(text) == set()
    named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert json.loads((ROOT / "examples" / named).read_text("utf-8")) == schema()


@pytest.mark.parametrize(
    "right",
    [
        "harvest: {limits: {sendBuffer: '${BUFFER}', drainInterval: 0}, delivery: '${D}', name: 7}",
        "harvest: {elector: {driver: of-somebody, anything: 1}, leaderTopic:}",
        "harvest: {limits: {maxPollInterval: 1s, sendBuffer: -1}}",
        "{harvest: {dialect: mysql}, outboxes: {a: {dialect: {idleTimeout: 5s}}}, logging: {level: Warning}}",
        "harvest: {dialect: {prepare: no, intake: [{table: a}, {table: b}]}, transform: [identity]}",
        "{harvest: {engine: inline}, outboxes: {a: , b: {outboxTable: b}}, logging: {level: Info}}",
    ],
)
def test_it_takes_what_the_reader_takes(right: str) -> None:
    assert wrong(right) == set()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("outboxes: {a: {engine: inline}}", "outboxes.a"),
        ("harvest: {engine: {driver: inline, master: x}}", "harvest.engine.master"),
        ("harvest: {elector: {sessionTimeout: 5}}", "harvest.elector.sessionTimeout"),
        ("harvest: {transform: topic}", "harvest.transform"),
        ("http: {proxy: {addresses: 10.0.0.1}}", "http.proxy.addresses"),
    ],
)
def test_it_refuses_what_the_reader_refuses(text: str, key: str) -> None:
    assert wrong(text) == {key}
