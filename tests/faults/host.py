"""What a fault can do to the database of a shop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from outbox_servers.services import MariaDbServer, MySqlServer, PostgresServer

from ..databases import Database  # noqa: TID252 - pytest gives tests no absolute name
from .name import Name
from .proxy import POSTGRES, Speech

Server = PostgresServer | MySqlServer | MariaDbServer


class Power(Enum):
    """What a host can do; a fault requires powers, and never checks for the name of a database."""

    SERVER = "its server can be killed and started again, and is reached over TCP"
    RULES = "its modes, accounts and disk can be changed while it runs"
    EVICTION = "it ends the transaction of a process that is frozen"
    READ_ONLY = "it can refuse writes while it runs"
    SUCCESSION = "a replica can take over, and the name then leads there"
    COMMITS = "it tells the order of commits"
    TOUCHES = "it records which connection changes how many rows of the outbox"


class Host(ABC):
    """A database for one shop; a context manager that starts and ends what it needs.

    Args:
        folder: A folder for its files.
        password: The password of the harvesters' account, if the database has accounts.

    Attributes:
        title: Its name, for people.
        powers: What it can do.
        lanes: The number of lanes for it.
        speech: What a proxy must know of its protocol.
        server: Its server, if it has one.
        database: The shop's database.
    """

    title: ClassVar[str]
    powers: ClassVar[frozenset[Power]] = frozenset()
    lanes: ClassVar[int] = 4
    speech: ClassVar[Speech] = POSTGRES
    server: Server
    database: Database

    def __init__(self, folder: Path, password: str) -> None:
        self.folder = folder
        self.password = password
        self._stack = ExitStack()
        self._former: Server | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        self._stack.callback(self.database.fence.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def version(self) -> str:
        """Returns the version of the database."""

    @abstractmethod
    def source(self, name: str, port: int) -> str:
        """Returns the data source of a harvester with that name, through that port."""

    def admit(self) -> None:  # noqa: B027 - a database may have no accounts
        """Creates the harvesters' account, and grants it access to the shop's tables, which must exist."""

    def doing(self) -> str:
        """Returns the server's report of its sessions and locks, for the analysis of a failed round."""
        return ""

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Makes the server refuse writes of its present sessions, too, until the block ends."""
        raise NotImplementedError
        yield

    def replicate(self) -> Server:
        """Starts a replica of the whole server, which has everything."""
        raise NotImplementedError

    def succeed(self, successor: Server, *, crash: bool = False) -> None:
        """Makes the replica the server, with everything that the application has committed.

        The former server is killed, or stays, read-only and with the harvesters' connections.
        """
        raise NotImplementedError

    def restore(self) -> None:
        """Undoes what a failed fault has left behind."""
        if Power.SERVER in self.powers:
            self.server.start()

    def _give_name(self) -> None:
        self.name = Name(lambda: self.server.port, self.speech)
        self._stack.callback(self.name.close)

    def _hand_over(self, successor: Server) -> None:
        """Makes another server the one with the name; the one before the former ends."""
        if self._former:
            self._former.close()
        self._former, self.server = self.server, successor
        self._stack.callback(successor.close)
        self.name.give()
