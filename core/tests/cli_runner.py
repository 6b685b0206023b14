"""For tests of the command line: a configuration for real services, and calls of the installed program."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

OUTBOX = str(Path(sys.executable).with_name("outbox"))
INSERT = """
    INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                        kafka_header_keys, kafka_header_values)
    SELECT clock_timestamp(), %s, 'key-' || i %% 10, 'value ' || i, '{}', '{}'
    FROM generate_series(1, %s) AS i
"""


def configure(folder: Path, dsn: str, bootstrap: str, **settings: object) -> Path:
    """Writes a configuration for a new database and the session's broker, without JVM and election."""
    path = folder / "outbox.yaml"
    harvest = {
        "baseKafkaConfig": {"bootstrap.servers": bootstrap},
        "dataSource": dsn,
        "elector": "static",
        "engine": "inline",
        "limits": {"sendConcurrency": 2, "minMetricsInterval": "200ms"},
    }
    path.write_text(json.dumps({"harvest": harvest | settings}))
    return path


def outbox(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [OUTBOX, *arguments, "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def told(file: Path, *arguments: str) -> str:
    """Returns the standard output of a call that must succeed."""
    done = outbox(file, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def changed(file: Path, **settings: object) -> Path:
    """Writes another configuration beside ``file``, with other settings of the harvest."""
    data = json.loads(file.read_text())
    data["harvest"] |= settings
    path = file.with_name("changed.yaml")
    path.write_text(json.dumps(data))
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"the harvester ended without '{words}':\n{seen}")


@contextmanager
def harvester(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A harvester that leads, and is killed in the end."""
    process = subprocess.Popen([OUTBOX, "run", "-f", str(file)], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(process, "leader acquired")
        yield process
    finally:
        process.kill()
        process.communicate()


def until(what: Callable[[], bool]) -> None:
    """Waits until a condition is true."""
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end, "did not come true within 30 s"
        time.sleep(0.1)
