"""Shows that Apache Kafka can tear a transaction: some partitions commit it, and the others abort it.

Needs Python, confluent-kafka, Java and a Kafka distribution. It starts three brokers; in every round:

1. A transactional producer sends one record to each of 12 partitions of a new topic, and flushes.
2. The two brokers that do not coordinate the transaction stand still (SIGSTOP), so that nothing that the
   coordinator appends from here on reaches another replica.
3. The producer commits and gets no answer: only the coordinator's own log has the PrepareCommit. The
   coordinator is killed (SIGKILL), the producer gives up, and the two other brokers run on (SIGCONT).
4. The coordinator is started again at once. Until its broker session has timed out it still leads its
   partition, reads the PrepareCommit, and sends COMMIT markers to the leaders of other partitions.
5. A new producer with the same transactional id registers (init_transactions), like an application that
   starts again because it does not know the outcome of its commit.
6. All partitions are read, with isolation.level=read_committed and with read_uncommitted.

Nobody has been told the outcome before step 5, so it may be a commit or an abort, but the same of all
partitions. A transaction is torn if it is a commit in some and an abort in others.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

BROKERS = (1, 2, 3)
PARTITIONS = 12
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
STATE = "__transaction_state"
ANSWERED_SECONDS = 0.8  # until fetches of the followers have been answered; replica.fetch.wait.max.ms is 500
COMMIT_SECONDS = 0.6  # that the application waits for the answer to its commit
WAIT_SECONDS = 90  # at most, for brokers that start, and for other answers

SETTINGS = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={home}/data
default.replication.factor=3
min.insync.replicas=2
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=3
broker.session.timeout.ms={session}
"""


class Cluster:
    """Three nodes of Kafka, each of which is a broker and a controller, as child processes."""

    def __init__(self, java: str, kafka: Path, folder: Path, session: int) -> None:
        self.folder = folder
        jars = sorted(kafka.glob("libs/*.jar")) or sorted(kafka.glob("*.jar"))
        if not jars:
            raise SystemExit(f"{kafka} has no jars, neither itself nor in libs/.")
        self._java = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, jars))]
        self._logging = [  # for the loggers of 4.x and 3.9, and for slf4j-simple
            "-Dlog4j2.level=INFO",
            f"-Dlog4j.configuration=file:{kafka.resolve()}/config/log4j.properties",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss,SSS",
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = free_ports(2 * len(BROKERS))
        brokers, controllers = (dict(zip(BROKERS, each, strict=True)) for each in (ports[:3], ports[3:]))
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in controllers.items())
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in brokers.values())
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for number, home in self.homes().items():
            home.mkdir()
            own = {"number": number, "port": brokers[number], "controller": controllers[number]}
            text = SETTINGS.format(**own, home=home, voters=voters, session=session)
            (home / "server.properties").write_text(text, encoding="utf-8")
            self.tool("StorageTool", "format", f"--cluster-id={cluster}", "-c", f"{home}/server.properties")

    def homes(self) -> dict[int, Path]:
        """Returns each node's folder of settings, data and log."""
        return {number: self.folder / f"broker-{number}" for number in BROKERS}

    def tool(self, name: str, *arguments: str) -> str:
        """Runs a command-line tool of Kafka; returns its output."""
        for package in ("kafka.tools", "org.apache.kafka.tools"):  # newer versions have moved some of them
            command = [*self._java, f"{package}.{name}", *arguments]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if "ClassNotFoundException" not in done.stderr:
                break
        if done.returncode != 0:
            raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def start(self, number: int) -> None:
        """Starts a node; returns before it serves."""
        home = self.homes()[number]
        options = [*self._logging, f"-Dkafka.logs.dir={home}", "kafka.Kafka", f"{home}/server.properties"]
        with (home / "server.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [*self._java, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C ends this program, which then ends its nodes
            )

    def send(self, numbers: Sequence[int], sent: signal.Signals) -> None:
        """Sends a signal to nodes; waits for their end if it kills them."""
        for number in numbers:
            self._processes[number].send_signal(sent)
            if sent is signal.SIGKILL:
                self._processes[number].wait()

    def close(self) -> None:
        """Ends all nodes, also those that stand still."""
        self.send(list(self._processes), signal.SIGKILL)

    def wait_until_in_sync(self, topic: str = STATE) -> None:
        """Waits until all brokers serve and all replicas are in sync; creates a topic if it is missing."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                metadata = self.admin.list_topics(timeout=5)
                parts = [part for each in metadata.topics.values() for part in each.partitions.values()]
                in_sync = all(len(part.isrs) == len(BROKERS) and part.leader > 0 for part in parts)
                if in_sync and len(metadata.brokers) == len(BROKERS):
                    if topic in (STATE, *metadata.topics):
                        return
                    self.admin.create_topics([NewTopic(topic, PARTITIONS, len(BROKERS))])[topic].result()
            time.sleep(0.2)
        raise SystemExit(f"Not in sync after {WAIT_SECONDS} seconds; see {self.folder}/broker-*/server.log.")

    def logs(self, partition: str) -> dict[int, Path]:
        """Returns the file of a partition on each node."""
        name = f"data/{partition}/00000000000000000000.log"
        return {number: home / name for number, home in self.homes().items()}


class Outcome(NamedTuple):
    """What became of a round's transaction: its topic, its coordinator, and the partitions of each result."""

    topic: str
    coordinator: int
    committed: Sequence[int]
    aborted: Sequence[int]


def listed(partitions: Sequence[int]) -> str:
    return " ".join(map(str, partitions))


def free_ports(count: int) -> Sequence[int]:
    """Returns ports below the ephemeral ones, so that no client gets one while its node is down."""
    found: list[int] = []
    for port in random.sample(range(20000, 32768), 10 * count):
        with socket.socket() as probe:
            found += [port] if probe.connect_ex(("127.0.0.1", port)) != 0 else []
    return found[:count]


def register(cluster: Cluster, transactional_id: str) -> Producer:
    """Returns a new producer of a transactional id, which has ended what the last one left open."""
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    producer = Producer({**settings, "transactional.id": transactional_id})
    producer.init_transactions(WAIT_SECONDS)
    return producer


def run_round(cluster: Cluster, topic: str) -> Outcome:
    cluster.wait_until_in_sync(topic)
    producer = register(cluster, topic)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, b"a record", partition=partition)
    producer.flush()
    coordinator = cluster.admin.list_topics(STATE, timeout=5).topics[STATE].partitions[0].leader
    others = [broker for broker in BROKERS if broker != coordinator]
    cluster.send(others, signal.SIGSTOP)
    time.sleep(ANSWERED_SECONDS)
    with contextlib.suppress(KafkaException):  # the commit gets no answer
        producer.commit_transaction(COMMIT_SECONDS)
        print(f"{topic}: the commit was answered, so this round shows nothing")
    cluster.send([coordinator], signal.SIGKILL)
    del producer  # ends its client, which would go on trying to commit
    for broker, log in cluster.logs(f"{STATE}-0").items():
        copy = cluster.folder / topic / f"broker-{broker}" / f"{STATE}-0" / log.name
        copy.parent.mkdir(parents=True)
        shutil.copy(log, copy)
    cluster.send(others, signal.SIGCONT)
    cluster.start(coordinator)
    register(cluster, topic)
    committed = read(cluster, topic, "read_committed")
    aborted = [each for each in read(cluster, topic, "read_uncommitted") if each not in committed]
    return Outcome(topic, coordinator, committed, aborted)


def read(cluster: Cluster, topic: str, isolation: str) -> Sequence[int]:
    """Reads all partitions to their ends; returns those in which a consumer finds the record."""
    settings = {"group.id": topic, "isolation.level": isolation, "enable.auto.commit": False}
    settings |= {"bootstrap.servers": cluster.bootstrap, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, unread = set[int](), set(range(PARTITIONS))
    for _ in range(10 * WAIT_SECONDS):
        message: Any = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.add(message.partition())
        elif message is not None and message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            unread.discard(message.partition())
        if not unread:
            consumer.close()
            return sorted(found)
    raise SystemExit(f"{topic}: partitions {listed(sorted(unread))} could not be read to their ends.")


def print_evidence(cluster: Cluster, torn: Outcome) -> None:
    """Prints what replicas had of a torn transaction when its coordinator was killed, and its markers."""
    print(f"{torn.topic}: states in {STATE}-0 when its leader, broker {torn.coordinator}, was killed")
    for broker in BROKERS:
        (log,) = (cluster.folder / torn.topic / f"broker-{broker}").glob("*/*.log")
        dump = cluster.tool("DumpLogSegments", "--transaction-log-decoder", "--files", str(log))
        lines = "\n".join(line for line in dump.splitlines() if re.search(rf"\b{torn.topic}\b", line))
        found = re.findall(r'(?:state=|"transactionStatus":"?)(\w+)', lines)  # some versions print numbers
        names = [STATES[int(state)] if state.isdigit() else state for state in found]
        print(f"  in broker {broker}:", ", ".join(names))
    print(f"{torn.topic}: markers in the end")
    cluster.wait_until_in_sync()
    logs = [cluster.logs(f"{torn.topic}-{each}")[torn.coordinator] for each in range(PARTITIONS)]
    dump = cluster.tool("DumpLogSegments", "--print-data-log", "--files", ",".join(map(str, logs)))
    markers = defaultdict(list)
    for partition, text in enumerate(dump.split("Dumping ")[1:]):
        markers[", ".join(re.findall(r"endTxnMarker: (.+)", text))].append(partition)
    for text, partitions in markers.items():
        print(f"  in partitions {listed(partitions)}: {text}")


def parse_arguments() -> argparse.Namespace:
    epilog = "Example, after unpacking kafka_2.13-4.1.0.tgz: torn_transactions.py --kafka kafka_2.13-4.1.0\n"
    epilog += "A round takes about 20 seconds. Exit code: 1 if a transaction was torn, 0 if none was."
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=epilog, formatter_class=raw)
    slow = (
        "broker.session.timeout.ms, 9000 as in Kafka; raise it if brokers start so slowly that all is aborted"
    )
    add = parser.add_argument
    add("--kafka", type=Path, required=True, metavar="DIR", help="Kafka; its jars are in DIR/libs or in DIR")
    add("--rounds", type=int, default=8, metavar="N", help="number of transactions (default 8)")
    add("--java", default="java", metavar="PATH", help="the Java program (default java)")
    add("--session", type=int, default=9000, metavar="MS", help=slow)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    folder = Path(tempfile.mkdtemp(prefix="torn-transactions-"))
    torn: list[Outcome] = []
    with contextlib.closing(Cluster(arguments.java, arguments.kafka, folder, arguments.session)) as cluster:
        for number in BROKERS:
            cluster.start(number)
        cluster.wait_until_in_sync()
        register(cluster, "first")  # creates the topic of transactions
        for number in range(1, arguments.rounds + 1):
            print(f"round {number}:", end=" ", flush=True)
            outcome = run_round(cluster, f"round-{number}")
            for result, partitions in (("committed", outcome.committed), ("aborted", outcome.aborted)):
                print(f"{result} in {len(partitions)} partitions ({listed(partitions)})", end="; ")
            torn += [outcome] if outcome.committed and outcome.aborted else []
            print("TORN" if outcome in torn else "whole", flush=True)
        print(f"{len(torn)} of {arguments.rounds} transactions were torn")
        if torn:
            print_evidence(cluster, torn[0])
            sys.exit(f"The brokers' logs and data stay in {folder}/broker-*.")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
