"""Shows that a request which was sent twice, and arrives the first time last, can end another transaction.

Needs Python, confluent-kafka, Java and a Kafka distribution. It starts one broker behind a proxy. In a try:

1. The proxy keeps the producer's next request of one kind (EndTxn to commit or abort, Produce,
   AddPartitionsToTxn, InitProducerId), answers nothing, and closes that connection.
2. The client sends the request again over another connection, which is answered. The call returns well.
3. At a chosen moment of a later transaction, the proxy sends the request that it has kept to the broker, over
   a connection of its own, as a network would that was slow.
4. What readers of committed messages get in the end is compared with what was sent: records that are lost,
   twice, or out of order in their key. A partition hangs if its last stable offset stays behind its end.

The broker cannot tell the late request from one of the present transaction: producer id and epoch are the
same. Clients with the second part of KIP-890 raise the epoch with each transaction; librdkafka does not.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread, Timer
from typing import Any, Protocol

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

PARTITIONS, KEYS = 12, 60
SIZE = 500  # bytes of a record
REQUEST = 100  # records of a Produce request
LARGEST = 700_000  # bytes of a batch; a larger record is refused, and its transaction aborted
WAIT_SECONDS = 60
PAUSE_SECONDS = 0.2  # in which the broker handles what was forwarded before
HANG_SECONDS = 2.0  # a last stable offset may be behind for so long
PRODUCE, INITIALIZE, ADD, END = 0, 22, 24, 26  # Kafka's keys of its requests
FLEXIBLE = 3  # the version of EndTxn from which on its answer has another form
CHECKPOINTS = b"outbox.checkpoints"  # the topic in which the product keeps its checkpoints
ERRORS = {0: "NONE", 47: "INVALID_PRODUCER_EPOCH", 48: "INVALID_TXN_STATE", 51: "CONCURRENT_TRANSACTIONS"}
ERRORS |= {45: "OUT_OF_ORDER_SEQUENCE_NUMBER", 46: "DUPLICATE_SEQUENCE_NUMBER", 90: "PRODUCER_FENCED"}
ERRORS |= {120: "TRANSACTION_ABORTABLE", 49: "INVALID_PRODUCER_ID_MAPPING"}

KINDS: dict[str, Callable[[int, bytes], bool]] = {
    "commit": lambda kind, frame: kind == END and frame[-1] == 1,
    "abort": lambda kind, frame: kind == END and frame[-1] == 0,
    "abort-start": lambda kind, frame: kind == END and frame[-1] == 0,
    "produce": lambda kind, frame: kind == PRODUCE and CHECKPOINTS not in frame[:300],
    "checkpoint": lambda kind, frame: kind == PRODUCE and CHECKPOINTS in frame[:300],
    "add": lambda kind, _: kind == ADD,
    "init": lambda kind, _: kind == INITIALIZE,
}
"""What is kept; ``abort`` is that of a refused record, ``abort-start`` that with which the product starts."""
AT_START = ("abort-start", "init")
MOMENTS = (
    "first",
    "added",
    "produce-3",
    "produce-6",
    "produce-9",
    "produce-25",
    "between",
    "between-3",
    "end",
    "after",
)
"""When it arrives: before the first request of a later transaction, after its first AddPartitionsToTxn, after
so many Produce requests, before its second or third AddPartitionsToTxn, before its end, after its end."""
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{proxy}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.partition.verification.enable={verify}
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
"""


class Proxy:
    """Forwards connections request by request; keeps one, and delivers it late.

    Attributes:
        port: Where it listens.
        answers: The broker's answers to late requests.
    """

    def __init__(self, behind: int) -> None:
        self.answers: Counter[str] = Counter()
        self._behind = behind
        self._wanted: Callable[[int, bytes], bool] | None = None
        self._kept, self._moment, self._armed = b"", "", False
        self._added = self._produced = 0
        self._lock = Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    @property
    def hits(self) -> int:
        """How many late requests were delivered."""
        return self.answers.total()

    def keep(self, kind: str, moment: str) -> None:
        """Keeps the next request of a kind, and delivers it at a moment of a later transaction."""
        with self._lock:
            self._kept, self._armed, self._moment, self._wanted = b"", False, moment, KINDS[kind]

    def arm(self) -> None:
        """Has what is kept delivered from now on."""
        with self._lock:
            self._armed = True

    def forget(self) -> None:
        """Keeps nothing more."""
        with self._lock:
            self._kept, self._wanted = b"", None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(("127.0.0.1", self._behind))
                for each in client, server:
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                adding = set[bytes]()
                Thread(target=self._ask, args=(client, server, adding), daemon=True).start()
                Thread(target=self._answer, args=(client, server, adding), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, adding: set[bytes]) -> None:
        with contextlib.suppress(OSError), client.makefile("rb", buffering=1 << 18) as requests:
            while head := requests.read(4):
                frame = head + requests.read(int.from_bytes(head))
                if self._keeps(frame):
                    client.shutdown(socket.SHUT_RDWR)
                    break
                if int.from_bytes(frame[4:6]) == ADD:
                    adding.add(frame[8:12])
                server.sendall(frame)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, server: socket.socket, adding: set[bytes]) -> None:
        with contextlib.suppress(OSError), client, server, server.makefile("rb", 1 << 18) as answers:
            while head := answers.read(4):
                answer = answers.read(int.from_bytes(head))
                if answer[:4] in adding and answer[-2:] == b"\0\0":  # the error of the last partition
                    self._added += 1
                client.sendall(head + answer)

    def _keeps(self, frame: bytes) -> bool:
        """Returns whether a request is kept; delivers the one that is, if its moment has come."""
        kind = int.from_bytes(frame[4:6])
        with self._lock:
            if self._wanted and self._wanted(kind, frame):
                self._kept, self._wanted = frame, None
                return True
            if self._kept and self._armed and self._has_come(kind):
                late, self._kept = self._kept, b""
                if self._moment == "after":
                    Timer(0.1, self._deliver, [late]).start()
                else:
                    time.sleep(PAUSE_SECONDS)
                    self._deliver(late)
            if kind in (END, INITIALIZE):
                self._added = self._produced = 0
        return False

    def _has_come(self, kind: int) -> bool:
        self._produced += kind == PRODUCE
        if kind == ADD:
            return self._moment == {0: "first", 1: "between"}.get(self._added, f"between-{self._added + 1}")
        if kind == PRODUCE:
            return self._moment in ("added" if self._produced == 1 else "", f"produce-{self._produced - 1}")
        return kind == END and self._moment in ("end", "after")

    def _deliver(self, frame: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self._behind), timeout=10) as server:
            server.sendall(frame)
            with server.makefile("rb") as answers:
                answer = answers.read(int.from_bytes(answers.read(4)))
        is_end = int.from_bytes(frame[4:6]) == END and int.from_bytes(frame[6:8]) < FLEXIBLE
        code = int.from_bytes(answer[8:10]) if is_end else -1
        self.answers[ERRORS.get(code, f"error {code}") if is_end else "answered"] += 1


class Broker:
    """One broker and controller as a child process, behind a proxy."""

    def __init__(self, java: str, kafka: Path, folder: Path, verify: bool) -> None:
        jars = sorted(kafka.glob("libs/*.jar")) or sorted(kafka.glob("*.jar"))
        if not jars:
            raise SystemExit(f"{kafka} has no jars, neither itself nor in libs/.")
        port, behind, controller = free_ports(3)
        self.proxy = Proxy(behind)
        self.bootstrap = f"127.0.0.1:{port}"
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        file = folder / "server.properties"
        ports = {"port": port, "behind": behind, "controller": controller, "proxy": self.proxy.port}
        file.write_text(SETTINGS.format(**ports, folder=folder, verify=str(verify).lower()), encoding="utf-8")
        command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, jars))]
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")
        with (folder / "server.log").open("ab") as log:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            format_it = [
                *command,
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={name}",
                "-c",
                str(file),
            ]
            subprocess.run(format_it, check=True, **options)
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(file)], start_new_session=True, **options
            )
        for _ in range(10 * WAIT_SECONDS):
            with contextlib.suppress(KafkaException, OSError), socket.create_connection(("127.0.0.1", port)):
                if self.admin.list_topics(timeout=5).brokers:
                    return
            time.sleep(0.1)
        raise SystemExit(f"The broker does not answer; see {folder}/server.log.")

    def close(self) -> None:
        """Kills the broker."""
        self._process.kill()
        self._process.wait()

    def create(self, topic: str) -> None:
        """Creates a topic."""
        new = NewTopic(topic, PARTITIONS, 1, config={"max.message.bytes": str(LARGEST)})
        self.admin.create_topics([new])[topic].result(WAIT_SECONDS)

    def behind(self, topic: str) -> int:
        """Returns how many partitions have a last stable offset behind their end."""
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = [
            self.admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), isolation_level=level)
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        return sum(ends[0][each].result(30).offset < ends[1][each].result(30).offset for each in places)

    def read(self, topic: str) -> Iterator[tuple[str, int]]:
        """Yields key and number of each committed record, in the order of each partition."""
        settings = {"group.id": topic, "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **settings, "enable.auto.commit": False})
        unread = set(range(PARTITIONS))
        consumer.assign([TopicPartition(topic, number, 0) for number in unread])
        deadline = time.monotonic() + WAIT_SECONDS
        while unread and time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.2):
                error: Any = message.error()
                if error is None:
                    value: Any = message.value()
                    yield str(message.key()), int(value[:9])
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    unread.discard(message.partition() or 0)
        consumer.close()


def free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


class Application(Protocol):
    """Publishes numbered records; each batch is to be in the log once."""

    def __init__(self, broker: Broker, topic: str) -> None: ...

    def publish(self, numbers: Sequence[int], *, refused: bool = False) -> None:
        """Publishes a batch, or one with a record that the broker refuses, which is then left out."""
        ...

    def reopen(self) -> None:
        """Makes another producer with the same transactional id."""
        ...


def place(number: int) -> int:
    return number % KEYS % PARTITIONS


def text(number: int) -> str:
    return f"{number:09}".ljust(SIZE, "x")


class Plain:
    """A transactional producer, used as Kafka's documentation says."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._topic, self._servers = topic, f"127.0.0.1:{broker.proxy.port}"
        self._producer: Any = None
        self.reopen()

    def reopen(self) -> None:
        """Makes another producer."""
        if self._producer is not None:
            self._producer.purge()  # what cannot be sent
        self._producer = None
        limits = {"transaction.timeout.ms": 15000, "delivery.timeout.ms": 10000, "log_level": 0}
        settings = {"bootstrap.servers": self._servers, "transactional.id": self._topic, **limits}
        self._producer = Producer({**settings, "linger.ms": 5, "batch.num.messages": REQUEST})
        self._producer.init_transactions(WAIT_SECONDS)

    def publish(self, numbers: Sequence[int], *, refused: bool = False) -> None:
        """Publishes a batch."""
        while True:
            self._producer.begin_transaction()
            try:
                for half in (False, True):  # so that there are two AddPartitionsToTxn
                    for number in numbers:
                        if (place(number) >= PARTITIONS - 2) == half:
                            self._produce(number)
                    self._producer.flush(WAIT_SECONDS)
                if refused:
                    self._producer.abort_transaction(WAIT_SECONDS)
                else:
                    self._producer.commit_transaction(WAIT_SECONDS)
            except KafkaException as caught:
                self._recover(caught.args[0])
            else:
                if not refused:
                    return
            refused = False

    def _produce(self, number: int) -> None:
        self._producer.produce(self._topic, text(number), str(number % KEYS), partition=place(number))

    def _recover(self, error: KafkaError) -> None:
        """Aborts, or makes another producer, which does."""
        if error.txn_requires_abort():
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(WAIT_SECONDS)
                return
        self.reopen()


class Product:
    """A sender of this repository, used as a lane does."""

    def __init__(self, broker: Broker, topic: str) -> None:
        from outbox_kafka import KafkaOptions, KafkaPublisher  # noqa: PLC0415 - only with --product

        kafka = {"bootstrap.servers": f"127.0.0.1:{broker.proxy.port}", "delivery.timeout.ms": 10000}
        kafka["batch.num.messages"] = str(REQUEST)
        kafka["queue.buffering.max.messages"] = str(10 * REQUEST)  # so that partitions are added at intervals
        self._publisher, self._topic = KafkaPublisher(KafkaOptions(kafka)), topic
        self._tags, self._attempts = itertools.count(1), dict[str, set[int]]()
        self._sender: Any = None
        self.reopened = -1
        self.reopen()

    def reopen(self) -> None:
        """Makes another producer."""
        from outbox_api import DriverError  # noqa: PLC0415

        for _ in range(10):
            if self._sender is not None:
                self._sender.close()
            with contextlib.suppress(DriverError):
                self._sender = self._publisher.open_transactional(self._topic)
                self.reopened += 1
                return
        raise SystemExit("no sender can be opened")

    def publish(self, numbers: Sequence[int], *, refused: bool = False) -> None:
        """Publishes a batch."""
        from outbox_api import DriverError, MarkedRecord  # noqa: PLC0415

        rows = {
            each: MarkedRecord(each, self._topic, str(each % KEYS), text(each), partition=place(each))
            for each in numbers
        }
        if refused:  # the last one of a key of its own
            rows[-1] = MarkedRecord(-1, self._topic, "large", "x" * (LARGEST + 1000))
        while rows:
            tag = str(next(self._tags))
            self._attempts[tag] = set(rows)
            try:
                failures = self._sender.publish(list(rows.values()), tag)
            except DriverError:
                self.reopen()
                self._look(rows)
                continue
            for failure in failures:
                if not failure.retryable:
                    rows.pop(failure.record.id)
            if not failures:
                return

    def _look(self, rows: dict[int, Any]) -> None:
        """Takes away what is in the log."""
        from outbox_api import DriverError  # noqa: PLC0415

        while True:
            try:
                attempt = self._sender.attempt()
                asked = self._attempts.get(attempt.checkpoint, set()) if attempt else set()
                rest = [row for number, row in rows.items() if number in asked]
                found = self._sender.find(rest, attempt.trace) if attempt and rest else None
            except DriverError:
                self.reopen()
                continue
            for number in [*found.published, *(found.undecided if found.committed else ())] if found else ():
                rows.pop(number)
            return


@dataclass
class Cell:
    """What became of the records of one kind of late request, at one moment."""

    kind: str
    moment: str
    tries: int = 0
    hits: int = 0
    sent: int = 0
    lost: int = 0
    twice: int = 0
    late: int = 0
    hung: int = 0
    slowest: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """Returns a row of the table."""
        said = ", ".join(f"{name} {count}" for name, count in self.answers.items())
        counts = (self.hits, self.tries, self.sent, self.lost, self.twice, self.late, self.hung)
        row = (self.kind, self.moment, *map(str, counts), f"{self.slowest:.1f} s", said)
        return f"| {' | '.join(row)} |"


HEAD = "| kept | arrives | hits | tries | sent | lost | twice | out of order | hanging | longest | answers |"


def run_cell(broker: Broker, kind: str, moment: str, options: argparse.Namespace) -> Cell:
    cell, topic = Cell(kind, moment), f"{options.name}-{kind}-{moment}"
    broker.create(topic)
    application: Application = (Product if options.product else Plain)(broker, topic)
    numbers, proxy, answers = itertools.count(), broker.proxy, Counter(broker.proxy.answers)
    before, most = proxy.hits, 2 * options.hits

    def batch(size: int) -> list[int]:
        """Returns the next numbers; where it matters so that partitions are added one after another."""
        found = list(itertools.islice(numbers, size))
        return sorted(found, key=place) if "between" in moment else found

    application.publish(batch(KEYS))
    while proxy.hits < before + options.hits and cell.tries < most:
        cell.tries += 1
        began = time.monotonic()
        proxy.keep(kind, moment)
        if kind in AT_START:
            application.reopen()
        application.publish(batch(KEYS), refused=kind == "abort")
        proxy.arm()
        for _ in range(2):
            application.publish(batch(options.records))
        cell.slowest = max(cell.slowest, time.monotonic() - began)
        time.sleep(0.2)  # for what comes after the end
        proxy.forget()
        deadline = time.monotonic() + HANG_SECONDS
        while (behind := broker.behind(topic)) and time.monotonic() < deadline:
            time.sleep(0.1)
        cell.hung += behind > 0
    application.publish(batch(KEYS))  # ends what hangs
    cell.hits, cell.answers = proxy.hits - before, Counter(proxy.answers) - answers
    judge(cell, list(broker.read(topic)), next(numbers))
    return cell


def judge(cell: Cell, read: Sequence[tuple[str, int]], sent: int) -> None:
    """Counts in what is read what is lost, twice and out of order of the first numbers."""
    seen, last = Counter(number for _, number in read), dict[str, int]()
    first = set[int]()
    for key, number in read:
        if number not in first:
            cell.late += number < last.get(key, -1)
            first.add(number)
            last[key] = max(number, last.get(key, -1))
    cell.sent, cell.lost = sent, sent - len(seen)
    cell.twice = seen.total() - len(seen)


def parse_arguments() -> argparse.Namespace:
    epilog = "Example, after unpacking kafka_2.13-4.1.0.tgz: late_requests.py --kafka kafka_2.13-4.1.0\n"
    epilog += "Exit code: 1 if records were lost, twice or out of order."
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=epilog, formatter_class=raw)
    add = parser.add_argument
    add("--kafka", type=Path, required=True, metavar="DIR", help="Kafka; its jars are in DIR/libs or in DIR")
    add("--java", default="java", metavar="PATH", help="the Java program (default java)")
    add("--hits", type=int, default=3, metavar="N", help="late requests of each cell (default 3)")
    add("--records", type=int, default=6000, metavar="N", help="of a transaction (default 6000)")
    add("--kinds", default="commit,abort", help=f"what is kept, of {','.join(KINDS)} (default commit,abort)")
    add("--moments", default=",".join(MOMENTS), help="when it arrives (default all)")
    add("--no-verification", action="store_true", help="transaction.partition.verification.enable=false")
    add("--product", action="store_true", help="the sender of this repository, not a plain producer")
    add("--name", default="late", help="of topics and transactional ids (default late)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    bad = 0
    with tempfile.TemporaryDirectory(prefix="late-requests-", ignore_cleanup_errors=True) as folder:
        broker = Broker(options.java, options.kafka, Path(folder), not options.no_verification)
        with contextlib.closing(broker):
            print(f"{HEAD}\n|---|---|{'--:|' * 8}---|", flush=True)
            for kind, moment in itertools.product(options.kinds.split(","), options.moments.split(",")):
                cell = run_cell(broker, kind, moment, options)
                print(cell.line(), flush=True)
                bad += cell.lost + cell.twice + cell.late
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
