"""Executes histories on a real database and a real broker."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from bench.methods.broker import Topic
from bench.methods.history import History
from bench.methods.judge import Committed, Delivered, Verdict, judge
from bench.methods.method import Harvester, Method, Place, RefusedError

TICK = 0.001
"""Seconds that each step takes on the history's clock."""
SETTLED = 3
"""How often time passes at the end, so that nothing waits for a grace period."""
POLLS = 5
"""Polls whenever time passes: more than a backlog of a history has batches."""
LARGE = 30_000
"""Bytes of the value of a record that the broker refuses."""


class Server(Protocol):
    """A database server with one outbox."""

    insert: str
    """Writes a record; its parameters are ``key``, ``value`` and ``created``."""

    @property
    def errors(self) -> type[Exception]:
        """What it raises where a statement fails."""
        ...

    def connect(self) -> Any:
        """Connects, in autocommit mode."""
        ...

    def reset(self, ddl: str) -> None:
        """Makes an empty outbox, and what a method needs beside it."""
        ...

    def save(self) -> Any:
        """Returns all that the database has."""
        ...

    def restore(self, saved: Any) -> None:
        """Makes the database what it was."""
        ...

    def close(self) -> None:
        """Disconnects."""
        ...


@dataclass
class Transaction:
    """An open transaction of an application."""

    connection: Any
    began: float
    written: list[Committed] = field(default_factory=list)
    saved: int | None = None  # how many were written at the savepoint


@dataclass
class Process:
    """A harvester, as far as it runs."""

    place: Place
    harvester: Harvester
    poll: Generator[None] | None = None


class World:
    """One history of one method.

    Args:
        server: The database.
        method: How it is harvested.
        topic: Where to.
    """

    def __init__(self, server: Server, method: Method, topic: Topic) -> None:
        self.now = 1000.0
        self._elapsed = 0.0  # unlike the database's clock, it never jumps
        self._server = server
        self._method = method
        self._topic = topic
        self._memory: dict[str, Any] = {}
        self._open: dict[str, Transaction] = {}
        self._idle: list[Any] = []  # connections of applications
        self._due: dict[str, float] = {}  # record → when harvesters first had an occasion to deliver it
        self._processes: dict[str, Process] = {}
        self._committed: list[Committed] = []
        self._delivered: list[Delivered] = []
        self._undone: set[str] = set()
        self._run = uuid4().hex[:6]
        self._backup: tuple[Any, list[Committed]] | None = None
        self._failing = False
        self._turn = 0
        self._names = 0

    def execute(self, history: History) -> Verdict:
        """Executes a history to its end, at which all commits and the harvester catches up."""
        self._server.reset(self._method.ddl)
        self._harvest("h0", "poll")
        for step in history:
            self._step(*step.split(" ", 1))
        for writer in list(self._open):
            self._write(writer, "commit")
        for _ in range(SETTLED):
            self._pass(30.0)
        for name in list(self._processes):
            self._crash(name)
        for connection in self._idle:
            connection.close()
        delivered = [each for each in self._delivered if each.name not in self._undone]
        committed = [each._replace(at=self._due[each.name]) for each in self._committed]
        return judge(committed, delivered, fails=self._failing)

    def _step(self, who: str, what: str = "") -> None:
        self.now += TICK
        self._elapsed += TICK
        match who[0]:
            case "w":
                self._write(who, what)
            case "h":
                self._harvest(who, what)
            case "c":
                self._pass(float(what))
            case "b" if not self._open:
                self._backup = (self._server.save(), list(self._committed))
            case "r" if self._backup:
                self._restore(*self._backup)

    def _write(self, writer: str, what: str) -> None:
        word, _, letter = what.partition(" ")
        key = f"{self._run}-{letter}"  # no other history's
        if word in {"insert", "poison", "begin"} and writer not in self._open:
            self._begin(writer)
        transaction = self._open.get(writer)
        if transaction is None:
            return
        run = transaction.connection.cursor().execute
        match word:
            case "insert" | "poison":
                self._insert(writer, transaction, key, poison=word == "poison")
            case "savepoint":
                run("SAVEPOINT s")
                transaction.saved = len(transaction.written)
            case "undo" if transaction.saved is not None:
                run("ROLLBACK TO SAVEPOINT s")
                del transaction.written[transaction.saved :]
            case "commit" | "rollback":
                run(word)
                if word == "commit":
                    self._committed += transaction.written
                self._idle.append(self._open.pop(writer).connection)

    def _begin(self, writer: str) -> None:
        connection = self._idle.pop() if self._idle else self._server.connect()
        connection.cursor().execute("BEGIN")
        self._open[writer] = Transaction(connection, self.now)

    def _insert(self, writer: str, transaction: Transaction, key: str, *, poison: bool) -> None:
        """Writes a record, unless another transaction has the lock of its key's business row."""
        others = [each for name, each in self._open.items() if name != writer]
        if any(each.key == key for other in others for each in other.written):
            return
        self._names += 1
        name = f"{self._run}-{self._names}"
        value = name.ljust(LARGE if poison else 0, ".")
        values = {"key": key, "value": value, "created": transaction.began}
        transaction.connection.cursor().execute(self._server.insert, values)
        transaction.written.append(Committed(name, key, 0.0, poison))

    def _harvest(self, name: str, what: str) -> None:
        if self._method.workers > 1:
            self._turn += 1
            name = f"h{self._turn % self._method.workers}"
        if what == "crash":
            self._crash(name)
            return
        process = self._processes.get(name) or self._start(name)
        if process.poll is None:
            process.poll = iter(process.harvester.poll())
        try:
            ended = False
            while not ended:
                ended = next(process.poll, self) is self
                if what == "step":
                    break
            if ended:
                process.poll = None
        except (RefusedError, self._server.errors):
            self._failing = True
            self._crash(name)
        self._delivered += [Delivered(got, key, self._elapsed) for got, key in self._topic.read()]

    def _start(self, name: str) -> Process:
        place = Place(self._server.connect(), self._topic, self, self._memory)
        self._processes[name] = process = Process(place, self._method.start(place))
        return process

    def _crash(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.place.connection.close()
            for end in process.place.ends:
                end()
            if process.poll is not None:
                with suppress(self._server.errors):
                    process.poll.close()

    def _pass(self, seconds: float) -> None:
        """Lets time pass; each harvester polls then, as harvesters do all the time."""
        self._failing = False
        for each in self._committed:
            self._due.setdefault(each.name, self._elapsed)
        self._poll_all()
        self.now += seconds
        self._elapsed += max(seconds, TICK)
        self._poll_all()

    def _poll_all(self) -> None:
        for _ in range(POLLS):
            for name in list(self._processes) or ["h0"]:
                self._harvest(name, "poll")

    def _restore(self, saved: Any, committed: Sequence[Committed]) -> None:
        for name in list(self._processes):
            self._crash(name)
        for writer in list(self._open):
            self._open.pop(writer).connection.close()
        self._undone |= {each.name for each in self._committed} - {each.name for each in committed}
        self._committed = list(committed)
        self._server.restore(saved)
