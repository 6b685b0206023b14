"""An outbox of which a harvester has delivered and kept a part."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from outbox_api import Batch, Fence, LeadershipLost, OutboxTable, Record, Stasher
from outbox_api.seams.kept import Chosen
from outbox_core.config import load
from outbox_core.settings import HarvestSettings

from .sink_trial import KEYS


class Shop:
    """An outbox with kept records, in a database, and the file that names it.

    Args:
        driver: The dialect.
        data_source: The database.
        folder: For the file.
        keep: What is kept, and for how long.
    """

    def __init__(self, driver: str, data_source: str, folder: Path, **keep: Any) -> None:
        self.driver, self.data_source = driver, data_source
        self.file = folder / "outbox.yaml"
        dialect = {"driver": driver, "keep": {"for": "1h", **keep}}
        self.file.write_text(json.dumps({"harvest": {"dataSource": data_source, "dialect": dialect}}))
        self.dialect: Any = self.settings.dialect.create()
        self.dialect.create()

    @property
    def settings(self) -> HarvestSettings:
        return load(self.file).harvest

    @property
    def options(self) -> dict[str, str]:
        return {"config": str(self.file), "startingOffsets": "kept"}

    def stash(self, numbers: Sequence[int]) -> None:
        records = [Record("orders", f"k{number % KEYS}", str(number)) for number in numbers]
        with closing(self.dialect.stash_connection()) as connection:
            Stasher(dialect=self.driver).stash_many(connection, records)
            connection.commit()

    def execute(self, statement: str) -> None:
        with closing(self.dialect.stash_connection()) as connection:
            connection.cursor().execute(statement)
            connection.commit()

    def deliver(self, count: int) -> None:
        """Delivers the first rows, as a harvester that leaves no note."""
        with closing(self.dialect.connect()) as table:
            fence = table.enter(0, 1, table.bump(1, "harvester"))
            deliver(table, fence, count)

    def keep(self, numbers: Sequence[int]) -> None:
        """Stashes and delivers numbers."""
        self.stash(numbers)
        self.deliver(len(numbers))

    @contextmanager
    def harvesting(self) -> Iterator[None]:
        """Delivers a few rows at a time until another leader raises the fence."""

        def harvest() -> None:
            with closing(self.dialect.connect()) as table:
                fence = table.enter(0, 1, table.bump(1, "harvester"))
                with suppress(LeadershipLost):
                    while True:
                        deliver(table, fence, 7)

        thread = threading.Thread(target=harvest)
        thread.start()
        yield
        thread.join()

    def waiting(self) -> int:
        return self._count("outbox")

    def kept(self) -> int:
        return self._count("outbox_kept")

    def positions(self) -> list[int]:
        """Returns the positions of what is kept, in their order."""
        with closing(self.dialect.kept(read_only=True)) as kept:
            return [each.position for each in kept.find(Chosen(), 0, 1 << 20, whole=False)]

    def token(self) -> int:
        """Returns the token of the fence; 0 if nobody has raised it."""
        with closing(self.dialect.watch()) as view:
            return max((status.fence.token for status in view.lane_statuses()), default=0)

    def _count(self, table: str) -> int:
        with closing(self.dialect.stash_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT count(*) FROM {table}")
            return int(cursor.fetchone()[0])


def deliver(table: OutboxTable, fence: Fence, count: int) -> None:
    """Selects the first rows, and purges them."""
    if (advanced := table.advance(fence, [], [], count)).records:
        batch = Batch.of([record.id for record in advanced.records], advanced.newest)
        table.advance(fence, [batch], [], 0)
