"""What tasks of the sink ``outbox-kafka`` do after crashes, on a real broker and without Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from outbox_api import DriverError, MarkedRecord
from outbox_kafka.transactional_producer import TransactionalProducer
from pyspark_outbox_kafka import task as task_module
from pyspark_outbox_kafka.ledger import Outcome

from .sink_tasks import Query, numbers


@pytest.fixture
def query(kafka_bootstrap: str, topic: str) -> Query:
    return Query(kafka_bootstrap, topic, str(uuid.uuid4()))


@pytest.fixture
def found(kafka_bootstrap: str, topic: str) -> Callable[[], list[int]]:
    return lambda: numbers(kafka_bootstrap, topic)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has tasks wait for siblings no longer than it takes to look once."""
    monkeypatch.setattr(task_module, "_WAIT_SECONDS", 0.5)


def test_a_batch_is_published_once_whoever_repeats_it(query: Query, found: Callable[[], list[int]]) -> None:
    first = query.batch(0, [0, 1, 2], [3], [])
    assert [each.outcome for each in first] == [Outcome.PUBLISHED, Outcome.PUBLISHED, Outcome.KNOWN]
    query.batch(1, [4, 5], [6, 7])
    again = query.again("run-2")
    assert [each.outcome for each in again.batch(1, [4, 5], [6, 7])] == [Outcome.WITHHELD] * 2
    again.batch(2, [8])
    assert found() == list(range(9))


def test_a_whole_batch_may_be_divided_in_another_way(query: Query, found: Callable[[], list[int]]) -> None:
    query.batch(0, [0, 1], [2, 3])
    query.again("run-2").batch(0, [3], [1, 0], [2])
    assert found() == [0, 1, 2, 3]


def test_a_whole_batch_of_other_rows_is_refused(query: Query, found: Callable[[], list[int]]) -> None:
    query.batch(0, [0, 1], [2, 3])
    with pytest.raises(DriverError, match=r"not those that were published.*4 rows.*spark.sql.shuffle"):
        query.again("run-2").batch(0, [0, 1], [2, 4])
    assert found() == [0, 1, 2, 3]


def test_what_is_left_of_a_batch_waits_until_the_rest_is_compared(
    query: Query, found: Callable[[], list[int]]
) -> None:
    query.task(0, 0, [0, 1])
    query.task(0, 2, [4])
    again = query.again("run-2")
    with ThreadPoolExecutor(3) as pool:
        tasks = [
            pool.submit(again.task, 0, number, rows) for number, rows in enumerate([[0, 1], [2, 3], [4]])
        ]
        reports = [each.result() for each in tasks]
    assert [each.outcome for each in reports] == [Outcome.KNOWN, Outcome.PUBLISHED, Outcome.KNOWN]
    again.driver(reports)
    again.batch(1, [5])
    assert sorted(found()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("impatient")
def test_the_driver_compares_where_too_few_tasks_run_at_a_time(
    query: Query, found: Callable[[], list[int]]
) -> None:
    query.task(0, 1, [2, 3])
    again = query.again("run-2")
    with pytest.raises(DriverError, match="start the query again"):
        again.batch(0, [0, 1], [2, 3])
    assert found() == [2, 3]
    query.again("run-3").batch(0, [0, 1], [2, 3])
    assert sorted(found()) == [0, 1, 2, 3]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "tasks", [([0, 1, 2, 3],), ([0], [1], [2], [3]), ([1, 0, 2], [3]), ([], [0, 1, 2, 3])]
)
def test_nothing_more_is_published_of_a_batch_that_is_divided_in_another_way(
    query: Query, found: Callable[[], list[int]], tasks: tuple[list[int], ...]
) -> None:
    query.task(0, 0, [0, 1])
    with pytest.raises(DriverError, match="not those that were published"):
        query.again("run-2").batch(0, *tasks)
    assert found() == [0, 1]
    query.again("run-3").batch(0, [0, 1], [2, 3])
    assert sorted(found()) == [0, 1, 2, 3]


@pytest.mark.usefixtures("impatient")
def test_a_batch_whose_tasks_had_all_committed_may_be_divided_in_another_way(
    query: Query, found: Callable[[], list[int]]
) -> None:
    query.task(0, 0, [0, 1])
    query.task(0, 1, [2, 3])
    query.again("run-2").batch(0, [2], [0, 3], [1])
    query.again("run-2").batch(1, [4])
    assert sorted(found()) == [0, 1, 2, 3, 4]


def test_a_second_attempt_finds_what_the_first_has_committed(
    query: Query, found: Callable[[], list[int]]
) -> None:
    first = query.task(0, 0, [0, 1])
    assert query.task(0, 0, [0, 1]) == first._replace(outcome=Outcome.KNOWN)
    with pytest.raises(DriverError, match=r"second attempt has others.*rand"):
        query.task(0, 0, [0, 2])
    assert found() == [0, 1]


def test_a_new_run_ends_tasks_of_the_former_one_that_it_has_not(
    query: Query, found: Callable[[], list[int]]
) -> None:
    def frozen() -> Iterator[list[MarkedRecord]]:
        yield from query.rows([2])
        query.again("run-2").batch(0, [0, 1, 2, 3])
        yield from query.rows([3])

    with pytest.raises(DriverError, match=r"another producer has opened|FENCED"):
        query.task(0, 1, frozen())
    with pytest.raises(DriverError, match=r"another run .* has begun \(run-2\)"):
        query.task(0, 0, [0, 1])
    query.again("run-2").batch(1, [4])
    assert found() == [0, 1, 2, 3, 4]


def test_two_copies_of_a_query_do_not_publish_a_batch_twice(
    query: Query, found: Callable[[], list[int]]
) -> None:
    query.batch(0, [0], [1])
    copy = query.again("run-2")
    copy.batch(1, [2], [3])
    with pytest.raises(DriverError, match="another run"):
        query.batch(1, [2], [3])
    copy.batch(2, [4])
    assert found() == [0, 1, 2, 3, 4]


def test_the_driver_of_a_former_run_notes_nothing(query: Query, found: Callable[[], list[int]]) -> None:
    reports = [query.task(0, 0, [0])]
    query.again("run-2").batch(0, [0])
    with pytest.raises(DriverError, match="another run"):
        query.driver(reports)
    assert found() == [0]


def test_an_older_copy_of_a_checkpoint_is_refused(query: Query, found: Callable[[], list[int]]) -> None:
    query.batch(0, [0])
    query.batch(1, [1])
    with pytest.raises(DriverError, match="older copy"):
        query.again("run-2").batch(0, [0])
    assert found() == [0, 1]


def test_another_query_takes_a_name_only_if_told(query: Query, found: Callable[[], list[int]]) -> None:
    name = f"name-{uuid.uuid4().hex}"
    first = Query(query.bootstrap, query.topic, "query-1", name=name)
    first.batch(0, [0])
    first.batch(1, [1])
    second = Query(query.bootstrap, query.topic, "query-2", "run-2", name=name)
    with pytest.raises(DriverError, match="set replacesQuery to query-1"):
        second.batch(0, [2])
    told = Query(query.bootstrap, query.topic, "query-2", "run-3", name=name, replaces="query-1")
    told.batch(0, [2])
    told.batch(1, [3])
    assert found() == [0, 1, 2, 3]


def test_a_message_that_is_too_large_is_named_and_nothing_is_committed(
    query: Query, found: Callable[[], list[int]]
) -> None:
    large = [MarkedRecord(9, query.topic, b"large", b"x" * 2_000_000)]  # type: ignore[arg-type]

    def rows() -> Iterator[list[MarkedRecord]]:
        yield from query.rows([0, 1])
        yield large

    with pytest.raises(DriverError, match=rf"topic '{query.topic}' with key 'large' and 2000005 bytes"):
        query.task(0, 0, rows())
    query.batch(0, [0, 1])
    assert found() == [0, 1]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_of_unknown_outcome_is_looked_up(
    query: Query, found: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    commit, commits = TransactionalProducer.commit, list[int]()

    def unknown(self: TransactionalProducer, deadline: float) -> None:
        commits.append(1)
        last = len(commits) == 2  # behind that of a task that opens
        if arrives or not last:
            commit(self, deadline)
        if last:
            raise DriverError("whether the transaction was committed is unknown", retryable=True)

    query.batch(0, [0])
    monkeypatch.setattr(TransactionalProducer, "commit", unknown)
    if arrives:
        assert query.task(1, 0, [1, 2]).outcome is Outcome.PUBLISHED
    else:
        with pytest.raises(DriverError, match="was not committed"):
            query.task(1, 0, [1, 2])
    query.batch(1, [1, 2])
    assert found() == [0, 1, 2]


def test_a_batch_without_rows_is_noted_nowhere(query: Query, found: Callable[[], list[int]]) -> None:
    query.batch(0, [], [])
    query.batch(0, [0], [])
    with pytest.raises(DriverError, match="not those that were published"):
        query.again("run-2").batch(0, [], [])
    query.again("run-3").batch(1, [], [1])
    assert found() == [0, 1]


def test_a_task_that_takes_longer_than_a_transaction_fails_and_says_so(
    query: Query, found: Callable[[], list[int]]
) -> None:
    def rows() -> Iterator[list[MarkedRecord]]:
        for number in range(100):
            yield from query.rows([number])
            time.sleep(0.1)

    with pytest.raises(DriverError, match=r"longer than a transaction may.*kafka.transaction.timeout.ms"):
        replace(query, timeout_ms=2000).task(0, 0, rows())
    query.batch(0, [0, 1])
    assert found() == [0, 1]


def test_an_error_of_the_query_ends_the_transaction(query: Query, found: Callable[[], list[int]]) -> None:
    def rows() -> Iterator[list[MarkedRecord]]:
        yield from query.rows([0, 1])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        query.task(0, 0, rows())
    assert found() == []
    query.batch(0, [0, 1])
    assert found() == [0, 1]


def test_names_that_begin_alike_are_those_of_different_sinks(
    query: Query, found: Callable[[], list[int]]
) -> None:
    short = Query(query.bootstrap, query.topic, "query-1", name=f"name-{uuid.uuid4().hex}")
    long = Query(query.bootstrap, query.topic, "query-2", name=f"{short.name}.1")
    for batch in range(2):
        reports = [short.task(batch, task, [batch * 10 + task]) for task in range(2)]
        long.batch(batch, [batch * 10 + 5])
        short.driver(reports)
    assert sorted(found()) == [0, 1, 5, 10, 11, 15]
