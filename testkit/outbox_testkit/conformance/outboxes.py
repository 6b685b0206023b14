"""Outboxes are found by a pattern of their names, and looked at together while they rest."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from outbox_api import ConfigError, DriverError
from outbox_api.portable.glance import RestingLane

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import Box


class OutboxesConformance(Conformance):
    """The search for outboxes, in the schema of the outbox under test."""

    def test_outboxes_are_found_by_a_pattern(self, box: Box, stack: ExitStack) -> None:
        table = box.options.table
        assert box.dialect.find_outboxes(f"{table}_t1*") == []
        for suffix in ("t1_a", "t2_b", "t1_c"):
            box.beside(suffix)
        names = box.dialect.find_outboxes(f"{table}_t1*")
        assert [name.lower() for name in names] == [f"{table}_t1_a".lower(), f"{table}_t1_c".lower()]
        # As they are written the option takes them, and finds them again.
        for name in names:
            found = Box(replace(box.under, options={**box.under.options, "table": name}), stack)
            assert found.connect().backlog().records == 0
            assert found.dialect.find_outboxes(name) == [name]

    def test_an_asterisk_stands_for_any_characters_and_nothing_else_does(self, bare: Box) -> None:
        table = bare.options.table
        for suffix in ("a_1", "ab1"):
            bare.beside(suffix)
        found = {
            pattern: sorted(name.lower() for name in bare.dialect.find_outboxes(f"{table}{pattern}"))
            for pattern in ("_a_1", "_a*1*", "_*", "_a")
        }
        both = [f"{table}_a_1".lower(), f"{table}_ab1".lower()]
        assert found == {"_a_1": both[:1], "_a*1*": both, "_*": both, "_a": []}

    def test_the_tables_beside_an_outbox_are_none(self, box: Box) -> None:
        table = box.options.table
        assert [name.lower() for name in box.dialect.find_outboxes(f"{table}*")] == [table.lower()]

    @pytest.mark.parametrize("pattern", ["", "a b", "a.b.c", "tenant_*.", '"outbox*'])
    def test_a_malformed_pattern_is_refused(self, bare: Box, pattern: str) -> None:
        with pytest.raises(ConfigError, match="pattern"):
            bare.dialect.find_outboxes(pattern)

    def test_one_look_tells_which_outboxes_have_rows(self, box: Box) -> None:
        other, third = box.beside("o"), box.beside("t")
        with closing(box.dialect.glance()) as glance:
            boxes = [each.dialect for each in (box, other, third)]
            assert list(glance.waiting([])) == []
            assert list(glance.waiting(boxes)) == [False] * 3
            other.fill(3)
            other.lead().mark(3)
            assert list(glance.waiting(boxes)) == [False, True, False]
            assert list(glance.waiting(boxes[::-1][:2])) == [False, True]
            box.fill(1)
            assert list(glance.waiting(boxes)) == [True, True, False]

    def test_a_look_fails_for_a_missing_table_and_for_no_other(self, box: Box) -> None:
        gone = Box(box.under.beside("gone"), ExitStack())
        box.fill(1)
        with closing(box.dialect.glance()) as glance, pytest.raises(DriverError):
            glance.waiting([box.dialect, gone.dialect])
        with closing(gone.dialect.glance()) as glance:
            assert list(glance.waiting([box.dialect])) == [True]

    def test_lanes_that_rest_have_heartbeats_until_another_leads(self, box: Box) -> None:
        other = box.beside("o")
        hands = [box.lead(), other.lead()]
        lanes = [
            RestingLane(each.dialect, hand.fence, {"purged_total": number})
            for number, (each, hand) in enumerate(zip((box, other), hands, strict=True))
        ]
        with closing(box.dialect.glance()) as glance:
            assert list(glance.heartbeats(lanes)) == [True, True]
            found = [status for [status] in glance.lane_statuses([box.dialect, other.dialect])]
            assert [status.fence.token for status in found] == [hand.fence.token for hand in hands]
            assert [status.metrics["purged_total"] for status in found] == [0, 1]
            assert all(status.age is not None for status in found)
            other.lead()
            assert list(glance.heartbeats(lanes)) == [True, False]
            assert other.connect().lane_statuses()[0].heartbeat_at is None
