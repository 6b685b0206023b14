"""What lanes have done in the last minute, as heartbeats say it and status adds it up."""

import json

import pytest
from outbox_core.events.measurements import OTHER_TOPICS, Measurements, count_topics
from outbox_core.events.recent import MAX_RECENT_TOPICS, RecentWork
from outbox_core.status import recent as reader
from outbox_core.status.recent import Recent, as_data


def measured(*seconds: float, **topics: int) -> Measurements:
    made = Measurements()
    for each in seconds:
        made.deliveries.add(each)
    count_topics(made.published, topics)
    return made


def recent(*seconds: float) -> Recent:
    return Recent.of([RecentWork(0.0).as_data(60.0, measured(*seconds))])


def test_quantiles_lie_within_their_buckets():
    assert recent().quantile(0.5) is None
    found = recent(*[0.4] * 10, *[0.004] * 90)
    assert 0.0025 < (found.quantile(0.5) or 0) <= 0.005
    assert 0.25 < (found.quantile(0.99) or 0) <= 0.5
    assert found.quantile(1.0) == 0.5
    found = recent(99_999.0)
    assert found.quantile(0.5) == found.quantile(0.99) == 3600.0


def test_writer_and_reader_agree_on_names():
    assert (reader.OTHER_TOPICS, reader.MAX_TOPICS) == (OTHER_TOPICS, MAX_RECENT_TOPICS)


@pytest.mark.parametrize("beat", [0.1, 1.0, 5.0, 30.0])
def test_a_heartbeat_tells_of_the_last_minute_only(beat: float):
    work, total, now = RecentWork(0.0), Measurements(), 0.0
    told = work.as_data(now, total)["recent"]
    assert told == {"seconds": 0.0, "latency": [], "topics": {}}
    while now < 300:
        now += beat
        total += measured(0.004, orders=10)
        count_topics(total.failed, {"orders": 1})
        told = work.as_data(now, total)["recent"]
        assert told["seconds"] <= min(now, 66 + beat) + 0.1
        beats = round(told["seconds"] / beat)
        assert told["topics"]["orders"] == pytest.approx([10 * beats, beats], abs=20)
        assert sum(records for _, _, records in told["latency"]) == pytest.approx(beats, abs=2)
    assert told["seconds"] >= 60
    assert len(work._readings) <= 16
    while now < 400:
        now += beat
        told = work.as_data(now, total)["recent"]
    assert (told["topics"], told["latency"]) == ({}, [])


def test_what_lanes_say_is_added_up():
    works = [RecentWork(0.0), RecentWork(10.0)]
    beats = [
        works[0].as_data(20.0, measured(*[0.004] * 99, orders=100, bills=20)),
        works[1].as_data(20.0, measured(0.4, orders=50)),
        {"purged_total": 3},  # of another version
        {"recent": {}},  # of one that rests
    ]
    found = Recent.of(json.loads(json.dumps(beats)))
    assert [(each.topic, each.published, each.published_per_second) for each in found.topics] == [
        ("orders", 150, 10.0), ("bills", 20, 1.0)
    ]  # fmt: skip
    data = as_data(found)
    assert data["latency"]["records"] == 100
    assert data["latency"]["p50_seconds"] < 0.005
    assert as_data(Recent.of([])) == {"latency": None, "topics": []}


def test_many_topics_and_long_ones_are_told_together():
    total = measured(**{f"t{number}": 1000 - number for number in range(95)})
    beat = RecentWork(0.0).as_data(60.0, total)
    topics = beat["recent"]["topics"]
    assert len(topics) == MAX_RECENT_TOPICS + 1
    assert topics["t0"] == [1000, 0]
    assert sum(published for published, _ in topics.values()) == sum(1000 - number for number in range(95))
    found = Recent.of([beat, beat])
    assert sum(each.published for each in found.topics) == 2 * sum(1000 - number for number in range(95))
    assert sum(each.published_per_second for each in found.topics) == pytest.approx(
        2 * sum(1000 - number for number in range(95)) / 60
    )
    long = measured(**{f"{number}" * 249: 10 for number in range(9)})
    beat = RecentWork(0.0).as_data(60.0, long)
    assert len(json.dumps(beat)) < 1500
    assert beat["recent"]["topics"][OTHER_TOPICS] == [50, 0]


def test_a_topic_with_a_long_name_hides_no_other():
    told = RecentWork(0.0).as_data(60.0, measured(**{"x" * 60_000: 9, "orders": 5}))
    assert told["recent"]["topics"] == {OTHER_TOPICS: [9, 0], "orders": [5, 0]}
