"""This project's harvester on the same histories: a process of ``outbox run``, killed where a history says.

The outbox is the product's own, in the same database; its steps are as long as they are, so a ``step`` is a
few milliseconds in which it does what it can.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from bench.methods.method import Method, Place, RefusedError

STEP_SECONDS = 0.005
START_SECONDS = 30.0
STUCK_SECONDS = 10.0
"""After so long a poll ends that has not delivered all; records of parked keys do not count."""
WAITING = """
SELECT count(*) FROM outbox o WHERE NOT EXISTS
(SELECT FROM outbox_dead_letters d WHERE d.kafka_key = o.kafka_key)
"""


class Outbox:
    """One process of ``outbox run``."""

    def __init__(self, place: Place, settings: Path) -> None:
        self._place = place
        self._log = settings.with_suffix(".log").open("a+")
        command = [sys.executable, "-m", "outbox_core", "run", "-f", str(settings)]
        self._process = subprocess.Popen(command, stderr=self._log, env=os.environ | {"NO_COLOR": "1"})
        place.ends.append(self._kill)

    def poll(self) -> Generator[None]:
        """Waits until all is delivered that is committed."""
        until = time.monotonic() + START_SECONDS
        while self._waiting():
            if time.monotonic() > until or self._process.poll() is not None:
                raise RefusedError("records are left")
            time.sleep(STEP_SECONDS)
            yield

    def _waiting(self) -> int:
        [(count,)] = self._place.all(WAITING)
        return int(count)

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def file_of(settings: Mapping[str, object], dsn: str, bootstrap: str) -> Path:
    """Writes ``outbox.yaml``, creates the tables, and returns the file's path."""
    harvest: dict[str, Any] = {
        "name": "methods",
        "dataSource": dsn,
        "baseKafkaConfig": {"bootstrap.servers": bootstrap},
        "elector": "static",
        "engine": "inline",
        **settings,
    }
    path = Path(mkdtemp(prefix="outbox-methods-")) / "outbox.yaml"
    path.write_text(json.dumps({"harvest": harvest}))
    subprocess.run(
        [sys.executable, "-m", "outbox_core", "init", "-f", str(path)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return path


def product(delivery: str, dsn: str, bootstrap: str) -> Method:
    """Creates the tables, and returns the method with one of the two deliveries."""
    path = file_of({"delivery": delivery}, dsn, bootstrap)
    return Method(f"outbox {delivery}", lambda place: Outbox(place, path))
