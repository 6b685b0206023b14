"""What the product's objects are made of in the model, and how they are kept: as bytes, equal if they are."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID

from outbox_api import Deliveries, MarkedRecord
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.settings import Failures, Limits
from outbox_kafka import runs
from outbox_kafka.runs import RunProducer

from .client import FakeClient

CLOCK, PATIENCE = 2.0**60, 1e6
"""The time of the producer of runs, to which a second adds nothing; and for how long it waits."""
_MUCH = 32
_LIMITS = Limits(mark_backoff=0.0, queue_timeout=float("inf"), max_in_flight_records=_MUCH, send_buffer=_MUCH)
_FAILURES = Failures(park_after=1)
_FIXED = ("_settings", "_reports", "_producer")


class Made:
    """What the product makes next: a state machine, which an ablation changes; a leader id; a client."""

    machine = MarkPurgeReset
    leader = 0
    client: Callable[[], FakeClient]


class Time:
    """The time of the producer of runs."""

    now = CLOCK


@contextmanager
def driven() -> Iterator[None]:
    """Has the producer of runs use the model's client and time."""
    clock = SimpleNamespace(monotonic=lambda: Time.now)
    with mock.patch.multiple(runs, time=clock, Producer=lambda _settings: Made.client()):
        yield


def new_machine(mark: int, run: int) -> MarkPurgeReset:
    """Returns a state machine that marks so many rows at most, and sends runs of so many records."""
    return Made.machine(_limits(mark), _FAILURES, _leader_id, _half, run_records=run)


def new_producer() -> RunProducer:
    """Returns a producer of runs, without a client."""
    producer = RunProducer.__new__(RunProducer)
    vars(producer).update(_template())
    return producer


@cache
def record_of(row: int, key: str, partition: int | None) -> MarkedRecord:
    """Returns a row's record, always the same one: a producer knows records by their identities."""
    return MarkedRecord(row, "topic", key, "", partition=partition)


def freeze(machine: MarkPurgeReset, producer: RunProducer, reports: Deliveries) -> bytes:
    """Returns all of what they are, but for what only counts."""
    machine._sources._turn = 0
    for source in machine._sources._sources:
        source.turn, source.full = 0, False
    machine._retried_most = 100
    machine._next_scan = min(machine._next_scan, 1.0)
    kept = {name: value for name, value in vars(producer).items() if name not in _FIXED}
    kept["_failed"], kept["_stopped"] = sorted(kept["_failed"]), []
    kept["_out"] = [*kept["_out"].values()]
    pickler = _Pickler(file := io.BytesIO(), pickle.HIGHEST_PROTOCOL)
    pickler.fast = True  # it does not matter which of them are the same
    pickler.dump((machine, kept, reports))
    return file.getvalue()


def thaw(memory: bytes) -> tuple[MarkPurgeReset, RunProducer, Deliveries]:
    """Returns them as they were; the producer needs a client, and to know where it reports."""
    machine, kept, reports = pickle.loads(memory)
    producer = new_producer()
    vars(producer).update(kept)
    producer._failed, producer._stopped = set(kept["_failed"]), set()
    producer._out = {id(record): (record, since) for record, since in kept["_out"]}
    return machine, producer, reports


class _Pickler(pickle.Pickler):
    """Leaves out what never changes."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, MarkedRecord):
            return record_of, (value.id, value.key, value.partition)
        if isinstance(value, Limits):
            return _limits, (value.mark_query_records,)
        if isinstance(value, Failures):
            return _failures, ()
        return NotImplemented


@cache
def _limits(mark: int) -> Limits:
    return replace(_LIMITS, mark_query_records=mark)


def _failures() -> Failures:
    return _FAILURES


def _leader_id() -> UUID:
    return UUID(int=Made.leader)


def _half() -> float:
    return 0.5


@cache
def _template() -> Mapping[str, Any]:
    settings = {"client.id": "model", "delivery.timeout.ms": str(int(PATIENCE * 1000))}
    return vars(RunProducer(settings, Deliveries, lambda _error: None))
