"""The broker of the model, and the requests on their way to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from .scope import Rule, Scope
from .world import FAILED, GONE, OUT, POISON, WRITTEN, Client, Line, Log, Process, Rows, World

Step = tuple[str, World]


class Network:
    """What may become of requests."""

    def __init__(self, scope: Scope, off: frozenset[Rule]) -> None:
        self._scope, self._off = scope, off

    def steps(self, world: World, process: Process) -> Iterator[Step]:
        """Has a request of the leader arrive, or fail."""
        for place, sent in enumerate(process.alone):
            if sent.stage == OUT:
                for partition in range(self._scope.partitions):
                    moved = sent._replace(stage=WRITTEN, partition=partition)
                    after = world._replace(process=_with_sent(process, place, moved))
                    yield f"the broker writes {sent.row}", self._append(after, (sent.row,), partition)
            if world.faults and sent.stage == OUT and "park" in self._scope.menu:
                after = world._replace(process=_with_sent(process, place, sent._replace(stage=POISON)))
                yield f"{sent.row} is refused for good", after._replace(faults=world.faults - 1)
            if world.faults and sent.stage in (OUT, WRITTEN) and self._fails(sent.stage):
                after = world._replace(process=_with_sent(process, place, sent._replace(stage=FAILED)))
                words = "is refused" if sent.stage == OUT else "is written, and not acknowledged in time"
                yield f"{sent.row} {words}", after._replace(faults=world.faults - 1)
        if process.client is not None and not process.client.over and not process.client.fatal:
            for line in process.client.lines:
                yield from self._runs(world, process, process.client, line)

    def _fails(self, stage: int) -> bool:
        menu = self._scope.menu
        return "timeout" in menu or (stage == OUT and "refuse" in menu)

    def _runs(self, world: World, process: Process, client: Client, line: Line) -> Iterator[Step]:
        """Has the next request of runs arrive, which has any number of records."""
        waiting = line.rows[line.written :]
        for number in range(1, len(waiting) + 1):
            some = waiting[:number]
            moved = line._replace(written=line.written + number, known=True)
            after = world._replace(process=_with_client(process, client, line, moved))
            yield f"the broker writes {list(some)} of a run", self._append(after, some, line.partition)
            if not world.faults:
                continue
            spent = world._replace(faults=world.faults - 1)
            if "refuse" in self._scope.menu:
                refused = self._refused(process, client, line, some)
                yield f"the broker refuses {list(some)} of a run", spent._replace(process=refused)
            if "unready" in self._scope.menu and not line.known:
                yield from self._overtaken(spent, process, client, line, number)

    def _refused(self, process: Process, client: Client, line: Line, some: Rows) -> Process:
        """Fails the records of a request; without a gap, the client sends nothing any more."""
        left = tuple(row for row in line.rows if row not in some)
        client = client._replace(troubles=(*client.troubles, *((row, "refused") for row in some)))
        if "nothing is written behind a refused record" not in self._off:
            client = client._replace(fatal=True)
        return _with_client(process, client, line, line._replace(rows=left))

    def _overtaken(
        self, world: World, process: Process, client: Client, line: Line, number: int
    ) -> Iterator[Step]:
        """Has the second request to a partition be taken before the first, which the client takes for known.

        A broker takes any first request of a producer that it does not know there.
        """
        first, second = line.rows[:number], line.rows[number:]
        if not second:
            return
        client = client._replace(troubles=(*client.troubles, *((row, "unplaced") for row in first)))
        moved = line._replace(rows=second, written=len(second), known=True)
        after = world._replace(process=_with_client(process, client, line, moved))
        words = f"the broker refuses {list(first)} for a moment, and writes {list(second)}"
        yield words, self._append(after, second, line.partition)

    # --- of a leader that is lost ---------------------------------------------------------------------

    def last_requests(self, world: World, process: Process) -> Iterator[Step]:
        """Has what a lost leader has sent arrive, or not; a request has any number of records."""
        choices: list[list[tuple[Rows, int]]] = []
        for sent in process.alone:
            if sent.stage == OUT:
                places = [((sent.row,), each) for each in range(self._scope.partitions)]
                choices.append([((), 0), *places])
        client = process.client
        for line in client.lines if client and not client.over and not client.fatal else ():
            waiting = line.rows[line.written :]
            choices.append([(waiting[:number], line.partition) for number in range(len(waiting) + 1)])
        for chosen in product(*choices):
            requests = tuple(each for each in chosen if each[0])
            words = f", whose {[list(rows) for rows, _ in requests]} arrive" if requests else ""
            if "late requests are gone" in self._off:
                yield words and f"{words} later", world._replace(requests=requests)
                continue
            after = world
            for rows, partition in requests:
                after = self._append(after, rows, partition)
            yield words, after

    def late(self, world: World) -> Iterator[Step]:
        """Has a request of a lost leader arrive at last."""
        for request in world.requests:
            left = tuple(each for each in world.requests if each != request)
            yield (
                f"a late request writes {list(request[0])}",
                self._append(world._replace(requests=left), *request),
            )

    # --- the log --------------------------------------------------------------------------------------

    def _append(self, world: World, rows: Sequence[int], partition: int) -> World:
        for row in rows:
            key = self._scope.keys[row]
            if key in world.parked:
                return world._replace(wrong="parked")
            logs, own = list(world.log), [each for each, its in enumerate(self._scope.keys) if its == key]
            if wrong := self._breaks(world, logs[key], own, own.index(row), partition):
                return world._replace(wrong=wrong)
            logs[key] = Log(max(logs[key].rows, own.index(row) + 1), own.index(row), partition)
            world = world._replace(log=tuple(logs))
        return world

    def _breaks(self, world: World, log: Log, own: Sequence[int], number: int, partition: int) -> str:
        """Returns what is broken if the record of this number, among those of its key, comes next."""
        if number > log.rows:
            return "order"
        if number == log.last + 1:
            # Readers of two partitions may see them in any order, if nothing is between them.
            unsettled = number > 0 and world.rows[own[log.last]] != GONE
            return "order" if unsettled and partition != log.partition else ""
        unpurged = next((each for each, row in enumerate(own) if world.rows[row] != GONE), len(own))
        return "" if number <= log.last and number == unpurged else "stale"


def _with_sent(process: Process, place: int, sent: object) -> Process:
    alone = [*process.alone]
    alone[place] = sent  # type: ignore[call-overload]
    return process._replace(alone=tuple(alone))


def _with_client(process: Process, client: Client, line: Line, moved: Line) -> Process:
    lines = tuple(moved if each == line else each for each in client.lines)
    return process._replace(client=client._replace(lines=lines))
