"""Requests of the sink's tasks that the network delays for longer than the tasks live."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest
from outbox_api import DriverError, MarkedRecord
from outbox_kafka.topics import create_missing
from outbox_servers.late_proxy import LateProxy, Match, kafka_length, kafka_requests
from outbox_servers.services.kafka import KafkaBroker
from pyspark_outbox_kafka.ledger import Report
from pyspark_outbox_kafka.options import CHECKPOINT_TOPIC

from .sink_late import END, PRODUCE, WHAT, behind, refusing, sent
from .sink_tasks import Query, numbers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROWS = [5, 10, 15]
"""Of one key."""


class Site:
    """A broker, and a proxy before it."""

    def __init__(self, stack: ExitStack, *, verifies: bool) -> None:
        self.proxy = stack.enter_context(LateProxy(lambda: self.broker.proxied_port, kafka_length))
        verification = {"transaction.partition.verification.enable": str(verifies).lower()}
        self.broker = KafkaBroker(proxy_port=self.proxy.port, properties=verification)
        stack.enter_context(self.broker)

    def query(self, topic: str) -> Query:
        create_missing({"bootstrap.servers": self.broker.bootstrap}, [topic], 1)
        return Query(self.broker.bootstrap, topic, str(uuid.uuid4()))

    def distant(self, query: Query) -> Query:
        """Returns the same query behind the proxy."""
        return Query(f"127.0.0.1:{self.proxy.port}", query.topic, query.query, query.run)

    def lose(self, wanted: Match, query: Query) -> None:
        """Runs a task in a process that is killed when it sends a request, which the broker does not get."""
        self.proxy.keep(refusing(self.proxy, wanted))
        with self.distant(query).process(1, 0, ROWS) as task:
            assert self.proxy.kept.wait(60)
            task.kill()
        self.proxy.refuses = False


@pytest.fixture(scope="module", params=[True, False], ids=["verified", "not verified"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A broker, also one that takes, as before KIP-890, records of transactions that it does not know."""
    with ExitStack() as stack:
        yield Site(stack, verifies=request.param)


ATTEMPTS = 4
"""How often Spark tries a task."""


def attempted(query: Query, batch: int, late: Callable[[], object], numbers: Sequence[int]) -> Report:
    """Runs task 0 as Spark does; a request arrives late amid the rows of its first attempt."""
    arrivals = [late]

    def rows() -> Iterator[list[MarkedRecord]]:
        yield from query.rows(numbers[:1])
        if arrivals:
            arrivals.pop()()
        yield from query.rows(numbers[1:])

    for _ in range(ATTEMPTS - 1):
        with suppress(DriverError):
            return query.task(batch, 0, rows())
    return query.task(batch, 0, rows())


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("amid", [True, False], ids=["amid the rows", "behind the batch"])
@pytest.mark.parametrize("again", [False, True], ids=["next attempt", "next run"])
def test_a_late_request_of_a_dead_task_changes_nothing(
    site: Site, topic: str, what: str, amid: bool, again: bool
) -> None:
    query = site.query(topic)
    query.batch(0, [0, 1], [2])
    site.lose(sent(what, topic), query)
    if again:
        query = query.again("run-2")
    first = attempted(query, 1, site.proxy.deliver if amid else bool, ROWS)
    query.driver([first, query.task(1, 1, [6])])
    if not amid:
        site.proxy.deliver()
    query.batch(2, [20], [7])
    assert numbers(query.bootstrap, topic) == [0, 1, 2, *ROWS, 6, 20, 7]


@pytest.mark.parametrize("what", WHAT)
def test_a_late_copy_of_a_request_changes_nothing(site: Site, topic: str, what: str) -> None:
    """The client has repeated the request, and the task has come to its end."""
    query = site.query(topic)
    query.batch(0, [0, 1], [2])
    site.proxy.keep(sent(what, topic))
    query.driver([attempted(site.distant(query), 1, bool, ROWS), query.task(1, 1, [6])])
    assert site.proxy.kept.is_set()
    query.driver([attempted(query, 2, site.proxy.deliver, [20, 25]), query.task(2, 1, [7])])
    assert numbers(query.bootstrap, topic) == [0, 1, 2, *ROWS, 6, 20, 25, 7]


@pytest.mark.parametrize("what", ["that it opens", "to abort", "to commit"])
def test_a_late_copy_of_a_task_s_own_request_changes_nothing(site: Site, topic: str, what: str) -> None:
    """The client has repeated it, and it arrives in a later transaction of the same task."""
    query = site.query(topic)
    query.batch(0, [0, 1], [2])
    opening = kafka_requests(PRODUCE, CHECKPOINT_TOPIC)
    end = kafka_requests(END)
    matches = {"that it opens": opening, "to abort": end, "to commit": behind(end, end)}
    site.proxy.keep(matches[what])
    query.driver([attempted(site.distant(query), 1, site.proxy.deliver, ROWS), query.task(1, 1, [6])])
    query.batch(2, [20], [7])
    assert numbers(query.bootstrap, topic) == [0, 1, 2, *ROWS, 6, 20, 7]
