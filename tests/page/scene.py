"""What the page shows: a shop with its own database, and harvesters that compete for its outbox."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from outbox_sdk.journal import Entry
from outbox_servers.services import Kafka, PostgresServer, free_port

from ..harvesters import Fleet, Harvester, until  # noqa: TID252 - pytest gives tests no absolute name
from ..shop import INSERT, Shop  # noqa: TID252 - pytest gives tests no absolute name

SMALL = 1000
"""Bytes of the largest message that the topic takes at first."""
LARGE = secrets.token_hex(2500)
"""A value that is too large even when it is compressed."""
SESSION = "6s"
"""Longer than what keeps a process of a busy machine from confirming its lease."""
NOWHERE = "no topic!"
"""The name of a topic that there cannot be."""

OPERATORS = {"olga": secrets.token_urlsafe(24), "oscar": secrets.token_urlsafe(24)}
"""Operators and their tokens."""
VIEWER = secrets.token_urlsafe(24)
"""The token of a viewer."""


class Scene:
    """A shop, and the harvesters of its outbox that run now.

    Args:
        server: The database server; tests may stop it.
        shop: The shop.
        fleet: Starts the harvesters.
        path: What the paths of their pages begin with.

    Attributes:
        urls: Harvester → the address of its page, without a slash at its end.
    """

    def __init__(self, server: PostgresServer, shop: Shop, fleet: Fleet, path: str = "") -> None:
        self.server = server
        self.shop = shop
        self.fleet = fleet
        self.urls: dict[str, str] = {}
        self._path = path

    def start(self) -> str:
        """Starts one more harvester, waits until its page is served, and returns its name."""
        name = f"harvester-{len(self.fleet.harvesters) + 1}"
        address = f"127.0.0.1:{free_port()}"
        harvester = self.fleet.start(
            name,
            http={
                "listen": address,
                "path": f"{self._path}/",
                "operatorTokens": OPERATORS,
                "viewerTokens": [VIEWER],
            },
            elector={"driver": "lease", "sessionTimeout": SESSION},
            failures={"firstBackoff": "20ms", "parkAfter": 2},
        )
        harvester.wait_for("joined the election", 60)
        self.urls[name] = f"http://{address}{self._path}"
        return name

    def harvester(self, name: str) -> Harvester:
        return next(each for each in self.fleet.harvesters if each.name == name)

    @property
    def running(self) -> list[str]:
        """The names of the harvesters that run, the oldest first."""
        return [each.name for each in self.fleet.harvesters if each.running]

    @property
    def url(self) -> str:
        """The address of a page."""
        return self.urls[self.running[0]]

    def stash(self, *records: tuple[str, str], topic: str | None = None) -> None:
        """Commits records of keys and values, all for one topic."""
        with self.shop.connect() as connection:
            for key, value in records:
                connection.execute(INSERT, (topic or self.shop.topic, key, value, [], []))

    def repair(self, key: str) -> None:
        """Corrects the topic of a key's records, as an operator does with SQL."""
        with self.shop.connect() as connection:
            statement = "UPDATE outbox SET kafka_topic = %s WHERE kafka_key = %s"
            connection.execute(statement, (self.shop.topic, key))

    def arrived(self, key: str) -> list[str]:
        """Returns the values of a key that arrived, in order, without direct repetitions."""
        values: list[str] = []
        for message in self.shop.messages():
            value = (message.value() or b"").decode()
            if (message.key() or b"").decode() == key and values[-1:] != [value]:
                values.append(value)
        return values

    def wait_until_arrived(self, key: str, *values: str) -> None:
        """Waits until these values of a key have arrived, and fails if they are not all, in this order."""
        until(lambda: len(self.arrived(key)) >= len(values), f"{values} of {key} arrive", 60, pause=0.1)
        assert self.arrived(key) == list(values)

    def journal(self) -> Sequence[Entry]:
        """Returns what the journal has noted, the newest first."""
        with closing(self.shop.database.dialect.journal(read_only=True)) as journal:
            return journal.entries()


@contextmanager
def opened(folder: Path, kafka: Kafka, topic: str, path: str = "") -> Iterator[Scene]:
    """Yields a scene with two harvesters, of which one leads."""
    with PostgresServer() as server:
        shop = Shop(server.create_database("shop"), kafka, topic)
        shop.open(SMALL)
        scene = Scene(server, shop, Fleet(folder, shop), path)
        try:
            scene.start()
            scene.start()
            yield scene
        finally:
            scene.fleet.close()
