"""For tests of the command line: a configuration for real services, and calls of the installed program."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from outbox_core.cli import main

NOWHERE = 1
"""A port of 127.0.0.1 on which nobody listens: the system gives it to no program."""

PATIENCE = 120.0
"""Seconds for which a condition is waited for."""

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


def outbox(
    file: Path | None,
    *arguments: str,
    stdout: TextIO | None = None,
    stream: Callable[[], io.StringIO] = io.StringIO,
) -> subprocess.CompletedProcess[str]:
    """Runs a command in this process: to start another one takes longer than most commands.

    Not for ``outbox run``, which handles signals; see ``program``. ``stream`` makes stdout and stderr.
    """
    command = [*arguments, *(["-f", str(file)] if file else [])]
    out, err = stream(), stream()
    with redirect_stdout(stdout or out), redirect_stderr(err), _own_logging():
        try:
            main(command)
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def program(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed program to its end."""
    command = [OUTBOX, *arguments, "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


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


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"the harvester ended without '{words}':\n{seen}")


@contextmanager
def _own_logging() -> Iterator[None]:
    """Keeps the handlers of pytest from a command that sets up logging anew."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = []
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)


@contextmanager
def harvester(file: Path, words: str = "leader acquired") -> Iterator[subprocess.Popen[str]]:
    """A harvester that has logged ``words``, thus leads, and is killed in the end."""
    process = subprocess.Popen([OUTBOX, "run", "-f", str(file)], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(process, words)
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def frozen(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """Stops a process of this one until it is left; begins once all its threads stand still."""
    process.send_signal(signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def until(what: Callable[[], bool]) -> None:
    """Waits until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, f"did not come true within {PATIENCE:g} s"
        time.sleep(0.1)
