"""The temporary servers and harvesters of a demonstration: a database, a broker, two harvesters."""

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from outbox_api import OutboxTable
from outbox_core.config import load
from outbox_servers.services import KafkaBroker, PostgresServer

from outbox_demo.display import Display
from outbox_demo.harvester import Harvester
from outbox_demo.options import HARVESTERS, LEADER_GROUP, PARTITIONS, SESSION_SECONDS, TABLE, TOPIC

_REQUEST_SECONDS = 5.0


@dataclass(frozen=True)
class Leader:
    """The current leader, as the fence records it.

    Attributes:
        name: The harvester's name.
        token: Its fence token.
        since: When it raised the token.
    """

    name: str
    token: int
    since: datetime


class Environment:
    """Starts servers and harvesters step by step; a context manager that ends all of them.

    Args:
        engine: The engine of the harvesters.
        display: Shows the steps that take a while.

    Attributes:
        folder: Holds configuration, logs and ledger; deleted at the end unless something failed.
        harvesters: Name → process; empty before :meth:`start_harvesters`.
        failed: Set to keep the folder although no error ends the demonstration.
    """

    def __init__(self, engine: str, display: Display) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="outbox-demo-")).resolve()
        self.harvesters: dict[str, Harvester] = {}
        self.failed = False
        self._engine = engine
        self._display = display
        self._stack = ExitStack()
        self._postgres = PostgresServer(progress=display.wait_for)
        self._kafka = KafkaBroker(progress=display.wait_for, auto_create_topics=False)
        self._stack.callback(self._postgres.close)
        self._stack.callback(self._kafka.close)
        self._table: OutboxTable | None = None

    @property
    def dsn(self) -> str:
        """The database's address; carries a password."""
        return self._postgres.dsn

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return self._kafka.bootstrap

    @property
    def ledger(self) -> Path:
        """The file in which the application records what it has committed."""
        return self.folder / "ledger"

    def settings_file(self, name: str) -> Path:
        """Returns the path of a harvester's configuration."""
        return self.folder / f"{name}.yaml"

    def open(self) -> None:
        """Starts database and broker, and creates outbox and topic as ``outbox init`` does."""
        self._postgres.start()
        self._kafka.start()
        for name in HARVESTERS:
            text = yaml.safe_dump(self._configuration(name), sort_keys=False)
            self.settings_file(name).write_text(text, encoding="utf-8")
        settings = load(self.settings_file(HARVESTERS[0])).harvest
        settings.dialect.create().create()
        settings.publisher.create().prepare([TOPIC], PARTITIONS)
        self._table = settings.dialect.create().connect()
        self._stack.callback(self._table.close)

    def start_harvesters(self) -> None:
        """Starts the harvesters; does not wait until they are ready."""
        for name in HARVESTERS:
            harvester = self.harvesters[name] = Harvester(name, self.settings_file(name))
            self._stack.callback(harvester.close)

    def candidates(self) -> int:
        """Returns how many harvesters take part in the election now."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            groups = admin.describe_consumer_groups([LEADER_GROUP], request_timeout=_REQUEST_SECONDS)
            return len(groups[LEADER_GROUP].result().members)
        except KafkaException:
            return 0  # the group does not exist before the first harvester joins

    def leader(self) -> Leader | None:
        """Returns the current leader; ``None`` before the first one."""
        held = max(
            self._open_table().lane_statuses(), key=lambda lane_status: lane_status.fence.token, default=None
        )
        return None if held is None else Leader(held.holder, held.fence.token, held.since)

    def backlog(self) -> int:
        """Returns the number of records in the outbox."""
        return self._open_table().backlog().records

    def log_tails(self) -> str:
        """Returns the end of each harvester's log, with its name."""
        return "\n".join(
            f"The end of {harvester.log}:\n{harvester.log_tail()}" for harvester in self.harvesters.values()
        )

    def check(self) -> None:
        """Makes sure that no harvester has ended by itself.

        Raises:
            OutboxError: One has; the message contains the end of its log.
        """
        for harvester in self.harvesters.values():
            harvester.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self.harvesters and (self.failed or isinstance(error, Exception)):
            self._display.log(f"configuration, logs and ledger are kept in {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _open_table(self) -> OutboxTable:
        assert self._table is not None  # noqa: S101 - the scenario opens the environment first
        return self._table

    def _configuration(self, name: str) -> dict[str, object]:
        return {
            "harvest": {
                "name": name,
                "dataSource": self.dsn,
                "outboxTable": TABLE,
                "baseKafkaConfig": {"bootstrap.servers": self.bootstrap},
                # A message of a killed leader must not arrive after its successor has started.
                "producerKafkaConfig": {"delivery.timeout.ms": (SESSION_SECONDS - 2) * 1000},
                "leaderGroupID": LEADER_GROUP,
                "elector": {"driver": "neli-kafka", "sessionTimeout": f"{SESSION_SECONDS}s"},
                "engine": self._engine,
                "limits": {"sendConcurrency": 4, "minMetricsInterval": "1s"},
            }
        }
