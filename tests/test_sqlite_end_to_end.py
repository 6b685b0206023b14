"""An outbox in SQLite, with the command line only: every record arrives despite a killed harvester."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outbox_api import Record, Stasher

from .harvesters import RUN, Harvester, outbox, until

OUTBOX = [sys.executable, "-m", "outbox_core"]
KEYS = 40


class Trial:
    """A configuration, its database, and an application."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, **harvest: Any) -> None:
        self.topic = topic
        self.database = folder / "shop.db"
        self.ledger = folder / "ledger.jsonl"
        self.settings = folder / "outbox.yaml"
        base = {
            "dialect": "sqlite",
            "dataSource": str(self.database),
            "baseKafkaConfig": {"bootstrap.servers": bootstrap},
            "elector": "static",
            "engine": "inline",
            "limits": {"sendConcurrency": 2, "minMetricsInterval": "200ms", "maxRunRecords": RUN},
        }
        self.settings.write_text(json.dumps({"harvest": base | harvest}))

    def tell(self, *arguments: str) -> Any:
        """Runs a command that must succeed; returns its JSON."""
        return outbox(self.settings, *arguments)

    @contextlib.contextmanager
    def writing(self, interval: str = "1ms") -> Iterator[None]:
        """Writes records until the block ends, some of which are rolled back."""
        options = ["--records", "0", "--interval", interval, "--batch", "3", "--keys", str(KEYS)]
        options += ["--topic", self.topic, "--ledger", str(self.ledger), "-f", str(self.settings)]
        with subprocess.Popen([*OUTBOX, "pump", *options], stderr=subprocess.PIPE, text=True) as pump:
            ending = threading.Event()
            undecided = threading.Thread(target=self._roll_back, args=(ending,))
            undecided.start()
            try:
                yield
            finally:
                ending.set()
                undecided.join()
                pump.send_signal(signal.SIGINT)
                said = pump.communicate(timeout=180)[1]
        assert pump.returncode == 0, said

    def _roll_back(self, ending: threading.Event) -> None:
        stasher = Stasher(dialect="sqlite")
        with self._connect() as connection:
            while not ending.wait(0.02):
                stasher.stash(connection, Record(self.topic, "key-0", "never", (("Seq", "999999"),)))
                connection.rollback()

    def counts(self) -> tuple[int, int]:
        """Returns how many records were committed, and how many of them are not in the outbox any more."""
        with self._connect() as connection:
            query = "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), count(*) FROM outbox"
            last, left = connection.execute(query).fetchone()
        return last or 0, (last or 0) - left

    def _connect(self) -> contextlib.closing[sqlite3.Connection]:
        """Connects, and waits for whoever has locked the database as long as a busy machine needs."""
        return contextlib.closing(sqlite3.connect(self.database, timeout=120))

    def wait_for(self, more: int) -> None:
        """Waits until ``more`` records have been delivered."""
        wanted = self.counts()[1] + more
        until(lambda: self.counts()[1] >= wanted, f"{more} records are delivered", 60)


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_compacted_copy_may_take_the_place_of_the_file_while_nobody_has_it_open(
    tmp_path: Path, kafka_bootstrap: str, topic: str, delivery: str
) -> None:
    trial = Trial(tmp_path, kafka_bootstrap, topic, delivery=delivery)
    trial.tell("init", "--topic", topic, "--partitions", "4")
    for name in ("before", "after"):
        with contextlib.closing(Harvester(name, trial.settings)) as harvester:
            with trial.writing():
                trial.wait_for(300)
            until(lambda: len(set(trial.counts())) == 1, "the outbox is empty", 60)
            harvester.leave()
        with contextlib.closing(sqlite3.connect(trial.database)) as connection:
            connection.execute("VACUUM INTO ?", (str(tmp_path / name),))
        (tmp_path / name).replace(trial.database)
    (audit,) = trial.tell("audit", "--ledger", str(trial.ledger), "--exactly-once")["audits"]
    assert audit["sent"] == trial.counts()[0] > 600


@pytest.mark.parametrize("delivery", [pytest.param("at-least-once", marks=pytest.mark.slow), "exactly-once"])
def test_nothing_is_lost_or_out_of_order_when_a_harvester_is_killed(
    tmp_path: Path, kafka_bootstrap: str, topic: str, delivery: str
) -> None:
    trial = Trial(tmp_path, kafka_bootstrap, topic, delivery=delivery)
    created = trial.tell("init", "--topic", topic, "--partitions", "4")
    assert created["tables_created"] == [
        "outbox",
        *(f"outbox_fence{suffix}" for suffix in ("", "_notes", "_lease", "_members")),
        "outbox_dead_letters",
        "outbox_journal",
        "outbox_fence_history",
    ]
    trial.tell("check")
    harvesters = []
    try:
        with trial.writing():
            for name in ("first", "second"):
                harvesters.append(Harvester(name, trial.settings))
                harvesters[-1].wait_for("leader acquired", 60)
                trial.wait_for(300)
                if name == "first":
                    harvesters[-1].kill()
            status = trial.tell("status")
        until(lambda: len(set(trial.counts())) == 1, "the outbox is empty", 60)
        harvesters[-1].leave()
    finally:
        for each in harvesters:
            each.close()
    assert status["leader"]
    assert trial.tell("parked", "list")["letters"] == []

    once = ["--exactly-once", "--isolation", "read_committed"] if delivery == "exactly-once" else []
    (audit,) = trial.tell("audit", "--ledger", str(trial.ledger), *once)["audits"]
    assert audit["sent"] == trial.counts()[0] > 600
    assert audit["repeated"] <= (0 if once else RUN * KEYS)
