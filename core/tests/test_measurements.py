"""What lanes measure, how it adds up, and that a process's totals never go back."""

import random

import pytest
from outbox_api import Deliveries, Failure, MarkedRecord
from outbox_core.control.protocol import Report, decode, encode
from outbox_core.events.measurements import (
    MAX_TOPICS,
    OTHER_TOPICS,
    Durations,
    LaneWork,
    Measurements,
    SendTimes,
    count_topics,
)
from outbox_core.events.metrics import LaneMetrics
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.leadership.leader import Leadership, Totals


def measured(purged: int, step: str = "mark") -> Measurements:
    made = Measurements(published={"orders": purged})
    made.step(step, 0.02, purged)
    made.operations.add(0.02, purged)
    return made


def test_a_value_is_counted_in_the_first_bucket_that_reaches_to_it():
    durations = Durations()
    for value in (-1.0, 0.001, 0.0011, 5000.0):
        durations.add(value)
    assert durations.counts[:2] == [2, 1]
    assert durations.counts[-1] == 1
    assert durations.total == 0.001 + 0.0011 + 5000.0


def test_what_is_added_up_does_not_change_with_its_parts():
    one, other = measured(3), measured(4, "purge")
    both = one + other
    one.step("mark", 1.0, 1)
    other.step("purge", 1.0, 1)
    assert {step: sum(each.counts) for step, each in both.steps.items()} == {"mark": 1, "purge": 1}
    assert (both.published, sum(both.operations.counts)) == ({"orders": 7}, 7)


def test_the_sum_of_waiting_times_is_exact_whatever_the_order_of_reports():
    chance, times, measurements = random.Random(1), SendTimes(), Measurements()
    sent: list[float] = []
    expected = reported = 0.0
    for turn in range(500):
        now = turn / 100
        records = chance.randrange(4)
        times.sent(now, records)
        sent += [now] * records
        chance.shuffle(sent)
        told = [sent.pop() for _ in range(min(len(sent), chance.randrange(5)))]
        expected += sum(now - since for since in told)
        reported += len(told)
        times.reported(now, len(told), measurements)
    left = sum(10.0 - since for since in sent)
    times.reported(10.0, len(sent), measurements)
    assert sum(measurements.operations.counts) == reported + len(sent)
    assert abs(measurements.operations.total - (expected + left)) < 1e-6


def test_reports_beyond_what_was_sent_are_not_measured():
    times, measurements = SendTimes(), Measurements()
    times.sent(1.0, 2)
    times.reported(2.0, 5, measurements)
    assert sum(measurements.operations.counts) == 2
    assert measurements.steps["publish"].total == 1.0


def test_topics_are_bounded():
    counts: dict[str, int] = {}
    for number in range(MAX_TOPICS + 50):
        count_topics(counts, {f"topic-{number}": 2})
    count_topics(counts, {"topic-0": 1})
    assert len(counts) == MAX_TOPICS + 1
    assert (counts["topic-0"], counts[OTHER_TOPICS]) == (3, 100)


def test_measurements_travel_in_reports():
    report = Report(7, 0, "a", {1: LaneMetrics(purged=5)}, measurements_by_lane={1: measured(5)})
    assert decode(Report, encode(report)) == report


def test_a_lane_measures_what_is_answered_without_an_error():
    telemetry = Telemetry(0, 5.0, 0.0, wall_clock=lambda: 1000.0)
    records = [MarkedRecord(1, "a", "k", "v", created=990.0), MarkedRecord(2, "b", "k", "v")]
    telemetry.published(0.5, records, [], 0.5)
    telemetry.published(0.5, records, [Failure(records[0], "no", retryable=True)], 0.0)
    telemetry.measurements.step("purge", 0.01, 3)
    measured = telemetry.measurements
    assert (measured.published, measured.failed) == ({"a": 1, "b": 1}, {"a": 1, "b": 1})
    assert (sum(measured.operations.counts), measured.operations.total) == (2, 0.5)
    assert (sum(measured.deliveries.counts), measured.deliveries.total) == (1, 10.0)
    assert (measured.steps["purge"].total, measured.sizes["purge"].total) == (0.01, 3)
    assert sum(measured.steps["publish"].counts) == 2


def test_a_lane_measures_records_that_are_sent_one_by_one():
    telemetry = Telemetry(0, 5.0, 0.0, wall_clock=lambda: 1000.0)
    records = [MarkedRecord(number, "a", f"k{number}", "v", created=999.0) for number in range(4)]
    telemetry.sending(1.0, records)
    telemetry.reported(1.25, Deliveries(records[:3], [Failure(records[3], "no", retryable=True)]))
    telemetry.reported(1.2505, Deliveries())
    telemetry.settle()
    telemetry.settle()
    measured = telemetry.measurements
    assert (measured.published, measured.failed, telemetry.metrics.sent) == ({"a": 3}, {"a": 1}, 4)
    assert (sum(measured.operations.counts), measured.operations.total) == (4, 1.0)
    assert (sum(measured.deliveries.counts), measured.deliveries.total) == (3, 3.0)
    assert (measured.steps["publish"].total, measured.sizes["publish"].total) == (0.25, 4)


def reporting(leadership: Leadership, incarnation: str, purged: int, *, measures: bool = True) -> None:
    measurements = {0: measured(purged)} if measures else {}
    metrics = {0: LaneMetrics(purged=purged, in_flight=9)}
    leadership.exchange(Report(7, 0, incarnation, metrics, measurements_by_lane=measurements))


def test_totals_never_go_back_through_lost_workers_and_leaderships():
    totals, seen = Totals(), [0]

    def look() -> int:
        work = totals.work().get(0, LaneWork())
        assert totals.metrics().purged == work.metrics.purged >= seen[-1]
        seen.append(work.metrics.purged)
        return work.measurements.published.get("orders", 0)

    for round_ in range(2):
        leadership = Leadership(7, lambda: 3.0)
        totals.begin(leadership, 0.5)
        look()
        reporting(leadership, f"first {round_}", 10)
        reporting(leadership, f"first {round_}", 20, measures=False)
        assert look() == 10 + 25 * round_  # measurements come with few of the reports
        reporting(leadership, f"second {round_}", 0)  # the worker was lost, and another starts at nothing
        look()
        reporting(leadership, f"second {round_}", 15)
        look()
        assert totals.token == 7
        totals.end()
        totals.end()
        assert look() == 25 * (round_ + 1)
        assert totals.metrics().in_flight == 0
    assert totals.token is None
    assert seen[-1] == 70
    assert sum(totals.failovers().counts) == 2


def test_a_first_leader_succeeds_nobody():
    totals = Totals()
    totals.succeed(None)
    totals.succeed(2.0)
    assert (sum(totals.silences().counts), totals.silences().total) == (1, 2.0)


def test_a_delivery_is_measured_when_it_is_reported_and_not_when_it_is_counted():
    clock = [1000.0]
    telemetry = Telemetry(0, 5.0, 0.0, wall_clock=lambda: clock[0])
    records = [MarkedRecord(number, "a", f"k{number}", "v", created=999.0) for number in range(4)]
    telemetry.sending(1.0, records)
    for number, record in enumerate(records):
        clock[0] = 1000.0 + 0.1 * number
        telemetry.reported(1.0 + 0.1 * number, Deliveries([record]))
    clock[0] = 1050.0
    telemetry.settle()
    assert telemetry.measurements.deliveries.total == pytest.approx(1.0 + 1.1 + 1.2 + 1.3)
