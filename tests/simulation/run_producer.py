"""What a lane sends runs with: a producer that writes nothing behind what fails, until it is given up."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outbox_api import Failure, MarkedRecord

from .requests import PAUSE_SECONDS
from .trail import FAILING, Session, serial_of

if TYPE_CHECKING:
    from .broker import Producer

GIVEN_UP_SECONDS = 1.0
"""How long the broker may acknowledge nothing of a record before the producer is given up."""
READY_SECONDS = 0.05
"""How long it takes until a producer may send; shorter than the real time."""
LAST_REPORTS_SECONDS = 0.2
"""How long it takes at most then until the rest is reported; shorter than the real time."""


class Request:
    """Records of one partition on their way, in order; all of them are written, or none.

    Attributes:
        departs: When it leaves its host, if that is then running.
        appended: Whether the broker has written it; it does so once, however often it is sent.
        losses: As of :class:`.broker.Packet`.
    """

    __slots__ = ("appended", "departs", "losses", "partition", "records")

    def __init__(self, partition: int, records: list[MarkedRecord], losses: int) -> None:
        self.partition = partition
        self.records = records
        self.losses = losses
        self.departs = 0.0
        self.appended = False


class RunProducer(Session):
    """One producer of runs, of a session of at-least-once delivery.

    It has one request to a partition in flight, and repeats it until it is acknowledged. Whatever is refused
    for good, or not acknowledged in time, ends it; what is in the network then may still arrive.
    """

    def __init__(self, owner: Producer) -> None:
        super().__init__(owner.lane, f"{owner.name}/runs")
        self.token = owner.token
        self.over = False
        self._owner = owner
        self._ready_at = owner.broker.scheduler.now + READY_SECONDS
        self._broker, self._host = owner.broker, owner.host
        self._waiting: defaultdict[int, deque[tuple[MarkedRecord, int]]] = defaultdict(deque)
        self._out: dict[int, Request] = {}
        self._unreported: dict[int, MarkedRecord] = {}
        self._known: set[int] = set()  # partitions that have taken a request of it
        self._delivered: set[int] = set()  # those that have acknowledged one
        self._behind: dict[int, list[tuple[MarkedRecord, int]]] = {}  # what waits for the first one there
        self._failed: set[str] = set()  # keys of which a record has failed

    @property
    def gone(self) -> bool:
        """Whether all is reported of what it was given before it was given up."""
        return self.over and not self._unreported

    @property
    def ready(self) -> bool:
        """Whether it would send at once."""
        return not self.over and self._broker.scheduler.now >= self._ready_at

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Sends records in order that follow the first ones of their runs."""
        broker, owner = self._broker, self._owner
        broker.audit.counts["records that followed in runs"] += len(records)
        for record in records:
            broker.audit.sent(owner, record.id, record.key, follows=True)
            broker.audit.published(owner, record)
            if self.over:
                self._host.after(0.0, self._fail, record, "its producer has failed", False)
                continue
            self.trail.run_of[record.id] = owner.trail.runs[record.key]
            self._unreported[record.id] = record
            self._host.after(GIVEN_UP_SECONDS, self._time_out, record)
            if not (broker.failing and int(record.key[1:]) >= FAILING):  # its partition has no leader
                self._offer(broker.partition_for(record), record)
        for partition in {broker.partition_for(record): None for record in records}:
            self._pump(partition)

    def _offer(self, partition: int, record: MarkedRecord) -> None:
        """Gives the client a record, if it is the first in its partition or another one was acknowledged."""
        offered = record, -1 if self._owner.superseded else self._owner.losses
        if partition in self._behind:
            self._behind[partition].append(offered)
            return
        if partition not in self._delivered:
            self._behind[partition] = []
        self._waiting[partition].append(offered)

    def _pump(self, partition: int) -> None:
        waiting, random = self._waiting[partition], self._broker.chance
        if self.over or partition in self._out or not waiting:
            return
        number = random.randint(1, len(waiting))
        some = [waiting.popleft() for _ in range(number)]
        self._out[partition] = request = Request(partition, [each for each, _ in some], some[0][1])
        self._depart(request)

    def _depart(self, request: Request) -> None:
        broker, random = self._broker, self._broker.chance.random
        now = broker.scheduler.now
        request.departs = now
        if self.over or self._owner.closed_at < float("inf"):
            return
        pause = broker.chance.random() * PAUSE_SECONDS
        if broker.is_cut_off(self._host):
            self._host.after(pause, self._depart, request)
            return
        delay, mute = random() * 0.005, False
        if random() < broker.lossy:
            fate = broker.chance.choice(("lost records", "lost acknowledgements", "late records"))
            broker.counts[fate] += 1
            self._host.after(pause, self._depart, request)  # the client repeats it
            if fate == "lost records":
                return
            mute = True
            delay = GIVEN_UP_SECONDS * 2 * random() if fate == "late records" else delay
        elif broker.late and random() < 0.1:
            delay = random() * broker.late
        broker.scheduler.at(now + 0.0005 + delay, self._arrive, request, now, mute)

    def _arrive(self, request: Request, departs: float, mute: bool) -> None:
        broker, host, owner = self._broker, self._host, self._owner
        now = broker.scheduler.now
        if departs > min(owner.closed_at, host.died_at):
            return
        if host.paused and departs > host.paused_at:
            host.do(self._depart, request)
            return
        if broker.away_until > now:
            broker.scheduler.at(broker.away_until, self._arrive, request, departs, mute)
            return
        if not request.appended and not self._append(request):
            return
        if not mute:
            host.after(broker.chance.random() * 0.003, self._acknowledge, request)

    def _append(self, request: Request) -> bool:
        """Has the broker write a request; returns whether it does."""
        broker, partition = self._broker, request.partition
        entries = [broker.audit.entries[serial_of(record)] for record in request.records]
        if refused := [entry for entry in entries if entry.refusals]:
            broker.counts["refused records"] += 1
            if not self.over:
                refused[0].refusals -= 1
                self._host.after(broker.chance.random() * 0.003, self.end, "too large", request.records)
            return False
        if partition not in self._known and broker.unready and broker.chance.random() < broker.unready:
            broker.counts["first requests refused"] += 1
            self._overtake(request)
            return False
        self._known.add(partition)
        request.appended = True
        for record in request.records:
            failed = self._unreported.get(record.id) is not record
            stale = failed or request.losses != self._owner.losses
            broker.log.append(partition, self, record.id, stale=stale)
        return True

    def _overtake(self, request: Request) -> None:
        """Repeats the first request to a partition; what waits behind it may be faster.

        The broker takes any first request of a producer that it does not know (KAFKA-15591). Then the other
        one is out of order, and the client takes it for known: it is acknowledged without an offset.
        """
        partition, chance = request.partition, self._broker.chance
        if not self._waiting[partition] or chance.random() < 0.5:
            self._host.after(chance.random() * PAUSE_SECONDS, self._depart, request)
            return
        self._broker.counts["acknowledged without an offset"] += 1
        self._known.add(partition)
        del self._out[partition]
        self._pump(partition)
        self._host.after(2 * PAUSE_SECONDS, self.end, "acknowledged without an offset", request.records)

    def _acknowledge(self, request: Request) -> None:
        if self._owner.closed_at < float("inf") or self._out.get(request.partition) is not request:
            return
        del self._out[request.partition]
        self._delivered.add(request.partition)
        self._waiting[request.partition].extend(self._behind.pop(request.partition, ()))
        for record in request.records:
            if self._unreported.pop(record.id, None) is not record:
                continue
            if record.key in self._failed:
                self._fail(record, "it is behind a record of its key that was not sent", False)
                continue
            self._broker.audit.reported(self._owner, record.id, record.key, delivered=True)
            self._owner.receiver.delivered(record._replace(partition=request.partition))
        self._pump(request.partition)

    def _time_out(self, record: MarkedRecord) -> None:
        if self._unreported.get(record.id) is record:
            self.end("timed out", [record])

    def end(self, reason: str, suspects: Sequence[MarkedRecord]) -> None:
        """Gives it up: nothing more is sent, and whatever has no report has failed."""
        if self.over or self._owner.closed_at < float("inf"):
            return
        self.over = True
        self._broker.counts["producers of runs given up"] += 1
        # The client reports one after the other.
        chance, delay = self._broker.chance, 0.0
        slow = chance.choice((0.0, LAST_REPORTS_SECONDS / max(1, len(self._unreported))))
        for record in self._unreported.values():
            suspect = any(record is each for each in suspects)
            self._host.after(delay, self._fail_unreported, record, reason, suspect)
            delay += chance.random() * slow

    def _fail_unreported(self, record: MarkedRecord, reason: str, suspect: bool) -> None:
        if self._unreported.get(record.id) is record and self._owner.closed_at == float("inf"):
            del self._unreported[record.id]
            self._fail(record, reason, suspect)

    def _fail(self, record: MarkedRecord, reason: str, suspect: bool = True) -> None:
        self._failed.add(record.key)
        self._broker.audit.reported(self._owner, record.id, record.key, delivered=False)
        self._owner.receiver.undelivered(Failure(record, reason, True, suspect, innocent=not suspect))
