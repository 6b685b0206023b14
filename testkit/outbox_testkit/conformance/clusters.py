"""Several clusters: each mark, and each selection, takes rows of one source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from outbox_api import ColumnIs, DriverError, MarkedRecord

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.clustered import (
    COLUMN,
    OTHER,
    OWN,
    THIRD,
    YEARS,
    aged,
    created,
    delay_of,
    grow_old,
    led,
    moved,
    of_cluster,
    origin,
    timeless,
    until_found,
)
from outbox_testkit.conformance.cost import FEW, MANY, TIMES, assert_no_dearer
from outbox_testkit.conformance.under_test import ALL, Box, Hand, texts

OFTEN = 20 * TIMES
"""How often a look that finds nothing is timed at most: on a busy machine quiet moments are rare."""


class Mode(NamedTuple):
    """One way to deliver.

    Attributes:
        name: Its name.
        take: Takes rows of a source.
    """

    name: str
    take: Callable[[Hand, int, int], list[MarkedRecord]]

    def values(self, hand: Hand, source: int, limit: int = 1000) -> list[str]:
        """Takes rows of a source, and returns their values."""
        return texts(self.take(hand, source, limit))


MODES = (
    Mode("mark", lambda hand, source, limit: hand.mark(limit, source=source)),
    Mode("advance", lambda hand, source, limit: hand.advance(limit, source=source)),
)


class ClusterConformance(Conformance):
    """Both conditions, in both ways to deliver."""

    @pytest.fixture(params=MODES, ids=lambda mode: mode.name)
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        """Each way to deliver in turn."""
        found: Mode = request.param
        return found

    @pytest.fixture
    def clusters(self, bare: Box, stack: ExitStack) -> Box:
        """The outbox under test, in the second of three clusters."""
        return created(bare, stack, origin())

    def test_each_source_has_its_own_rows(self, clusters: Box, mode: Mode) -> None:
        of_cluster(clusters, OWN, "own 1", "own 2")
        of_cluster(clusters, OTHER, "other 1")
        of_cluster(clusters, THIRD, "third 1")
        of_cluster(clusters, OWN, "own 3")
        hand = led(clusters, ColumnIs(COLUMN, OWN), ColumnIs(COLUMN, OTHER), ColumnIs(COLUMN, THIRD))
        assert mode.values(hand, 1) == ["other 1"]
        assert mode.values(hand, 0, 2) == ["own 1", "own 2"]
        assert mode.values(hand, 2) == ["third 1"]
        (third,) = mode.take(led(clusters, ColumnIs(COLUMN, OWN)), 0, 1000)[2:]
        assert texts([third]) == ["own 3"]

    def test_without_conditions_every_row_is_taken_whatever_the_source(
        self, clusters: Box, mode: Mode
    ) -> None:
        of_cluster(clusters, OTHER, "other")
        of_cluster(clusters, OWN, "own")
        assert mode.values(led(clusters), 3) == ["other", "own"]

    def test_marks_and_batches_of_several_sources_go_side_by_side(self, clusters: Box) -> None:
        for number in range(6):
            of_cluster(clusters, (OWN, OTHER)[number % 2], str(number))
        hand = led(clusters, ColumnIs(COLUMN, OWN), ColumnIs(COLUMN, OTHER))
        assert texts(hand.mark(2, source=1)) == ["1", "3"]
        assert texts(hand.mark(2, source=0)) == ["0", "2"]
        assert texts(hand.mark(source=1)) == ["5"]
        assert hand.mark(source=1) == []
        hand.advance(2, source=0)
        own = hand.last()
        hand.advance(2, pending=[own], source=1)
        others = hand.last()
        assert texts(hand.advance(finished=[own], pending=[others], source=0)) == ["4"]
        assert hand.purged == 2
        assert texts(hand.advance(finished=[others], source=1)) == ["5"]
        assert hand.purged == 2

    def test_a_row_of_another_cluster_waits_until_it_is_old(self, clusters: Box, mode: Mode) -> None:
        delay = delay_of(clusters)
        hand = led(clusters, ColumnIs(COLUMN, OWN), *aged(OTHER, delay, YEARS))
        of_cluster(clusters, OTHER, "old 1", "old 2")
        of_cluster(clusters, OWN, "own")
        assert mode.values(hand, 1) == []
        assert mode.values(hand, 0) == ["own"], "own rows have no age"
        grow_old(clusters, delay)
        of_cluster(clusters, OTHER, "young")
        assert until_found(lambda: mode.values(hand, 1)) == ["old 1", "old 2"]
        assert mode.values(hand, 2) == []
        taken_over = led(clusters, ColumnIs(COLUMN, OTHER))
        assert mode.values(taken_over, 0) == ["old 1", "old 2", "young"], "without an age"

    def test_rows_are_taken_in_the_order_of_ids_and_end_at_the_first_that_is_too_young(
        self, clusters: Box, mode: Mode
    ) -> None:
        delay = delay_of(clusters)
        hand = led(clusters, *aged(OTHER, delay))
        of_cluster(clusters, OTHER, "first", "second", "third")
        grow_old(clusters, delay)
        of_cluster(clusters, OTHER, "fourth")
        moved(clusters, "create_time", "second")
        assert until_found(lambda: mode.values(hand, 0)) == ["first"]

        def rest() -> list[str]:
            return [value for value in mode.values(hand, 0) if value not in {"first", "third"}]

        grow_old(clusters, delay)
        assert until_found(rest) == ["second", "fourth"]

    def test_a_young_head_holds_up_all_behind_it(self, clusters: Box, mode: Mode) -> None:
        delay = delay_of(clusters)
        hand = led(clusters, *aged(OTHER, delay))
        of_cluster(clusters, OTHER, "first", "second")
        grow_old(clusters, delay)
        of_cluster(clusters, OTHER, "third")
        moved(clusters, "create_time", "first")
        assert mode.values(hand, 0) == []
        grow_old(clusters, delay)
        assert until_found(lambda: mode.values(hand, 0)) == ["first", "second", "third"]

    def test_bytes_bound_the_rows_of_an_age(self, clusters: Box) -> None:
        delay = delay_of(clusters)
        values = [f"{number:03} ".ljust(1_000, "x") for number in range(100)]
        of_cluster(clusters, OTHER, *values)
        grow_old(clusters, delay)
        of_cluster(clusters, OTHER, "young")
        hand = led(clusters, *aged(OTHER, delay))
        found = until_found(lambda: texts(hand.mark(ALL, max_bytes=30_000, source=0)))
        assert 10 <= len(found) <= 30
        while some := texts(hand.mark(ALL, max_bytes=30_000, source=0)):
            assert len(some) <= 31
            found += some
        assert found in (values, [*values, "young"])

    def test_the_age_counts_from_the_arrival_where_there_is_one(
        self, bare: Box, stack: ExitStack, mode: Mode
    ) -> None:
        clusters = created(bare, stack, origin(arrival="arrived"))
        delay = delay_of(clusters)
        hand = led(clusters, *aged(OTHER, delay), ColumnIs(COLUMN, OTHER, delay, "arrived"))
        of_cluster(clusters, OTHER, "first", "second")
        grow_old(clusters, delay)
        of_cluster(clusters, OTHER, "third")
        moved(clusters, "arrived", "first")
        assert mode.values(hand, 1) == [], "it was written long ago, and came just now"
        assert until_found(lambda: mode.values(hand, 0)) == ["first", "second"]
        grow_old(clusters, delay, "arrived")
        later = led(clusters, ColumnIs(COLUMN, OTHER, delay, "arrived"))
        assert until_found(lambda: mode.values(later, 0)) == ["first", "second", "third"]

    def test_a_row_without_a_time_is_left_to_its_own_cluster(self, clusters: Box, mode: Mode) -> None:
        delay = delay_of(clusters)
        of_cluster(clusters, OTHER, "first", "second", "third")
        grow_old(clusters, delay)
        if not timeless(clusters, "second"):
            pytest.skip("the database permits no row without a time")
        hand = led(clusters, *aged(OTHER, delay), ColumnIs(COLUMN, OTHER))
        assert until_found(lambda: mode.values(hand, 0)) == ["first"]
        hand = led(clusters, *aged(OTHER, delay), ColumnIs(COLUMN, OTHER))
        assert mode.values(hand, 1) == ["first", "second", "third"], "without an age"

    def test_rows_of_a_source_are_shared_by_lanes_and_leave_out_parked_keys(
        self, clusters: Box, mode: Mode
    ) -> None:
        values = [f"v{number}" for number in range(60)]
        of_cluster(clusters, OTHER, *values, keys=20)
        of_cluster(clusters, OWN, *values, keys=20)
        hand = led(clusters, ColumnIs(COLUMN, OTHER))
        clusters.park(hand, "k7")
        conditions = (ColumnIs(COLUMN, OWN), ColumnIs(COLUMN, OTHER))
        token = hand.table.bump(3, "test")
        tables = [clusters.connect(conditions) for _ in range(3)]
        hands = [Hand(table, table.enter(lane, 3, token)) for lane, table in enumerate(tables)]
        left = [value for number, value in enumerate(values) if number % 20 != 7]
        for source in (0, 1):
            found = [mode.values(each, source) for each in hands]
            assert all(each == sorted(each, key=values.index) for each in found)
            assert sorted(value for each in found for value in each) == sorted(left)

    def test_a_mark_of_a_source_leaves_out_excluded_keys(self, clusters: Box) -> None:
        delay = delay_of(clusters)
        of_cluster(clusters, OTHER, *map(str, range(10)), keys=2)
        grow_old(clusters, delay)
        hand = led(clusters, *aged(OTHER, delay))
        found = until_found(lambda: texts(hand.mark(3, excluded=["k1"], source=0)))
        assert found == ["0", "2", "4"]

    def test_a_connection_needs_the_columns_that_conditions_name(self, box: Box) -> None:
        missing: Sequence[ColumnIs] = (ColumnIs(COLUMN, OWN), ColumnIs("kafka_topic", "t", 1.0, "arrived"))
        for condition in missing:
            with pytest.raises(DriverError, match="init") as caught:
                box.dialect.connect([condition])
            assert not caught.value.retryable
        box.connect([ColumnIs("kafka_topic", "t", 1.0)])

    def test_rows_of_other_clusters_in_front_cost_nothing(self, clusters: Box, stack: ExitStack) -> None:
        large = created(clusters.beside("large"), stack, origin())
        for box, count in ((clusters, FEW), (large, MANY)):
            of_cluster(box, OTHER, *map(str, range(count)), keys=50)
            of_cluster(box, OWN, *map(str, range(80 * TIMES)), keys=50)
        conditions = (ColumnIs(COLUMN, OWN), *aged(OTHER, YEARS))
        few, many = (led(box, *conditions) for box in (clusters, large))
        # Often at most, as a database may learn only by and by how many rows of which cluster there are.
        assert_no_dearer("mark", lambda: few.mark(10), lambda: many.mark(10), 8 * TIMES)
        assert_no_dearer("look", lambda: few.mark(10, source=1), lambda: many.mark(10, source=1), OFTEN)
        assert_no_dearer("select", lambda: few.advance(10), lambda: many.advance(10))
        assert_no_dearer("look", lambda: few.advance(10, source=1), lambda: many.advance(10, source=1), OFTEN)
