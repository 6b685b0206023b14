"""Every error in a configuration has one message with file, line, key and cure."""

import subprocess
import sys
from pathlib import Path

import pytest
from outbox_api import ConfigError, PluginError
from outbox_core.config import load, parse

ALL_WRONG = """\
harvest:
  baseKafkaConfig: localhost:9092
  producerKafkaConfig:
    linger.ms:
      high: 5
  outboxTable: [outbox]
  leaderGroupId: mine
  min_poll_interval: 5s
  name: {first: a}
  limits:
    minPollInterval: 100
    heartbeatTimeout: 0s
    max_in_flight_records: 5
    maxRunRecords: many
    sendConcurrency: 0
    queueTimeout: -5s
    minMetricInterval: 1s
  delivery: exactly-twice
  engine: {driver: spark, mastre: local, laneGroups: 1.5}
  affinity: [none]
  dialect: {driver: postgres, prepare: maybe, conectTimeout: 1s}
  zebra: 1
loging:
  level: debug
logging:
  level: Loud
  level: Debug
"""

ALL_TOLD = """\
the configuration has 21 problems:
  f.yaml:2: harvest.baseKafkaConfig: expected a mapping of keys to values
  f.yaml:5: harvest.producerKafkaConfig.linger.ms: expected text or a list, found a mapping
  f.yaml:6: harvest.outboxTable: expected text, found a list
  f.yaml:7: harvest.leaderGroupId: unknown key; did you mean 'leaderGroupID'?
  f.yaml:8: harvest.min_poll_interval: unknown key; did you mean 'limits.minPollInterval'?
  f.yaml:9: harvest.name: expected text, found a mapping
  f.yaml:11: harvest.limits.minPollInterval: expected a duration such as 500ms, 5s or 1m30s, found '100'
  f.yaml:12: harvest.limits.heartbeatTimeout: expected more than 0, found '0s'
  f.yaml:13: harvest.limits.max_in_flight_records: unknown key; did you mean 'maxInFlightRecords'?
  f.yaml:14: harvest.limits.maxRunRecords: expected a whole number, found 'many'
  f.yaml:15: harvest.limits.sendConcurrency: expected at least 1, found '0'
  f.yaml:16: harvest.limits.queueTimeout: expected a duration such as 500ms, 5s or 1m30s, found '-5s'
  f.yaml:17: harvest.limits.minMetricInterval: unknown key; did you mean 'minMetricsInterval'?
  f.yaml:18: harvest.delivery: expected 'at-least-once' or 'exactly-once', found 'exactly-twice'
  f.yaml:19: harvest.engine.laneGroups: expected a whole number, found '1.5'
  f.yaml:19: harvest.engine.mastre: unknown key; did you mean 'master'?
  f.yaml:20: harvest.affinity: expected the name of a driver, or a mapping with 'driver:' and its options
  f.yaml:21: harvest.dialect.conectTimeout: unknown key; did you mean 'connectTimeout'?
  f.yaml:21: harvest.dialect.prepare: expected true or false, found 'maybe'
  f.yaml:22: harvest.zebra: unknown key; valid keys here: affinity, baseKafkaConfig, coalesce, dataSource, \
delivery, dialect, elector, engine, failures, leaderGroupID, leaderTopic, limits, \
listener, name, outboxTable, password, producerKafkaConfig, publisher, topics, transform
  f.yaml:23: loging: unknown key; did you mean 'logging'?
  f.yaml:26: logging.level: expected 'trace', 'debug', 'info', 'warn' or 'error', found 'Loud'
  f.yaml:27: logging.level: written twice; first in line 26"""


def message(text: str, variables: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.yaml", variables or {})
    return str(caught.value)


def test_all_mistakes_of_a_file_are_told_at_once():
    told = message(ALL_WRONG)
    assert told.splitlines()[1:] == ALL_TOLD.splitlines()[1:]
    assert told.splitlines()[0] == f"the configuration has {len(ALL_TOLD.splitlines()) - 1} problems:"


REFERENCE = "expected ${NAME}, ${NAME:-default} or ${file:PATH}; write $${ for a plain ${"
BOMB = "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))
TO_QUOTE = "a value with special characters needs quotes around it"
ONE_WRONG = {
    "": ": is empty; it needs at least 'harvest: {}'",
    "# nothing": ": is empty; it needs at least 'harvest: {}'",
    "- harvest": ":1: expected a mapping with 'harvest:' and 'logging:' at the top",
    "harvest": ":1: expected a mapping with 'harvest:' and 'logging:' at the top",
    "harvest: 5": ":1: harvest: expected a mapping of keys to values",
    "\nharvest: [a]": ":2: harvest: expected a mapping of keys to values",
    "harvest:\n\tname: x": ":2: not valid YAML: found character '\\t' that cannot start any token",
    "harvest: {name: x\n": ":2: not valid YAML: expected ',' or '}', but got '<stream end>'",
    "harvest:\n  name: a\x01": ":2: not valid YAML: a character that YAML does not allow",
    "harvest:\n  name: *hush": f":2: not valid YAML: found undefined alias: {TO_QUOTE}",
    "harvest:\n  name: !hush": f":2: harvest.name: tags are not supported: {TO_QUOTE}",
    "harvest:\n  name: !h!ush": f":2: not valid YAML: found undefined tag handle: {TO_QUOTE}",
    "harvest:\n  name: @hush": f":2: not valid YAML: found character: {TO_QUOTE}",
    'harvest:\n  name: "hu\\sh"': f":2: not valid YAML: found unknown escape character: {TO_QUOTE}",
    "harvest: " + "[" * 60 + "]" * 60: ":1: nested deeper than 50 sections and lists",
    "harvest: " + "[" * 5000: ": nested deeper than 50 sections and lists",
    BOMB: ": more than 100,000 values, those of aliases included",
    "a: 1\n---\na: 2": (
        ":2: not valid YAML: expected a single document in the stream, but found another document"
    ),
    "harvest: {name: !!python/name:os.system ''}": f":1: harvest.name: tags are not supported: {TO_QUOTE}",
    "harvest: {? [a] : b}": ":1: harvest: a key must be a single value",
    "harvest: &h\n  limits: *h": ":1: harvest.limits: an alias that contains itself",
    "harvest: {baseKafkaConfig: {<<: 5}}": ":1: harvest.baseKafkaConfig: '<<' takes a mapping",
    "harvest: {name: '${'}": f":1: harvest.name: {REFERENCE}",
    "harvest: {name: '${a b}'}": f":1: harvest.name: {REFERENCE}",
    "harvest:\n  dataSource: host=x password=${DB_PASSWORD}": (
        ":2: harvest.dataSource: the environment variable DB_PASSWORD is not set; set it, "
        "or write ${DB_PASSWORD:-default}"
    ),
    "harvest: {dialect: {driver: postgres, valueType: blob}}": (
        ":1: harvest.dialect: valueType is 'blob'; it can be text or bytea"
    ),
}


@pytest.mark.parametrize("text", ONE_WRONG)
def test_one_mistake(text: str):
    assert message(text) == f"f.yaml{ONE_WRONG[text]}"


ABSENT = {
    "harvest:\n  elector: {driver: consul}": (
        "f.yaml:2: harvest.elector.driver: no installed plugin provides the elector driver 'consul'",
        "; install the distribution that registers 'consul' in the entry-point group 'outbox'",
    ),
    "harvest:\n\n  dialect: postgress": (
        "f.yaml:3: harvest.dialect.driver: no installed plugin provides ",
        "; did you mean 'postgres'?",
    ),
    "harvest:\n\n  publisher: postgres": (
        "f.yaml:3: harvest.publisher.driver: driver 'postgres' of outbox-postgres ",
        "kafka",
    ),
    "harvest: {affinity: xyzzy}": (
        "f.yaml:1: harvest.affinity.driver: no installed plugin provides ",
        "in the entry-point group 'outbox'",
    ),
}


@pytest.mark.parametrize("text", ABSENT)
def test_an_absent_plugin(text: str):
    with pytest.raises(PluginError) as caught:
        parse(text, "f.yaml", {})
    start, end = ABSENT[text]
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith(end)


def test_an_absent_plugin_has_no_other_imported():
    program = (
        "import sys\n"
        "from outbox_api.application.registry import Seam, find\n"
        "try:\n    find(Seam.ELECTOR, 'xyzzy')\n"
        "except Exception as error:\n    print('zookeeper' in str(error))\n"
        "print(sorted(name for name in sys.modules if name.startswith('outbox_') and '.' not in name))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "True\n['outbox_api']\n"


def test_secrets_are_not_told():
    told = message(
        """
harvest:
  dataSource: [host=x password=hunter2]
  baseKafkaConfig: sasl.password=hunter2
  producerKafkaConfig: {sasl.password: {value: hunter2}}
  limits: {maxRunRecords: "${SECRET}", sendConcurrency: hunter2-and-on-for-much-longer-than-any-number}
  passwort: hunter2
  engine: {settings: {spark.authenticate.secret: [hunter2]}}
""",
        {"SECRET": "hunter2"},
    )
    assert "hunter2" not in told
    assert len(told.splitlines()) == 8


def test_broken_yaml_does_not_quote_the_file():
    assert "hunter2" not in message("harvest:\n  dataSource: 'password=hunter2\n  name: x\n")
    with pytest.raises(ConfigError) as caught:
        parse("harvest:\n  dataSource: 'password=hunter2\n", "f.yaml", {})
    assert caught.value.__cause__ is None


def test_files_that_cannot_be_read(tmp_path: Path):
    for name, told in {
        "absent.yaml": "there is no such file; name one with -f, or in $OUTBOX_FILE",
        "folder.yaml": "cannot be read: Is a directory",
        "latin.yaml": "not UTF-8 text (byte 15)",
    }.items():
        (tmp_path / "folder.yaml").mkdir(exist_ok=True)
        (tmp_path / "latin.yaml").write_bytes("harvest: {name: ä}".encode("latin-1")[:15] + b"\xe4}")
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / name, variables={})
        assert str(caught.value) == f"{tmp_path / name}: {told}"
