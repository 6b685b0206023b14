"""The times by which the records of a transaction are recognised; without a broker."""

from __future__ import annotations

from outbox_kafka.trace import Trace, Tracer


def test_each_transaction_has_a_time_of_its_own_whatever_the_clock_does() -> None:
    clock = iter([1000.0, 1000.0, 1000.0004, 999.0, 1001.0, 1000.5, 5000.0, 1002.0])
    tracer = Tracer({}, lambda: next(clock))
    times = [tracer.next([], set()).time_ms for _ in range(7)]
    assert times == [1_000_000, 1_000_001, 1_000_002, 1_000_003, 1_001_000, 1_001_001, 5_000_000]
    # A clock that was an hour ahead is not followed for an hour: a broker would refuse the records.
    assert tracer.next([], set()).time_ms == 1_002_000


def test_a_lane_goes_on_behind_the_time_of_its_last_attempt() -> None:
    tracer = Tracer({}, lambda: 1000.0)
    tracer.last_ms = 1_000_007
    assert tracer.next([], set()).time_ms == 1_000_008


def test_a_trace_is_read_as_it_was_written() -> None:
    trace = Trace(7, {"t": {0: 5, 11: 0}}, ("checkpoints", 3, 9))
    assert Trace.parse(trace.text()) == trace
