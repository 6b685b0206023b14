"""Processes of ``outbox run``: their logs, signals to them, and their end."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from confluent_kafka import ConsumerGroupState
from outbox_core.cli import main
from outbox_demo.harvester import start_harvester

from .shop import Shop

CLOCK_STEP = 1.5
"""Seconds by which the clock of a virtual machine may step back, and so the times of lines in logs."""
GLANCE = 0.02
"""Seconds between two checks of a condition."""

LIMITS: Mapping[str, object] = {"sendConcurrency": 4, "minMetricsInterval": "1s"}
RUN = 2
SHORT_RUNS = {**LIMITS, "maxRunRecords": RUN}
"""Limits with which a lost leader repeats so few records of a key that more would be seen."""

Measure = Callable[[str, float], None]
"""Records a measurement: an integer is a number of records, a float is seconds."""

STARTED: list[Harvester] = []
"""The harvesters that tests of this process have started, for reports of failures."""

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\S+)Z ")
_ENTRY = re.compile(r"^(?=\d{4}-\d\d-\d\dT|\{)", re.MULTILINE)
"""Where an entry of a log begins: with its time, or with an object of JSON."""


class Line(NamedTuple):
    """A line of a log: its time in seconds since the epoch, and its text."""

    at: float
    text: str


def outbox(settings: Path, *arguments: str) -> Any:
    """Runs a command in this process, which must succeed, with a configuration file; returns its JSON."""
    said, wrong, root = io.StringIO(), io.StringIO(), logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = []  # a command sets up logging anew, and pytest's handlers stay
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(wrong),
            pytest.raises(SystemExit) as end,
        ):
            main([*arguments, "--json", "-f", str(settings)])
    finally:
        root.handlers = handlers
        root.setLevel(level)
    assert end.value.code == 0, said.getvalue() + wrong.getvalue()
    return json.loads(said.getvalue())


def until(condition: Callable[[], Any], what: str, timeout: float, *, pause: float = GLANCE) -> Any:
    """Returns the first true result of ``condition``; fails if there is none in time."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(pause)
    return answer


class Harvester:
    """One process; closing it ends its child processes too."""

    def __init__(
        self, name: str, settings: Path, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.started = time.time()
        self._process = start_harvester(name, settings, *options, environment=environment)
        self.log = self._process.log
        self._family: set[psutil.Process] = set()
        STARTED.append(self)

    # --- its log ------------------------------------------------------------------------------------

    def lines(self) -> list[Line]:
        """Returns the log; a line without a time has that of the line before it."""
        lines, at = [], self.started
        for text in self.log.read_text(errors="replace").splitlines():
            if stamp := _STAMP.match(text):
                at = datetime.fromisoformat(f"{stamp[1]}+00:00").timestamp()
            lines.append(Line(at, text))
        return lines

    def find(self, words: str, since: float = 0.0) -> Line | None:
        """Returns the first line with ``words`` that was written at ``since``, or later, or just before."""
        since -= CLOCK_STEP
        return next((line for line in self.lines() if line.at >= since and words in line.text), None)

    def count(self, words: str) -> int:
        """Returns how many lines have ``words``."""
        return sum(words in line.text for line in self.lines())

    def wait_for(self, words: str, timeout: float, since: float = 0.0) -> Line:
        """Waits for such a line (see ``find``); fails if there is none in time or the process ends before."""
        deadline = time.monotonic() + timeout
        while True:
            running = self.running
            if line := self.find(words, since):
                return line
            assert running, f"{self.name} ended before it said '{words}':\n{self.tail()}"
            in_time = time.monotonic() < deadline
            assert in_time, f"{self.name} did not say '{words}' within {timeout:g} s:\n{self.tail()}"
            time.sleep(GLANCE)

    def tail(self, lines: int = 40) -> str:
        """Returns the end of the log."""
        return self._process.log_tail(lines)

    def newest_first(self, lines: int = 100) -> str:
        """Returns the end of the log, the last entry first."""
        entries = [entry.rstrip() for entry in _ENTRY.split(self.tail(lines)) if entry.strip()]
        return "\n".join(reversed(entries))

    # --- its life -----------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def pid(self) -> int:
        return self._process.pid

    def family(self) -> list[psutil.Process]:
        """Returns the running child processes, and theirs."""
        if self.running:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._family.update(psutil.Process(self.pid).children(recursive=True))
        return [process for process in self._family if _alive(process)]

    def outbox(self, *arguments: str) -> Any:
        """Runs a command, which must succeed, with the harvester's settings; returns its JSON."""
        return outbox(self.log.with_suffix(".yaml"), *arguments)

    def send(self, number: signal.Signals) -> float:
        """Sends a signal to the process, not to its children; returns the time."""
        self.family()
        at = time.time()
        os.kill(self.pid, number)
        return at

    def kill(self) -> float:
        """Kills the process, not its children; returns the time."""
        return self.send(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Waits for the process to end and returns its exit code."""
        until(lambda: not self.running, f"{self.name} ends:\n{self.tail()}", timeout)
        code = self._process._process.poll()
        assert code is not None
        return code

    def leave(self, timeout: float = 120.0) -> float:
        """Sends SIGTERM, checks for an orderly end, and returns how many seconds that took."""
        at = self.send(signal.SIGTERM)
        code = self.wait(timeout)
        seconds = time.time() - at
        assert code == 0, self.tail()
        assert "stopped" in self.lines()[-1].text, f"it was cut off:\n{self.tail()}"
        return seconds

    def close(self) -> None:
        """Ends the process and its child processes. Idempotent."""
        left = self.family()
        self._process.kill()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


class Fleet:
    """The harvesters of one test, which compete for the outbox of one shop.

    Args:
        folder: The folder for settings and logs.
        shop: The shop with the outbox.
    """

    def __init__(self, folder: Path, shop: Shop) -> None:
        self.harvesters: list[Harvester] = []
        self.group = f"{shop.topic}-leader"
        self._folder = folder
        self._shop = shop

    def start(
        self,
        name: str,
        *,
        environment: Mapping[str, str] | None = None,
        http: Mapping[str, Any] | None = None,
        **harvest: Any,
    ) -> Harvester:
        """Starts a harvester; keyword arguments replace keys below ``harvest:``; ``http`` is that section."""
        base = {
            "name": name,
            "baseKafkaConfig": {"bootstrap.servers": self._shop.kafka.bootstrap},
            # Shorter than an elected leader's session; otherwise nothing is sent twice on a busy machine.
            "producerKafkaConfig": {"delivery.timeout.ms": 4000 if "elector" in harvest else 30_000},
            "leaderGroupID": self.group,
            "dialect": self._shop.database.driver,
            # The database can then distinguish them.
            "dataSource": self._shop.database.named(name),
            "elector": "static",
            "engine": "inline",
            "limits": LIMITS,
        }
        text = json.dumps({"harvest": {**base, **harvest}, "http": http or {}}, indent=1)
        return self.launch(name, text, environment=environment)

    def launch(
        self, name: str, text: str, *options: str, environment: Mapping[str, str] | None = None
    ) -> Harvester:
        """Starts a harvester with a configuration file."""
        settings = self._folder / f"{name}.yaml"
        settings.write_text(text)
        harvester = Harvester(name, settings, *options, environment=environment)
        self.harvesters.append(harvester)
        return harvester

    def members(self) -> int:
        """Returns how many processes take part in the election; 0 during a rebalance."""
        group = self._shop.admin.describe_consumer_groups([self.group])[self.group].result()
        return len(group.members) if group.state == ConsumerGroupState.STABLE else 0

    def close(self) -> None:
        """Ends all of them. Idempotent."""
        for harvester in self.harvesters:
            harvester.close()


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
