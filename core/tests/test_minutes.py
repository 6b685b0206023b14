"""The history by minutes: what is made of polls, what is kept of it, and what is shown."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from outbox_api import DriverError
from outbox_api.portable.history import PortableHistory
from outbox_console.minutes import MinuteReader, MinuteWriter
from outbox_core.config import parse
from outbox_core.events.recent import RecentWork
from outbox_core.settings import HarvestSettings
from outbox_core.status.history import MOST_UNWRITTEN, History
from outbox_core.status.history_events import HistoryEvent, HistoryEventCode
from outbox_core.status.minutes import (
    MOST_EVENTS,
    Minute,
    Span,
    as_text,
    coarser,
    number_of,
    of_text,
    seen,
    topics_of,
)
from outbox_core.status.points import Point

from .test_history import NOON, lane, later, state
from .test_recent import measured
from .test_recorder import until

WORK = RecentWork(0.0).as_data(60.0, measured(*[0.004] * 98, 0.4, 0.4, orders=100, bills=20))


def polled(history: History, seconds: range, offset: float = 0.0, **given: Any) -> None:
    for second in seconds:
        history.add(later(second + offset), state(lane(**WORK, **given), records=second, oldest=1.0))


def texts(events: Sequence[HistoryEvent]) -> list[str]:
    return [each.text for each in events]


def test_a_minute_has_the_greatest_figures_and_the_mean_rate():
    history = History()
    history.add(NOON, state(lane(purged_per_second=10.0), records=9))
    history.add(later(20), state(lane(purged_per_second=30.0, **WORK), records=3, oldest=7.0))
    history.failed(later(40), "no answer")
    assert not history.unwritten
    history.add(later(61), state(lane(), records=100))
    assert not history.unwritten, "somebody else may have seen all of it"
    history.failed(later(121), "no answer")
    minute = history.unwritten[0]
    assert minute.number == number_of(NOON)
    point = minute.point
    assert (point.at, point.records, point.oldest, point.rate, point.failed) == (NOON, 9, 7.0, 20.0, 0)
    assert 0.002 < (point.p50 or 0) < 0.006
    assert 0.2 < (point.p99 or 0) < 0.6
    assert [each.code for each in minute.events] == ["database-away"]
    read = of_text(minute.number, as_text(minute))
    assert read is not None
    rounded = replace(point, p50=round(point.p50 or 0, 4), p99=round(point.p99 or 0, 4))
    assert read == replace(minute, point=rounded)
    assert read.topics == {"orders": (100, 0), "bills": (20, 0)}
    assert len(as_text(minute)) < 500


def test_of_a_minute_without_any_figures_nothing_is_kept_but_what_happened():
    history = History()
    history.add(NOON, state(lane()))
    for second in range(60, 300, 10):
        history.failed(later(second), "away")
    assert [each.number - number_of(NOON) for each in history.unwritten] == [0]
    for second in range(300, 421, 10):
        history.add(later(second), state(lane()))
    assert [each.number - number_of(NOON) for each in history.unwritten] == [0, 5, 6]
    assert [each.code for each in history.unwritten[1].events] == ["database-away", "database-back"]


def test_what_waits_to_be_written_is_bounded():
    history = History()
    for number in range(200):
        at = later(60 * number)
        for parked in (1, 0) * 30:
            history.add(at, state(lane(), parked=parked))
    assert len(history.unwritten) == MOST_UNWRITTEN
    assert all(len(each.events) <= MOST_EVENTS for each in history.unwritten)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", '{"events": [1]}', '{"events": [[1, "x", "y"]]}', "7"]
)
def test_a_text_of_another_version_is_left_out(text: str):
    assert of_text(1, text) is None


@given(
    st.lists(st.integers(10, 119), max_size=6, unique=True),
    st.floats(0, 9.9),
    st.integers(-60, 110),
    st.integers(0, 170),
)
@example([40], 0.0, -60, 110)  # it begins within the minute, after what happened
def test_whoever_notes_a_minute_no_event_is_lost_or_told_twice(
    happens: list[int], offset: float, silent_from: int, silent_for: int
):
    """Two processes poll every ten seconds, at other moments; who notes a minute first is left to chance.

    One of them begins late, or is stopped for a while; the other has seen all.
    """
    happens.sort()
    histories = History(), History()
    noted: dict[int, list[tuple[int, Minute]]] = {}
    for second in range(-60, 300):
        parked = sum(at <= second for at in happens)
        for history, moment in zip(histories, (0, int(offset)), strict=True):
            is_silent = history is histories[1] and 0 <= second - silent_from < silent_for
            if second % 10 == moment and not is_silent:
                history.add(later(second + offset % 1), state(lane(), parked=parked))
            while history.unwritten:
                minute = history.unwritten.popleft()
                noted.setdefault(minute.number, []).append((second, minute))
    for chosen in range(8):
        minutes = []
        for place, number in enumerate(range(number_of(NOON), number_of(NOON) + 3)):
            first = noted[number][0][0]
            near = [minute for second, minute in noted[number] if second < first + 30]
            minutes.append(near[(chosen >> place) % len(near)])
        found = seen(minutes, (), (), NOON)
        total = sum(int(each.text.split()[0]) for each in found.events if "parked" in each.text)
        # Polls of the two may group what happened within ten seconds differently.
        apart = all(after - before >= 30 for before, after in pairwise(happens))
        if apart and not silent_for:
            assert total == len(happens)
        assert not apart or total >= len(happens)


def test_what_a_process_has_seen_itself_follows_what_is_kept():
    other, own = History(), History()
    polled(other, range(0, 200, 10))
    polled(own, range(100, 260, 10), holder="beta", token=9)
    minutes = list(other.unwritten)
    assert [each.point.records for each in minutes] == [50, 110, 170]
    found = seen(minutes, own.points(), own.events(), NOON)
    assert [point.records for point in found.points] == [50, 110, 170, 180, 190, 200, 210, 220, 230, 240, 250]
    assert [point.records for point in seen([], own.points(), (), NOON).points] == list(range(100, 260, 10))
    assert [point.records for point in seen(minutes, (), (), later(125)).points] == [170]
    assert topics_of(minutes, NOON)[0] == ("orders", 300, 0)


def test_minutes_that_are_missing_leave_a_gap():
    minutes = [Minute(Point(later(60 * number), number)) for number in (0, 1, 5, 6)]
    points = seen(minutes, [Point(later(600), 10)], (), NOON).points
    assert [point.records for point in points] == [0, 1, None, 5, 6, None, 10]
    assert [point.records for point in coarser(points, timedelta(minutes=5))] == [1, None, 6, None, 10]


def test_an_event_that_two_processes_saw_is_told_once():
    event = HistoryEvent(later(59), HistoryEventCode.LEADER_CHANGED, "beta leads")
    again = replace(event, at=later(65))
    much_later = replace(event, at=later(200))
    minutes = [Minute(Point(NOON, 1), events=[event]), Minute(Point(later(60), 1), events=[event, again])]
    found = seen(minutes, [], [again, much_later], NOON)
    assert list(found.events) == [event, much_later]
    assert found.takeovers == 2


@pytest.fixture
def outbox(tmp_path: Path) -> HarvestSettings:
    dialect = f"{{driver: sqlite, dataSource: {tmp_path / 'shop.db'}}}"
    text = f"harvest: {{dialect: {dialect}, engine: inline, elector: static}}"
    return parse(text, "f.yaml", {}).harvest


def recorded(minutes: int, until: datetime | None = None) -> History:
    history, end = History(), (until or datetime.now(UTC)).replace(second=0, microsecond=0)
    begun = end - timedelta(minutes=minutes)
    for number in range(minutes * 6 + 1):
        history.add(begun + timedelta(seconds=10 * number), state(lane(**WORK), records=number))
    return history


def test_a_history_survives_the_process_and_is_the_same_for_all(outbox: HarvestSettings):
    outbox.dialect.create().create()
    now = datetime.now(UTC)  # the minute may end between two of them
    writers = [(MinuteWriter(), recorded(30, now)) for _ in range(3)]
    for writer, history in writers:
        writer.write([(outbox, history)])
    until(lambda: not any(history.unwritten or writer._writing[next(iter(writer._writing))].is_alive()
                          for writer, history in writers))  # fmt: skip
    read = [MinuteReader(outbox).read() for _ in range(2)]
    assert read[0] == read[1]
    assert len(read[0].minutes) in {29, 30}
    assert read[0].error == ""
    assert all(each.topics == {"orders": (100, 0), "bills": (20, 0)} for each in read[0].minutes)
    found = seen(read[0].minutes, (), (), datetime.now(UTC) - Span.HOUR.length)
    assert all(point.known for point in found.points)


def test_without_the_table_a_process_says_what_to_do(outbox: HarvestSettings, tmp_path: Path):
    outbox.dialect.create().create()
    with closing(outbox.dialect.create().open_as_application()) as connection:
        connection.execute("DROP TABLE outbox_fence_history")
        connection.commit()
    writer, history = MinuteWriter(), recorded(3)
    writer.write([(outbox, history)])
    until(lambda: history.error)
    assert "outbox init" in history.error
    assert len(history.points()) > 15
    assert "outbox init" in MinuteReader(outbox).read().error
    outbox.dialect.create().create()
    assert MinuteReader(outbox).read().error == ""


def test_while_the_database_is_away_minutes_wait(outbox: HarvestSettings, monkeypatch: pytest.MonkeyPatch):
    outbox.dialect.create().create()
    writer, history, reader = MinuteWriter(), recorded(5), MinuteReader(outbox)
    with monkeypatch.context() as broken:

        def away(*_: object, **__: object) -> None:
            raise DriverError("connection refused", retryable=True)

        broken.setattr(type(outbox.dialect.create()), "history", away)
        writer.write([(outbox, history)])
        until(lambda: history.error)
        assert len(history.unwritten) == 5
        assert reader.read().error == "connection refused"
    until(lambda: not next(iter(writer._writing.values())).is_alive())
    writer.write([(outbox, history)])
    until(lambda: not history.unwritten)
    until(lambda: len(reader.read().minutes) >= 4)
    assert reader.read().error == ""


def test_a_topic_that_is_no_text_stops_no_history(outbox: HarvestSettings):
    outbox.dialect.create().create()
    writer, history = MinuteWriter(), History()
    odd = "\ud800\0 \N{SNOWMAN}"
    work = RecentWork(0.0).as_data(60.0, measured(**{odd: 3}))
    begun = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=3)
    for number in range(13):
        history.add(begun + timedelta(seconds=10 * number), state(lane(**work)))
    writer.write([(outbox, history)])
    until(lambda: not history.unwritten)
    found = MinuteReader(outbox).read().minutes
    assert [dict(each.topics) for each in found] == [{odd: (3, 0)}] * 2


def test_a_clock_that_is_set_back_stops_no_reader(outbox: HarvestSettings, monkeypatch: pytest.MonkeyPatch):
    outbox.dialect.create().create()
    reader, now = MinuteReader(outbox), datetime.now(UTC)

    class Clock(datetime):
        ahead = timedelta(hours=3)

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return now + cls.ahead

    monkeypatch.setattr("outbox_console.minutes.datetime", Clock)
    point = Point(now + Clock.ahead - timedelta(minutes=2), 1)
    with closing(outbox.dialect.create().history()) as kept:
        kept.note(number_of(point.at), as_text(Minute(point)))
        assert len(reader.read().minutes) == 1
        Clock.ahead = timedelta(0)
        point = Point(now - timedelta(minutes=2), 2)
        kept.note(number_of(point.at), as_text(Minute(point)))
    assert [each.point.records for each in reader.read().minutes] == [2]


def test_an_unexpected_exception_stops_one_history_only(
    outbox: HarvestSettings, monkeypatch: pytest.MonkeyPatch
):
    dialect = outbox.dialect.create()
    dialect.create()
    broken, sound, writer = recorded(3), recorded(3), MinuteWriter()
    note, notes = PortableHistory.note, iter([True])

    def fails_once(*arguments: Any) -> None:
        if next(notes, False):
            raise TypeError("a fault of the dialect")
        note(*arguments)

    monkeypatch.setattr(PortableHistory, "note", fails_once)
    writer.write([(outbox, broken), (replace(outbox, label="other"), sound)])
    until(lambda: not sound.unwritten)
    assert broken.error == "the harvester's log says why"
    assert sound.error == ""
