"""An outbox of which a harvester has delivered and kept a part."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from outbox_api import Batch, Fence, LeadershipLost, OutboxTable
from outbox_api.seams.kept import Chosen
from outbox_core.config import load
from outbox_core.settings import HarvestSettings

from .sink_trial import Outbox


@dataclass(frozen=True)
class Shop(Outbox):
    """An outbox with kept records, and the file that names it.

    Attributes:
        folder: For the file.
        without: What is left out of the kept records.
    """

    folder: Path
    without: Sequence[str] = ()

    def __post_init__(self) -> None:
        dialect = {"driver": self.driver, "keep": {"for": "1h", "without": self.without}}
        self._file.write_text(json.dumps({"harvest": {"dataSource": self.data_source, "dialect": dialect}}))
        self.dialect.create()

    @property
    def settings(self) -> HarvestSettings:
        return load(self._file).harvest

    @property
    def dialect(self) -> Any:
        return self.settings.dialect.create()

    @property
    def options(self) -> dict[str, str]:
        return {"config": str(self._file), "startingOffsets": "kept"}

    @property
    def _file(self) -> Path:
        return self.folder / "outbox.yaml"

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

    def kept(self) -> int:
        return len(self.positions())

    def positions(self) -> list[int]:
        """Returns the positions of what is kept, in their order."""
        with closing(self.dialect.kept(read_only=True)) as kept:
            return [each.position for each in kept.find(Chosen(), 0, 1 << 20, whole=False)]

    def token(self) -> int:
        """Returns the token of the fence; 0 if nobody has raised it."""
        with closing(self.dialect.watch()) as view:
            return max((status.fence.token for status in view.lane_statuses()), default=0)


def shop_in(request: pytest.FixtureRequest, folder: Path, database: str, without: Sequence[str] = ()) -> Shop:
    """Creates an outbox in a database of the test's own."""
    if database == "sqlite":
        return Shop(database, str(folder / "shop.db"), folder, without)
    driver = "mysql" if database == "mariadb" else database
    return Shop(driver, request.getfixturevalue(f"{database}_dsn"), folder, without)


def deliver(table: OutboxTable, fence: Fence, count: int) -> None:
    """Selects the first rows, and purges them."""
    if (advanced := table.advance(fence, [], [], count)).records:
        batch = Batch.of([record.id for record in advanced.records], advanced.newest)
        table.advance(fence, [batch], [], 0)
