"""What runs inside Spark's Python worker: one lane group, as a function over Arrow batches."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Self

import pyarrow as pa

from outbox_core.config.settings import Choice
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.threads import LaneThreads, dedicate_process
from outbox_core.leadership.protocol import Orders, Report
from outbox_core.leadership.tcp import Address, ControlClient

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

RECEIPT = "outbox string, lane int, token bigint, records bigint, at timestamp"
"""What a group yields on a beat: how many records a lane delivered and purged since the beat before."""
MAX_MESSAGES = 100
"""Log messages kept between two beats; of a flood the latest are told."""


def harvest_task(plan: Plan, group: int, lanes: Sequence[int], address: Address) -> Task:
    """Makes the function that runs a lane group in a worker until the leader says to end."""

    def run(batches: Batches) -> Batches:
        for _ in batches:
            pass  # the one row says that the task is on; lanes find their records in the outbox
        dedicate_process()
        with ControlClient(address) as channel, Messages() as messages:
            for purged in LaneThreads(plan, group, lanes, ForwardingChannel(channel, messages)).run():
                yield _receipts(plan, purged)

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
        self._kept: deque[tuple[int, str]] = deque(maxlen=MAX_MESSAGES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a message."""
        self._kept.append((record.levelno, f"{record.name}: {self.format(record)}"))

    def take(self) -> tuple[tuple[int, str], ...]:
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

    def __init__(self, channel: ControlClient, messages: Messages) -> None:
        self._channel = channel
        self._messages = messages
        self._parent = os.getppid()

    def exchange(self, report: Report) -> Orders:
        """Delivers a report with the messages since the last one; see :class:`Link`."""
        if os.getppid() != self._parent:
            return Orders(0.0, stopped=True)
        return self._channel.exchange(replace(report, messages=self._messages.take()))


def _receipts(plan: Plan, purged: Mapping[int, int]) -> pa.RecordBatch:
    at = datetime.now(UTC)
    rows = [
        {"outbox": plan.outbox, "lane": lane, "token": plan.token, "records": records, "at": at}
        for lane, records in purged.items()
    ]
    schema = pa.schema(
        [
            ("outbox", pa.string()),
            ("lane", pa.int32()),
            ("token", pa.int64()),
            ("records", pa.int64()),
            ("at", pa.timestamp("us", tz="UTC")),
        ]
    )
    return pa.RecordBatch.from_pylist(rows, schema=schema)
