"""The members: who is here, by the database's clock, and how many outboxes each leads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest
from outbox_api.portable.outboxes import PortableMembers

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import Box


class MemberConformance(Conformance):
    """Noting, expiry and leaving."""

    @pytest.fixture
    def group(self) -> str:
        """A group of the test's own: other outboxes may have the same fence."""
        return f"group {uuid4().hex}"

    @staticmethod
    def members(box: Box, stack: ExitStack) -> PortableMembers:
        """Connects to the list of members."""
        members = box.dialect.members()
        stack.callback(members.close)
        return members

    def test_each_member_learns_of_the_others_of_its_group(
        self, box: Box, stack: ExitStack, group: str
    ) -> None:
        one, other = self.members(box, stack), self.members(box, stack)
        assert one.note(group, "one", 3, 60) == {"one": 3}
        assert one.note(f"other {group}", "third", 1, 60) == {"third": 1}
        assert other.note(group, "other", 0, 60) == {"one": 3, "other": 0}
        assert one.note(group, "one", 2, 60) == {"one": 2, "other": 0}
        assert other.note(f"other {group}", "other", 5, 60) == {"third": 1, "other": 5}
        assert one.note(group, "one", 2, 60) == {"one": 2}

    def test_a_member_counts_until_it_is_silent_for_too_long_or_leaves(
        self, box: Box, stack: ExitStack, group: str
    ) -> None:
        members = self.members(box, stack)
        for name in ("silent", "leaving"):
            members.note(group, name, 1, 60)
        time.sleep(1.5)
        assert members.note(group, "one", 0, 60) == {"silent": 1, "leaving": 1, "one": 0}
        deadline = time.monotonic() + 60
        found: Mapping[str, int] = {}
        while "leaving" not in found:  # a busy machine may keep it silent, too
            assert time.monotonic() < deadline
            members.note(group, "leaving", 1, 60)
            found = members.note(group, "one", 0, 1.2)
        assert found == {"leaving": 1, "one": 0}
        for name in ("leaving", "leaving", "unknown"):
            members.leave(name)
        assert members.note(group, "one", 0, 60) == {"silent": 1, "one": 0}
        assert members.note(group, "leaving", 2, 60) == {"silent": 1, "leaving": 2, "one": 0}

    def test_who_only_looks_sees_the_members_of_a_group_and_changes_nothing(
        self, box: Box, stack: ExitStack, group: str
    ) -> None:
        members = self.members(box, stack)
        view = box.dialect.watch()
        stack.callback(view.close)

        def seen() -> list[tuple[str, int | None, str]]:
            return [(row.name, row.leads, row.about) for row in view.members() if row.group == group]

        assert seen() == []
        members.note(group, "one", 3, 60, about="all that it is")
        members.note(group, "left", 0, 60)
        members.leave("left")
        members.note(f"other {group}", "other", 1, 60)
        assert seen() == [("one", 3, "all that it is")]
        members.note(group, "one", 2, 60, about="all that it is")
        assert seen() == [("one", 2, "all that it is")]
        members.note(group, "one", 2, 60, about="and more" * 1000)
        assert seen() == [("one", 2, "and more" * 1000)]
        time.sleep(0.3)
        assert all(row.age > 0.2 for row in view.members() if row.group == group)

    def test_names_of_any_length_remain_distinct(self, box: Box, stack: ExitStack, group: str) -> None:
        members = self.members(box, stack)
        group, name = "g" * 64, "n" * 128
        assert members.note(group, name, 1, 60) == {name: 1}
        long = ["x" * 1000 + end for end in ("a", "b")]
        for number, each in enumerate(long):
            assert members.note(long[0], each, number, 60)[each] == number
        assert len(members.note(long[0], name, 2, 60)) == 3
        assert members.note(long[1], name, 2, 60) == {name: 2}
        members.leave(long[0])
        assert len(members.note(long[0], name, 2, 60)) == 2

    def test_a_member_is_no_lane_of_the_fence(self, box: Box, stack: ExitStack, group: str) -> None:
        members = self.members(box, stack)
        hand = box.lead()
        name = hand.table.lane_statuses()[0].holder
        for each in (name, str(box.options.table)):
            members.note(group, each, 4, 60)
        assert hand.table.bump(2, "next") > hand.fence.token
        assert [status.fence.lane for status in hand.table.lane_statuses()] == [0, 1]
        assert hand.table.transactional_lanes() == {}
        lease = box.dialect.lease()
        stack.callback(lease.close)
        assert lease.take("one", 60) == 0
        assert members.note(group, name, 4, 60) == {name: 4, str(box.options.table): 4}

    def test_ten_at_once_see_each_other(self, box: Box, stack: ExitStack, group: str) -> None:
        everyone = [self.members(box, stack) for _ in range(10)]
        with ThreadPoolExecutor(len(everyone)) as pool:
            for leads in range(3):
                seen = list(
                    pool.map(lambda n, leads=leads: everyone[n].note(group, f"m{n}", leads, 60), range(10))
                )
        assert all(mapping[f"m{number}"] == 2 for number, mapping in enumerate(seen))
        assert everyone[0].note(group, "m0", 0, 60) == {f"m{n}": 2 if n else 0 for n in range(10)}
