"""What happens to an outbox while it is brought up to the present version, and back, under load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

from outbox_core.audit import Result

from tests.databases import SALES
from tests.harvesters import Fleet, Harvester, until
from tests.shop import Shop

Tell = Callable[[str], None]
"""Shows a line to whoever watches."""

PATIENCE = 60.0
"""Seconds that a step may take."""


class Story:
    """An application sells all the time; harvesters of two versions come and go.

    Args:
        shop: An empty database, and a broker.
        folder: The folder for settings and logs.
        earlier: The variables that make this Python run the earlier version.
        seconds: How long each version leads, at least, before the next step.
        tell: Shows what happens.
    """

    def __init__(
        self, shop: Shop, folder: Path, earlier: Mapping[str, str], seconds: float, tell: Tell
    ) -> None:
        self._shop = shop
        self._folder = folder
        self._earlier = earlier
        self._seconds = seconds
        self._tell = tell
        self._fleet = Fleet(folder, shop)

    def run(self) -> Result:
        """Goes through all steps, and returns what the topic has of what was committed."""
        self._make_tables()
        try:
            with self._shop.selling():
                self._migrate_while_the_earlier_version_leads()
            self._shop.wait_until_harvested(PATIENCE)
        finally:
            self._fleet.close()
        return self._shop.audit()

    def _make_tables(self) -> None:
        self._shop.create_topic()
        self._tell(f"earlier version: init says {self._command('init', self._earlier)!r}")
        with closing(self._shop.database.connect()) as connection:
            self._shop.database.execute(connection, SALES)
            connection.commit()

    def _migrate_while_the_earlier_version_leads(self) -> None:
        with self._step("the earlier version leads"):
            first = self._start("earlier-1", self._earlier)
            self._leads(first)
        with self._step("the present version is refused, or it stands by where no column is missing"):
            self._start_before_the_migration()
        with self._step("migrate, twice, while the earlier version leads"):
            for arguments in (["--dry-run"], [], []):
                self._tell(f"present version: migrate {' '.join(arguments)}:")
                self._tell(self._command("migrate", {}, *arguments))
        with self._step("the present version stands by, the earlier one is killed"):
            second = self._start("present-1", {})
            until(lambda: self._fleet.members() == 2, "two members", PATIENCE)
            first.kill()
            self._leads(second)
        with self._step("the earlier version stands by, the present one leaves"):
            third = self._start("earlier-2", self._earlier)
            until(lambda: self._fleet.members() == 2, "two members", PATIENCE)
            second.leave()
            self._leads(third)
        with self._step("the present version once more, the earlier one leaves"):
            last = self._start("present-2", {})
            until(lambda: self._fleet.members() == 2, "two members", PATIENCE)
            third.leave()
            self._leads(last)

    def _start_before_the_migration(self) -> None:
        started = self._start("unmigrated", {})
        until(lambda: not started.running or self._fleet.members() == 2, "it ends or stands by", PATIENCE)
        if started.running:
            started.leave()
            self._tell(f"{started.name}: stood by")
            return
        assert started.find("run 'outbox migrate'"), started.tail()
        self._tell(f"{started.name}: ends with {started.wait(PATIENCE)}: {started.lines()[-1].text}")

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        since = time.time()
        yield
        time.sleep(self._seconds)
        heard = [at for at in self._shop.deliveries() if at >= since]
        silence = max((later - earlier for earlier, later in pairwise([since, *heard])), default=0.0)
        self._tell(f"== {what}: {len(heard)} messages, longest silence {silence:.1f} s")

    def _start(self, name: str, version: Mapping[str, str]) -> Harvester:
        return self._fleet.start(name, environment=version, elector="neli-kafka")

    def _leads(self, harvester: Harvester) -> None:
        line = harvester.wait_for("leader acquired", PATIENCE)
        self._tell(f"{harvester.name}: {line.text}")

    def _command(self, name: str, environment: Mapping[str, str], *arguments: str) -> str:
        """Runs a command of outbox, and returns what it says."""
        settings = self._folder / "commands.yaml"
        harvest = {
            "baseKafkaConfig": {"bootstrap.servers": self._shop.kafka.bootstrap},
            "dialect": self._shop.database.driver,
            "dataSource": self._shop.database.dsn,
        }
        settings.write_text(json.dumps({"harvest": harvest}))
        done = subprocess.run(
            [sys.executable, "-m", "outbox_core", name, "--file", str(settings), *arguments],
            env={**os.environ, **environment},
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"outbox {name} fails: {done.stdout}{done.stderr}")
        return done.stdout.strip()
