"""The history: what was seen in each minute of the last day, the same for all who read it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from outbox_api import DriverError
from outbox_api.portable.history import KEPT_MINUTES, PortableHistory

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import Box

NOW = 29_000_000


class HistoryConformance(Conformance):
    """Noting and reading minutes."""

    @staticmethod
    def history(box: Box, stack: ExitStack, *, read_only: bool = False) -> PortableHistory:
        """Connects to the minutes."""
        history = box.dialect.history(read_only=read_only)
        stack.callback(history.close)
        return history

    def test_what_is_noted_first_of_a_minute_stays(self, box: Box, stack: ExitStack) -> None:
        one, other = self.history(box, stack), self.history(box, stack)
        assert one.read(0) == []
        assert one.note(NOW, '{"a": 1}')
        assert not other.note(NOW, "other")
        assert other.note(NOW + 1, "next" * 3000)
        assert not one.note(NOW + 1, "other")
        for each in (one, other, one.beside(box.dialect)):
            assert each.read(0) == [(NOW, '{"a": 1}'), (NOW + 1, "next" * 3000)]
        assert one.read(NOW) == [(NOW + 1, "next" * 3000)]
        assert one.read(NOW + 1) == []

    def test_no_more_than_a_day_is_kept(self, box: Box, stack: ExitStack) -> None:
        history = self.history(box, stack)
        assert history.note(NOW, "a day ago")
        assert history.note(NOW + 1, "a day ago, and a minute later")
        assert history.note(NOW + KEPT_MINUTES, "now")
        assert not history.note(NOW + KEPT_MINUTES, "too late")
        assert history.read(0) == [(NOW + 1, "a day ago, and a minute later"), (NOW + KEPT_MINUTES, "now")]

    def test_of_many_who_note_a_minute_at_once_one_does(self, box: Box, stack: ExitStack) -> None:
        everyone = [self.history(box, stack) for _ in range(6)]
        with ThreadPoolExecutor(len(everyone)) as pool:
            for minute in (NOW, NOW + 1, NOW + KEPT_MINUTES):
                done = list(
                    pool.map(
                        lambda n, minute=minute: everyone[n].note(minute, f"by {n}"), range(len(everyone))
                    )
                )
                assert sum(done) == 1
                assert everyone[0].read(minute - 1)[-1] == (minute, f"by {done.index(True)}")

    def test_who_only_looks_notes_no_minute(self, box: Box, stack: ExitStack) -> None:
        self.history(box, stack).note(NOW, "noted")
        looks = self.history(box, stack, read_only=True)
        assert looks.read(0) == [(NOW, "noted")]
        with pytest.raises(DriverError):
            looks.note(NOW + 1, "refused")
        assert self.history(box, stack).read(0) == [(NOW, "noted")]
