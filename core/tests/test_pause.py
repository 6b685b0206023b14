"""The pause between two transactions: how long it is, and what a lane does meanwhile."""

from __future__ import annotations

import math
import random

import pytest
from outbox_api import Advanced, MarkedRecord
from outbox_core.delivery.commands import Advance, Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.pause import LASTING, LATE_SECONDS, MOST_SECONDS, STEP_SECONDS, Pause
from outbox_core.settings import Failures, Limits

from .deciding import decide

USUAL = 0.004
LATE = USUAL + 0.02
RETRY_SECONDS = 0.02
"""How long Kafka's client waits after a refusal."""


def commit(pause: Pause, *durations: float) -> float:
    for seconds in durations:
        pause.committed(seconds)
    return pause.seconds


def test_late_transactions_make_it_longer_up_to_a_bound():
    pause = Pause()
    assert commit(pause, USUAL, USUAL) == 0
    assert commit(pause, LATE) == pytest.approx(STEP_SECONDS)
    assert commit(pause, USUAL, LATE, USUAL, LATE) == pytest.approx(3 * STEP_SECONDS, rel=0.01)
    assert commit(pause, *[USUAL, USUAL, LATE] * 100) == pytest.approx(MOST_SECONDS, rel=0.01)


def test_it_becomes_shorter_while_none_is_late():
    pause = Pause()
    longer = commit(pause, USUAL, *[USUAL, USUAL, LATE] * 4)
    assert commit(pause, *[USUAL] * LASTING) == pytest.approx(longer / math.e, rel=0.01)
    assert commit(pause, *[USUAL] * 10 * LASTING) == pytest.approx(0, abs=1e-6)


def test_transactions_that_all_take_longer_now_are_usual_soon():
    pause = Pause()
    before = commit(pause, *[USUAL] * 100, *[10 * USUAL] * 100)
    assert commit(pause, *[10 * USUAL + LATE_SECONDS / 2] * 100) < before


def test_a_selection_ends_with_the_pause():
    pause = Pause()
    for _ in range(100):
        pause.selected(0.001)
    pause.seconds = 0.003
    assert pause.gathering == pytest.approx(0.002, rel=0.01)
    pause.seconds = 0.0005
    assert pause.gathering == 0


def record(number: int) -> MarkedRecord:
    return MarkedRecord(number, "topic", f"key-{number}", "value")


def paused(seconds: float, *numbers: int, limits: Limits | None = None) -> SelectPublishPurge:
    """Returns a lane that publishes records, with a pause after that."""
    line = SelectPublishPurge(limits or Limits(), Failures(), random.random)
    decide(line, 0)
    line.advanced(0, Advanced(0, [record(number) for number in numbers], "now", ()))
    line._pause.seconds = seconds
    (publish, *_) = decide(line, 0)
    assert isinstance(publish, Publish)
    return line


def test_during_the_pause_nothing_is_selected_or_purged_and_then_a_selection_comes_first():
    line = paused(0.0025, 1)
    waits = line.published(1)
    assert waits == pytest.approx(0.0025, rel=0.01)
    assert decide(line, 1.002) == []
    due = line.database_due()
    assert due == pytest.approx(1 + waits)
    (select,) = decide(line, due)
    assert isinstance(select, Advance)
    assert select.limit
    assert not select.finished
    line.advanced(due, Advanced(0, [record(2)], "now", ()))
    publish, purge = decide(line, due)
    assert isinstance(publish, Publish)
    assert isinstance(purge, Advance)
    assert purge.finished


def test_what_is_selected_early_waits_for_the_end_of_the_pause():
    line = paused(0.0025, 1)
    line._pause._selection = 0.002
    ready = 1 + line.published(1)
    selects = line.database_due()
    assert selects == pytest.approx(ready - 0.002)
    decide(line, selects)
    line.advanced(selects, Advanced(0, [record(2)], "now", ()))
    assert line.publish_due() == pytest.approx(ready)


@pytest.mark.parametrize("ends", [lambda line: line.drain(), lambda line: line.look(leading=False)])
def test_a_purge_waits_only_for_a_selection_that_comes(ends):
    line = paused(0.0025, 1)
    line.published(1)
    ends(line)
    assert line.database_due() == 0


def test_out_of_a_backlog_there_is_no_pause():
    line = paused(0.004, 1, 2, limits=Limits(max_batch_records=2))
    line.advanced(0, Advanced(0, [record(3), record(4)], "now", ()))
    assert line.published(1) == 0
    publish, advance = decide(line, 1)
    assert isinstance(publish, Publish)
    assert isinstance(advance, Advance)
    assert advance.finished


class Unlearning(Pause):
    def committed(self, seconds: float) -> None:
        """Stays as it is."""


class Servers:
    """A database, and a broker that refuses a transaction which begins too early, in virtual time.

    Four records are committed every four milliseconds.
    """

    def __init__(self, learning: bool) -> None:
        self.chance = random.Random(1)
        self.line = SelectPublishPurge(Limits(), Failures(), self.chance.random)
        if not learning:
            self.line._pause = Unlearning()
        self.rows: list[tuple[float, int]] = []
        self.ages: list[float] = []
        self.transactions = self.refused = 0
        self._written = 0
        self._markers_until = 0.0
        self._publish: tuple[float, Publish] | None = None
        self._advance: tuple[float, Advance, list[int]] | None = None

    def spread(self, median: float) -> float:
        return median * math.exp(self.chance.gauss(0, 0.3))

    def run(self, seconds: float) -> None:
        now = 0.0
        while now < seconds:
            self._write(now)
            self._answer(now)
            for command in decide(self.line, now):
                self._take(now, command)
            now += 0.0002

    def _write(self, now: float) -> None:
        while self._written <= now / 0.001:
            self.rows += [(now, self._written + more) for more in range(4)]
            self._written += 4

    def _take(self, now: float, command: Publish | Advance) -> None:
        if isinstance(command, Publish):
            refused = now + 0.0013 < self._markers_until
            self.transactions, self.refused = self.transactions + 1, self.refused + refused
            self._publish = now + 0.001 + self.spread(0.0022) + refused * RETRY_SECONDS, command
            return
        named = {each for batch in (*command.finished, *command.pending) for run in batch.runs
                 for each in range(run[0], run[-1] + 1)}  # fmt: skip
        found = [number for _, number in self.rows if number not in named][: command.limit]
        self._advance = now + self.spread(0.001) + bool(command.finished) * 0.0015, command, found

    def _answer(self, now: float) -> None:
        if self._publish and self._publish[0] <= now:
            (_, publish), self._publish = self._publish, None
            self.line.published(now)
            self._markers_until = now + self.spread(0.0012)
            sent = {each.id for each in publish.records}
            self.ages += [self._markers_until - at for at, number in self.rows if number in sent]
            self.rows = [row for row in self.rows if row[1] not in sent]
        if self._advance and self._advance[0] <= now:
            (_, _, found), self._advance = self._advance, None
            self.line.advanced(now, Advanced(0, [record(number) for number in found], "now", ()))

    def age(self, share: float) -> float:
        return sorted(self.ages)[int(share * len(self.ages))]


def test_the_pause_keeps_transactions_from_being_refused_and_does_not_cost_the_median():
    with_pause, without = Servers(learning=True), Servers(learning=False)
    for servers in (with_pause, without):
        servers.run(15)
    assert without.refused > 0.01 * without.transactions
    assert with_pause.refused < 0.4 * without.refused
    assert with_pause.transactions < without.transactions
    assert with_pause.age(0.99) < 0.85 * without.age(0.99)
    assert with_pause.age(0.5) < 1.1 * without.age(0.5)
