"""The product without some of its rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from outbox_api import Changed, Failure, MarkedRecord
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.scoreboard import Scoreboard, Taken
from outbox_kafka.runs import RunProducer

from ...simulation.record_mutants import EarlyRelease  # noqa: TID252 - pytest gives tests no absolute name
from .memory import Made, driven
from .scope import Rule


class _SentTogether(MarkPurgeReset):
    def next_to_send(self) -> Taken:
        alone, first, others = super().next_to_send()
        for record in first:
            queue = self.scoreboard._busy[record.key]
            assert queue is not None
            self.scoreboard._follow(0.0, queue, record, 0, self._room_in_flight)
        return Taken(alone, first, [*others, *self.scoreboard.take(0).others])


class _Unbounded(MarkPurgeReset):
    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.scoreboard._run_records = 10**6


class _Trusting(MarkPurgeReset):
    def purged(self, now: float, changed: Changed) -> None:
        super().purged(now, changed._replace(rows=len(self._purging)))


class _Optimist(MarkPurgeReset):
    def failed(self, failures: Iterable[Failure]) -> None:
        self.delivered(0.0, [failure.record for failure in failures])


_FOLLOW = Scoreboard._follow


def _follow_anywhere(self: Scoreboard, *given: Any) -> int:
    before = len(self._following)
    moved = _FOLLOW(self, *given)
    for place in range(before, len(self._following)):
        self._following[place] = self._following[place]._replace(partition=None)
    return moved


def _offer_all(_producer: RunProducer, records: Iterable[MarkedRecord]) -> Iterator[MarkedRecord]:
    yield from records


_CHANGES: dict[Rule, tuple[Any, str, Any]] = {
    "the first record goes alone": (Made, "machine", _SentTogether),
    "a run has one partition": (Scoreboard, "_follow", _follow_anywhere),
    "a run is bounded": (Made, "machine", _Unbounded),
    "the next run waits for the purge": (Made, "machine", EarlyRelease),
    "mark anew when a purge finds too few rows": (Made, "machine", _Trusting),
    "purge only what is acknowledged": (Made, "machine", _Optimist),
    "a new producer's first record goes alone": (RunProducer, "_offers", _offer_all),
}
"""The rules of the product; the others are in the model's servers."""


@contextmanager
def without(off: frozenset[Rule]) -> Iterator[None]:
    """Has the product use the model's client and time, and leaves out some of its rules."""
    with ExitStack() as stack:
        stack.enter_context(driven())
        for rule in off:
            if rule in _CHANGES:
                stack.enter_context(mock.patch.object(*_CHANGES[rule]))
        yield
