"""Upgrades an outbox while a harvester of an earlier version runs, and audits what a consumer gets.

The earlier version makes the tables and leads. Meanwhile the present version is refused (or only stands by,
if the tables have all columns that it needs), migrates the tables, twice, and takes over; then the earlier
one takes over again, as after a downgrade, and the present one at last. An application commits all the time.

    python -m tests.upgrade 8f94570 --database postgres

Needs the history of the repository. The revision must harvest on the database, with today's dependencies.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

from outbox_servers.finding import open_kafka, open_mariadb, open_mysql, open_postgres

from tests.databases import Database, MySql, Postgres
from tests.shop import Shop

from .earlier import environment, unpack
from .story import Story

DATABASES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], type[Database]]] = {
    "postgres": (open_postgres, Postgres),
    "mysql": (open_mysql, MySql),
    "mariadb": (open_mariadb, MySql),
}


def main() -> int:
    """Runs the story; returns 0 if nothing was lost or out of order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("revision", help="the earlier version, as git names it")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each step lasts at least")
    arguments = parser.parse_args()
    open_server, database = DATABASES[arguments.database]
    with (
        tempfile.TemporaryDirectory() as name,
        open_kafka() as kafka,
        open_server() as server,
    ):
        folder = Path(name)
        version = folder / "earlier"
        version.mkdir()
        unpack(arguments.revision, version)
        dsn = server.create_database(f"upgrade_{uuid4().hex[:8]}")
        shop = Shop(database(dsn), kafka, f"upgrade-{uuid4().hex[:8]}")
        result = Story(shop, folder, environment(version), arguments.seconds, tell).run()
    tell(
        f"{result.sent} committed, {result.lost} lost, {result.overtaken} overtaken, "
        f"{result.reappeared} reappeared, {result.repeated} repeated, {result.foreign} foreign"
    )
    return 0 if result.lost == result.overtaken == result.foreign == 0 else 1


def tell(line: str) -> None:
    """Shows a line at once."""
    print(line, flush=True)  # noqa: T201 - a program that prints


if __name__ == "__main__":
    sys.exit(main())
