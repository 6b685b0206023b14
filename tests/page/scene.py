"""What the page shows: a shop with its own database, and harvesters that compete for its outbox."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from outbox_api.seams.journal import Entry
from outbox_servers.services import Kafka, PostgresServer

from ..harvesters import Fleet, Harvester, until  # noqa: TID252 - pytest gives tests no absolute name
from ..shop import INSERT, Shop  # noqa: TID252 - pytest gives tests no absolute name

SMALL = 1000
"""Bytes of the largest message that the topic takes at first."""
LARGE = secrets.token_hex(2500)
"""A value that is too large even when it is compressed."""
SESSION = "6s"
"""Longer than what mostly keeps a process of a busy machine from confirming its lease."""
LONG_SESSION = "30s"
"""Longer than whatever does, for tests in which no leader ends."""
NOWHERE = "no topic!"
"""The name of a topic that there cannot be."""

OPERATORS = {"olga": secrets.token_urlsafe(24), "oscar": secrets.token_urlsafe(24)}
"""Operators and their tokens."""
VIEWER = secrets.token_urlsafe(24)
"""The token of a viewer."""
_SERVING = "serving on http://"


class Scene:
    """A shop, and the harvesters of its outbox that run now.

    Args:
        shop: The shop.
        fleet: Starts the harvesters.
        path: What the paths of their pages begin with.
        session: The session of their election.
        server: The database server, if it is the scene's own: tests may stop it.

    Attributes:
        urls: Harvester → the address of its page, without a slash at its end.
    """

    def __init__(
        self, shop: Shop, fleet: Fleet, path: str, session: str, server: PostgresServer | None
    ) -> None:
        self.shop = shop
        self.fleet = fleet
        self.urls: dict[str, str] = {}
        self._path = path
        self._session = session
        self._server = server

    @property
    def server(self) -> PostgresServer:
        """The database server, which is the scene's own."""
        assert self._server is not None
        return self._server

    def start(self) -> None:
        """Starts one more harvester, and waits until its page is served."""
        harvester = self.fleet.start(
            f"harvester-{len(self.fleet.harvesters) + 1}",
            http={
                "listen": "127.0.0.1:0",
                "path": f"{self._path}/",
                "operatorTokens": OPERATORS,
                "viewerTokens": [VIEWER],
            },
            elector={"driver": "lease", "sessionTimeout": self._session},
            dialect={"driver": "postgres", "keep": {"for": "1h"}},
            failures={"firstBackoff": "20ms", "parkAfter": 2},
        )
        harvester.wait_for("joined the election", 60)
        address = harvester.wait_for(_SERVING, 60).text.rpartition(_SERVING)[2]
        self.urls[harvester.name] = f"http://{address}{self._path}"

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
def opened(
    folder: Path, kafka: Kafka, topic: str, *, path: str = "", dsn: str = "", session: str = SESSION
) -> Iterator[Scene]:
    """Yields a scene with two harvesters, of which one leads.

    Args:
        folder: For settings and logs.
        kafka: The broker.
        topic: A new topic.
        path: What the paths of the pages begin with.
        dsn: An empty database; if not given, the scene has a server of its own.
        session: The session of the election.
    """
    with ExitStack() as stack:
        server = None if dsn else stack.enter_context(PostgresServer())
        shop = Shop(dsn or server.create_database("shop"), kafka, topic)  # type: ignore[union-attr]  # one of them is
        shop.database.keep_records()
        shop.open(SMALL)
        scene = Scene(shop, Fleet(folder, shop), path, session, server)
        stack.callback(scene.fleet.close)
        scene.start()
        # What the second one tells of changes begins with who leads when it starts.
        scene.fleet.harvesters[0].wait_for("leader acquired", 60)
        scene.start()
        yield scene
