"""A log that stays short while something fails again and again."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from outbox_core.text.repetitions import AT_ONCE, SHAPES, RepetitionFilter, Repetitions, duration, shape

HOUR = 3600.0


def told(repetitions: Repetitions, times, text="cannot connect", kind="k") -> list[tuple[float, int]]:
    """Has lines seen; returns when one was told, and how many it says were left out before it."""
    found = []
    for now in times:
        assert repetitions.ended(now) == []
        left_out = repetitions.seen(kind, text.format(now), now)
        if left_out is not None:
            found.append((now, left_out))
    return found


def every(pause: float, until: float):
    return [pause * number for number in range(int(until / pause))]


@pytest.mark.parametrize("pause", [0.02, 0.5, 5.0, 60.0])
def test_an_hour_of_failures_is_tens_of_lines_that_account_for_all(pause):
    repetitions = Repetitions()
    lines = every(pause, HOUR)
    found = told(repetitions, lines)
    assert len(found) <= 15
    assert [at for at, _ in found[:3]] == lines[:3]
    (end,) = repetitions.ended(lines[-1] + HOUR)
    assert end.lines == len(lines) == len(found) + end.left_out
    assert end.seconds == lines[-1]
    assert sum(left_out for _, left_out in found) <= end.left_out


def test_the_intervals_grow():
    found = told(Repetitions(), every(0.5, HOUR))
    times = [at for at, _ in found[AT_ONCE:]]
    assert times == [15, 45, 105, 225, 465, 945, 1905]


def test_another_cause_of_the_same_trouble_is_told_at_once():
    repetitions = Repetitions()
    told(repetitions, every(0.5, 60))
    assert repetitions.seen("k", "wrong password", 60) is not None
    assert repetitions.seen("k", "wrong password", 60.5) is None


def test_ever_new_texts_are_no_way_around_the_limit():
    words = [f"key {chr(97 + number % 26) * (1 + number // 26)} is held" for number in range(1000)]
    repetitions = Repetitions()
    found = [word for at, word in enumerate(words) if repetitions.seen("k", word, at / 100) is not None]
    assert len(found) <= AT_ONCE + SHAPES


def test_a_trouble_that_is_over_begins_anew():
    repetitions = Repetitions()
    told(repetitions, every(0.5, 60))
    assert repetitions.next_end() == 59.5 + 90
    (end,) = repetitions.ended(150)
    assert (end.kind, end.lines, end.seconds) == ("k", 120, 59.5)
    assert repetitions.ended(151) == []
    assert repetitions.seen("k", "cannot connect", 151) == 0


def test_lines_that_come_rarely_are_all_told():
    repetitions, found = Repetitions(), []
    for now in every(400.0, HOUR):
        assert repetitions.ended(now) == []
        found.append(repetitions.seen("k", "again", now))
    assert found == [0] * 9


def test_slow_retries_are_one_trouble():
    # The pause of an outbox among several grows to a minute.
    times = [0, 1, 3, 7, 15, 31, 63, *(63 + 60 * number for number in range(1, 58))]
    assert len(told(Repetitions(), times)) <= 14


def test_events_are_told_unless_they_race(log):
    now = [0.0]
    handler = Collecting(lambda: now[0])
    log.addHandler(handler)
    for number in range(100):
        now[0] = 20.0 * number
        log.info("leader acquired: fence token %d", number, extra={"event": "LeaderAcquired"})
    assert len(handler.lines) == 100
    for number in range(3600):
        now[0] += 1.0
        log.info("leader acquired: fence token %d", number, extra={"event": "LeaderAcquired"})
    assert len(handler.lines) - 100 <= 3600 / 10 + 1


def test_kinds_do_not_hide_each_other_and_do_not_pile_up():
    repetitions = Repetitions()
    told(repetitions, every(0.5, 10))
    assert repetitions.seen("other", "cannot connect", 10) == 0
    for number in range(3000):
        repetitions.seen(number, "x", 10)
    assert len(repetitions._troubles) <= 1000


def test_shapes_ignore_numbers_and_ids():
    assert shape("lane 3 restarts in 0.5 s") == shape("lane 12 restarts in 5.9 s")
    assert shape("id 3cba394d-9ef3-42cd") == shape("id 0e0e0e0e-1111-42ab")
    assert shape("refused") != shape("denied")
    assert (duration(42.4), duration(3480)) == ("42 s", "58 min")


class Collecting(logging.Handler):
    def __init__(self, clock=time.monotonic):
        super().__init__()
        self.lines: list[logging.LogRecord] = []
        self.told = threading.Event()
        self.repetitions = RepetitionFilter(self, clock)
        self.addFilter(self.repetitions)

    def emit(self, record):
        self.lines.append(record)
        if str(record.msg).startswith("over"):
            self.told.set()


@pytest.fixture
def log():
    logger = logging.getLogger(__name__)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    logger.handlers.clear()
    logger.propagate = True


def test_a_handler_tells_how_many_lines_it_has_left_out_and_the_end(log):
    now = [0.0]
    handler = Collecting(lambda: now[0])
    log.addHandler(handler)
    for number in range(200):
        now[0] = number / 2
        log.warning("lane %d restarts in %.1f s: %s", number % 4, 0.5, "refused")
    assert len(handler.lines) == AT_ONCE + 2
    assert [line.left_out for line in handler.lines[AT_ONCE:]] == [25, 59]  # type: ignore[attr-defined]
    now[0] = 200
    log.info("something else")
    *_, end, other = handler.lines
    assert other.getMessage() == "something else"
    assert end.levelno == logging.WARNING
    assert end.getMessage() == (
        "over after 100 s: of 200 lines such as this 193 were left out: lane 3 restarts in 0.5 s: refused"
    )


def test_the_end_is_told_in_silence(log, monkeypatch):
    monkeypatch.setattr("outbox_core.text.repetitions.QUIET_SECONDS", (1.0, 1.0))
    handler = Collecting()
    log.addHandler(handler)
    for _ in range(AT_ONCE + 1):
        log.error("refused")
    assert handler.told.wait(60)
    assert handler.lines[-1].getMessage().startswith("over after 0 s: of 6 lines")


def test_details_and_what_is_always_told_are_not_left_out(log):
    handler = Collecting(lambda: 0.0)
    log.addHandler(handler)
    for _ in range(100):
        log.debug("a detail")
        log.info("100 records/s", extra={"always": True})
    assert len(handler.lines) == 200


def test_harvesters_and_outboxes_do_not_hide_each_other(log):
    handler = Collecting(lambda: 0.0)
    log.addHandler(handler)
    for outbox in ("orders", "payments"):
        for _ in range(100):
            log.warning("refused", extra={"outbox": outbox})
    assert len(handler.lines) == 2 * AT_ONCE


def test_two_hundred_outboxes_of_one_database_are_not_as_many_troubles(log):
    now = [0.0]
    handler = Collecting(lambda: now[0])
    log.addHandler(handler)
    for attempt in range(60):
        now[0] = 60.0 * attempt
        for outbox in range(200):
            log.warning("not harvested, trying again", extra={"outbox": f"tenant_{outbox}"})
    assert len(handler.lines) <= 21 * 15
    assert len({line.outbox for line in handler.lines}) >= 20  # type: ignore[attr-defined]


def test_arguments_that_do_not_fit_their_text_end_nothing():
    handler = Collecting(lambda: 0.0)
    handler.handle(logging.LogRecord("a", logging.WARNING, "", 0, "%d %d", (1,), None))
    assert len(handler.lines) == 1
