"""What runs inside Spark's Python worker: one lane group, as a function over Arrow batches."""

from __future__ import annotations

import logging
import os
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import Self

import pyarrow as pa

from outbox_core.config.settings import Choice
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.threads import LaneThreads, dedicate_process
from outbox_core.leadership.protocol import LogLine, Orders, Report
from outbox_core.leadership.tcp import Address, ControlClient
from outbox_core.log_context import HarvesterFilter, fields_of
from outbox_core.tracing import provider

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

RECEIPT = "lane int, token bigint, records bigint, at timestamp"
"""What a busy group yields: how many records a lane delivered and purged since the receipt before."""
RECEIPT_SECONDS = 1.0
"""The least interval between two receipts of a group; it notices there that its job is cancelled."""
FLUSH_SECONDS = 0.5
"""How long the end of a group waits for the export of its last spans."""
MAX_MESSAGES = 100
"""Log messages kept between two reports; of a flood the latest are told."""


def harvest_task(plan: Plan, group: int, lanes: Sequence[int], leader: tuple[Address, str]) -> Task:
    """Makes the function that runs a lane group in a worker until the leader says to end.

    ``leader`` is the address of the leader's process, and the outbox's name there.
    """
    address, outbox = leader

    def run(batches: Batches) -> Batches:
        for _ in batches:
            pass  # the one row says that the task is on; lanes find their records in the outbox
        dedicate_process()
        unwritten: Counter[int] = Counter()
        due = monotonic()
        with ControlClient(address) as channel, Messages() as messages:
            for purged in LaneThreads(plan, group, lanes, ForwardingChannel(channel, messages, outbox)).run():
                unwritten.update(purged)
                if monotonic() >= due:
                    yield receipts(plan.token, unwritten)
                    unwritten.clear()
                    due = monotonic() + RECEIPT_SECONDS
        provider.flush(FLUSH_SECONDS)  # Spark ends its workers without a word
        if unwritten:
            yield receipts(plan.token, unwritten)

    return run


def warming_task(choices: Sequence[Choice[object]], address: Address) -> Task:
    """Makes a function that has a worker import all that a lane group needs, so that a takeover need not.

    It connects to the leader, too: a worker that cannot reach the leader is of no use.
    """

    def run(batches: Batches) -> Batches:
        for _ in batches:
            with ControlClient(address) as channel:
                channel.connect()
            for choice in choices:
                choice.create()
        return iter(())

    return run


class Messages(logging.Handler):
    """Collects what lanes log in a worker, where nobody reads it, to be told with the next report."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.addFilter(HarvesterFilter(""))
        self._kept: deque[LogLine] = deque(maxlen=MAX_MESSAGES)
        self._traceback_of = logging.Formatter().formatException

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a message."""
        traceback = self._traceback_of(record.exc_info) if record.exc_info else ""
        text, template = record.getMessage(), str(record.msg)
        self._kept.append(LogLine(record.levelno, record.name, text, template, traceback, fields_of(record)))

    def take(self) -> tuple[LogLine, ...]:
        """Returns the messages since the last call."""
        return tuple(self._kept.popleft() for _ in range(len(self._kept)))

    def __enter__(self) -> Self:
        """Starts collecting."""
        root = logging.getLogger()
        root.addHandler(self)
        root.setLevel(self.level)
        return self

    def __exit__(self, *_: object) -> None:
        """Stops collecting."""
        logging.getLogger().removeHandler(self)


class ForwardingChannel:
    """A link that adds to every report what was logged, and ends lanes whose Spark is gone."""

    def __init__(self, channel: ControlClient, messages: Messages, outbox: str) -> None:
        self._channel = channel
        self._outbox = outbox
        self._messages = messages
        self._parent = os.getppid()

    def exchange(self, report: Report) -> Orders:
        """Delivers a report with the messages since the last one; see :class:`Link`."""
        if os.getppid() != self._parent:
            return Orders(0.0, stopped=True)
        return self._channel.exchange(replace(report, outbox=self._outbox, messages=self._messages.take()))


def receipts(token: int, purged: Mapping[int, int]) -> pa.RecordBatch:
    """Returns a row of :data:`RECEIPT` for each lane in ``purged``: lane number → records."""
    count = len(purged)
    columns = {
        "lane": _column(pa.int32(), "i", purged.keys()),
        "token": _column(pa.int64(), "q", [token] * count),
        "records": _column(pa.int64(), "q", purged.values()),
        "at": _column(pa.timestamp("us", tz="UTC"), "q", [int(time() * 1e6)] * count),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _column(kind: pa.DataType, code: str, values: Iterable[int]) -> pa.Array:
    # Made of a buffer, since PyArrow imports pandas to convert Python objects: seconds of a worker's time.
    numbers = array(code, values)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
