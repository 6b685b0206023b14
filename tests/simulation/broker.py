"""The broker and the producers: within a session and partition records arrive in order, or not at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from outbox_api import MAX_CHECKPOINT, Failure, MarkedRecord

from .audit import Audit
from .log import Log, Publication
from .requests import PAUSE_SECONDS
from .run_producer import RunProducer
from .scheduler import Host, Scheduler
from .trail import FAILING, TOPICS, Furthest, Session, serial_of
from .transactions import TransactionalId

DELIVERY_SECONDS = 1.0
"""When a producer gives a record up that was not acknowledged."""
ENDING_SECONDS = 0.005
"""How long a transaction takes to end, when nothing is slow."""


class Receiver(Protocol):
    """Who is told what became of records."""

    def delivered(self, record: MarkedRecord) -> None: ...

    def undelivered(self, failure: Failure) -> None: ...


class Packet:
    """One record on its way.

    Attributes:
        departs: When it leaves its host, if that is then running.
        deadline: When the producer gives it up.
        losses: How often its session had been superseded when it was handed over; -1 if it was just then.
        lost: Whether the broker never gets it.
        mute: Whether no acknowledgement comes back in time.
        told: Whether the producer has reported it.
        repeated: Whether the broker has refused it for the moment, so that the client has sent it again.
        number: Its number in its producer's stream.
    """

    __slots__ = ("deadline", "departs", "losses", "lost", "mute", "number", "record", "repeated", "told")

    def __init__(self, record: MarkedRecord, departs: float, deadline: float, losses: int) -> None:
        self.record = record
        self.departs = departs
        self.deadline = deadline
        self.losses = losses
        self.lost = self.mute = self.told = self.repeated = False
        self.number = 0


class Stream:
    """An idempotent producer: a lane that starts anew in its process keeps it.

    Attributes:
        appended: Partition → the number of the request appended there last; earlier ones are refused.
        furthest: Key → how far its appends have come.
    """

    def __init__(self) -> None:
        self.appended: dict[int, int] = {}
        self.furthest: defaultdict[str, Furthest] = defaultdict(Furthest)
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number


class Broker:
    """Takes records into the log, unless it is away.

    Attributes:
        away_until: When it is back.
        cut_off: Process → until when it alone does not reach the broker, with its workers.
        lossy: Which part of all records is lost, or its acknowledgement.
        late: The longest that a packet may take in a spike, in seconds.
        slow: The longest that a transaction takes to end once that is decided, in seconds.
        clogged: The longest that a client takes no records, in seconds.
        boot: Raised by every crash, with which the answers on their way are lost.
        partitions: How many a topic has.
        failing: Whether records of keys from ``FAILING`` on are not delivered.
        streams: Host and lane → the idempotent producer there.
        characters: How many a checkpoint may have.
        torn: Which part of all transactions is torn whose commit is asked for.
        blind: Of which part of the records of an attempt the log does not tell.
        repeated: Which part of the requests to end a transaction is sent twice.
        verifies: Whether records are refused that are of no open transaction.
        replaced: Which part of the records of an attempt is gone that others of their key follow.
        unready: Which part of the first requests of producers to a partition is refused for the moment.
        attempted: Called when a transaction has written its checkpoint.
        asked: Called when the commit of a transaction is asked for.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        audit: Audit,
        chance: Random,
        counts: Counter[str],
        transactional_id: type[TransactionalId] = TransactionalId,
    ) -> None:
        self.scheduler = scheduler
        self.audit = audit
        self.chance = chance
        self.counts = counts
        self.away_until = 0.0
        self.cut_off: dict[str, float] = {}
        self.lossy = 0.0
        self.late = 0.0
        self.slow = ENDING_SECONDS
        self.clogged = 0.0
        self.boot = 0
        self.partitions = 3
        self.log = Log(audit, self.partitions * len(TOPICS), lambda: scheduler.now)
        self.failing = True
        self.streams: dict[tuple[Host, int], Stream] = {}
        self.identities: dict[str, TransactionalId] = {}
        self.characters = MAX_CHECKPOINT
        self.torn = self.blind = self.repeated = self.replaced = self.unready = 0.0
        self.verifies = True
        self.attempted: Callable[[Publication], None] = lambda _: None
        self.asked: Callable[[Publication], None] = lambda _: None
        self._traces = 0
        self._transactional_id = transactional_id

    def identity(self, name: str) -> TransactionalId:
        """Returns the transactional id of this name."""
        if name not in self.identities:
            self.identities[name] = self._transactional_id(self)
        return self.identities[name]

    def stream(self, host: Host, lane: int) -> Stream:
        """Returns the producer of a lane in a process."""
        return self.streams.setdefault((host, lane), Stream())

    def next_trace(self) -> str:
        """Returns what the records of a new transaction carry."""
        self._traces += 1
        return str(self._traces)

    def tears(self) -> bool:
        """Returns whether a transaction is torn whose commit is asked for now."""
        return bool(self.torn) and self.chance.random() < self.torn

    def partition_of(self, key: str, beside: int = 0, topic: str = TOPICS[0]) -> int:
        """Returns a key's partition, or the one so many beside it: a part's is of another topic."""
        return (hash_of(key) + beside) % self.partitions + TOPICS.index(topic) * self.partitions

    def partition_for(self, record: MarkedRecord) -> int:
        """Returns the partition of a record by itself."""
        return self.partition_of(record.key, topic=record.topic)

    def completion(self) -> float:
        """Returns how long a transaction takes to end, from when that is decided."""
        return self.chance.random() * self.slow

    def clog(self) -> float:
        """Returns for how long a client takes no records now: its queue is full, or its thread is not run."""
        return self.chance.random() * self.clogged

    def is_cut_off(self, host: Host) -> bool:
        """Returns whether a host, which may be that of a worker, does not reach the broker now."""
        return self.cut_off.get(host.name.partition("/")[0], 0.0) > self.scheduler.now

    def crash(self, seconds: float) -> None:
        """Dies, and is back after a while with all that it has answered, and some of what it has not."""
        self.boot += 1
        self.away_until = max(self.away_until, self.scheduler.now + seconds)


class Producer(Session):
    """One session of at-least-once delivery."""

    run_producer: type[RunProducer] = RunProducer
    has_runs = True

    def __init__(self, broker: Broker, host: Host, lane: int, name: str, receiver: Receiver) -> None:
        super().__init__(lane, name)
        self.broker = self._broker = broker
        self._stream = broker.stream(host, lane)
        self.trail.furthest = self._stream.furthest
        self.host = self._host = host
        self.receiver = receiver
        self.closed_at = float("inf")
        self._free: dict[int, float] = {}
        self._runs: RunProducer | None = None

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Sends records in order."""
        for record in records:
            self._broker.audit.sent(self, record.id, record.key)
            self._broker.audit.published(self, record)
            self._send(record)

    def send_runs(self, first: Sequence[MarkedRecord], others: Sequence[MarkedRecord]) -> None:
        """Sends those that follow with a producer of their own, another one if the last one has failed."""
        self.trail.runs.update((record.key, record.id) for record in first)
        if self._runs is None or (first and self._runs.gone):
            self._runs = self.run_producer(self)
        self.send(first)
        self._runs.send(others)

    def close(self) -> None:
        """Drops what has not left the host; what has travels on, and nobody hears of it."""
        self.closed_at = self._broker.scheduler.now

    def _send(self, record: MarkedRecord) -> None:
        broker = self._broker
        now, random = broker.scheduler.now, broker.chance.random
        entry = broker.audit.entries[serial_of(record)]
        if entry.refusals:
            entry.refusals -= 1
            broker.counts["refused records"] += 1
            self._host.after(random() * 0.01, self._fail, record, "too large", False)
            return
        losses = -1 if self.superseded else self.losses
        if broker.failing and int(record.key[1:]) >= FAILING:
            self._host.after(random() * 0.01, self._fail, record, "no leader for the partition", True)
            return
        packet = Packet(record, now + random() * 0.002, now + DELIVERY_SECONDS, losses)
        packet.number = self._stream.next_number()
        if broker.is_cut_off(self._host):
            packet.lost = packet.mute = True
            self._host.after(DELIVERY_SECONDS, self._time_out, packet)
            return
        if random() < broker.lossy:
            fate = broker.chance.choice(("lost records", "lost acknowledgements", "late records"))
            broker.counts[fate] += 1
            packet.lost = fate == "lost records"
            packet.mute = True
            delay = DELIVERY_SECONDS * 2 * random() if fate == "late records" else 0.0
            self._host.after(random() * DELIVERY_SECONDS, self._time_out, packet)
        else:
            delay = random() * broker.late if broker.late and random() < 0.1 else 0.0
        if not packet.lost:
            self._depart(packet, delay)

    def _depart(self, packet: Packet, delay: float) -> None:
        scheduler, partition = self._broker.scheduler, self._broker.partition_for(packet.record)
        arrives = max(packet.departs + 0.0005 + self._broker.chance.random() * 0.003 + delay,
                      self._free.get(partition, 0.0))  # fmt: skip
        self._free[partition] = arrives + 1e-6
        scheduler.at(arrives, self._arrive, packet)

    def _arrive(self, packet: Packet) -> None:
        broker, host = self._broker, self._host
        now = broker.scheduler.now
        if packet.departs > min(self.closed_at, host.died_at):
            return
        if host.paused and packet.departs > host.paused_at:
            packet.departs = float("-inf")  # it is sent at once when the host goes on
            host.do(self._resume, packet)
            return
        if broker.away_until > now:
            if packet.deadline < broker.away_until:
                self._host.after(max(packet.deadline - now, 0.0), self._time_out, packet)
                packet.mute = True
                if broker.chance.random() < 0.5:
                    return
            broker.scheduler.at(broker.away_until, self._arrive, packet)
            return
        partition, stale = broker.partition_for(packet.record), packet.losses != self.losses
        appended = self._stream.appended
        if packet.number < appended.get(partition, 0):
            self._out_of_order(packet)
            return
        if partition not in appended and broker.unready and broker.chance.random() < broker.unready:
            broker.counts["first requests refused"] += 1
            packet.repeated = True
            packet.departs = now + broker.chance.random() * PAUSE_SECONDS
            broker.scheduler.at(packet.departs, self._arrive, packet)
            return
        appended[partition] = packet.number
        self._append(partition, packet.record, stale=stale)
        if not packet.mute:
            host.after(broker.chance.random() * 0.003, self._acknowledge, packet)

    def _out_of_order(self, packet: Packet) -> None:
        """Refuses what is behind an acknowledged request; the client takes its own repetitions for known.

        The broker takes any first request to a partition of a producer that it does not know there
        (KAFKA-15591), though the client has sent others before.
        """
        broker, host = self._broker, self._host
        broker.counts["delayed requests refused"] += 1
        if packet.mute:
            return
        if packet.repeated:
            broker.counts["acknowledged without an offset"] += 1
            host.after(broker.chance.random() * 0.003, self._unplaced, packet)
        else:
            host.after(max(packet.deadline - broker.scheduler.now, 0.0), self._time_out, packet)

    def _unplaced(self, packet: Packet) -> None:
        """Takes an acknowledgement without an offset, which is none: the record may be in the log or not."""
        self._fail(packet.record, "acknowledged without an offset", True)

    def _append(self, partition: int, record: MarkedRecord, *, stale: bool) -> None:
        self._broker.log.append(partition, self, record.id, stale=stale)

    def _resume(self, packet: Packet) -> None:
        if self.closed_at == float("inf"):
            packet.departs = self._broker.scheduler.now
            self._depart(packet, 0.0)

    def _acknowledge(self, packet: Packet) -> None:
        if self.closed_at == float("inf"):
            self._broker.audit.reported(self, packet.record.id, packet.record.key, delivered=True)
            leads = self._runs is not None and self._runs.ready
            partition = self._broker.partition_for(packet.record) if leads else None
            self.receiver.delivered(packet.record._replace(partition=partition))

    def _time_out(self, packet: Packet) -> None:
        if not packet.told:
            packet.told = True
            self._fail(packet.record, "timed out", True)

    def _fail(self, record: MarkedRecord, reason: str, retryable: bool) -> None:
        if self.closed_at == float("inf"):
            self._broker.audit.reported(self, record.id, record.key, delivered=False)
            self.receiver.undelivered(Failure(record, reason, retryable))


def hash_of(key: str) -> int:
    """Returns the hash of a key, the same in every process."""
    return int(key[1:]) * 2654435761 >> 7 & 0x7FFFFFFF
