"""The conformance suite finds what is wrong: a dialect that is broken on purpose fails a test of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import sleep
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from outbox_api import (
    UNBOUNDED,
    Advanced,
    Batch,
    Changed,
    Dialect,
    DriverError,
    Fence,
    LeadershipLost,
    MarkedRecord,
    OriginBacklog,
    OutboxTable,
    Poison,
)
from outbox_api.portable.dead_letters import PortableDeadLetters
from outbox_servers.services import Postgres
from outbox_testkit.conformance import DialectConformance, OutboxUnderTest
from outbox_testkit.conformance.clustered import created, origin
from outbox_testkit.conformance.clusters import MODES
from outbox_testkit.conformance.under_test import ALL, Box

pytestmark = pytest.mark.slow


class Broken:
    """A sound table, but for what a subclass does otherwise."""

    def __init__(self, table: Any, dialect: Dialect) -> None:
        self.sound: OutboxTable = table
        self.dialect = dialect
        self.marked: set[int] = set()
        self.latest = 0
        self.letters: PortableDeadLetters | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sound, name)

    def current(self, fence: Fence) -> Fence:
        found = [one.fence for one in self.sound.lane_statuses() if one.fence.lane == fence.lane]
        return found[0] if found else fence


class MarksUnderAnOldFence(Broken):
    def mark(self, fence: Fence, leader_id: UUID, limit: int, *more: Any) -> list[MarkedRecord]:
        return self.sound.mark(self.current(fence), leader_id, limit, *more)


class LooksAtTheFenceTooEarly(Broken):
    def mark(self, fence: Fence, leader_id: UUID, limit: int, *more: Any) -> list[MarkedRecord]:
        if self.current(fence).token != fence.token:
            raise LeadershipLost
        sleep(0.1 if limit < ALL else 0)
        return self.sound.mark(self.current(fence), leader_id, limit, *more)


class ComparesTheFenceTooEarly(Broken):
    def advance(self, fence: Fence, *more: Any) -> Advanced:
        if self.current(fence).token != fence.token:
            raise LeadershipLost
        sleep(0.1)
        return self.sound.advance(self.current(fence), *more)


class EntersWithoutEndingOtherAttempts(Broken):
    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        entered = self.current(Fence(lane, lanes, token, 0))
        return entered if entered.epoch else self.sound.enter(lane, lanes, token)


class PurgesWhateverIsNamed(Broken):
    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        self.sound.mark(fence, leader_id, ALL)
        return self.sound.purge(fence, leader_id, ids)


class CountsWhatItWasAskedFor(Broken):
    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        return self.sound.purge(fence, leader_id, ids)._replace(rows=len(ids))


class ResetsWhateverIsNamed(Broken):
    def reset(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        self.sound.mark(fence, leader_id, ALL)
        return self.sound.reset(fence, leader_id, ids)


class MarksOutOfOrder(Broken):
    def mark(self, fence: Fence, leader_id: UUID, limit: int, *more: Any) -> list[MarkedRecord]:
        return self.sound.mark(fence, leader_id, limit, *more)[::-1]


class MarksBehindWhatItMarkedLast(Broken):
    def mark(self, fence: Fence, leader_id: UUID, limit: int, *more: Any) -> list[MarkedRecord]:
        marked = [one for one in self.sound.mark(fence, leader_id, limit, *more) if one.id > self.latest]
        self.latest = marked[-1].id if marked else self.latest
        return marked


class ReadsTheWholeTable(Broken):
    def mark(self, fence: Fence, leader_id: UUID, limit: int, *more: Any) -> list[MarkedRecord]:
        self.letters = self.letters or self.dialect.dead_letters()
        for _ in range(5):  # so that it is seen on a busy machine, too
            self.letters.waiting("nobody")
        return self.sound.mark(fence, leader_id, limit, *more)

    def close(self) -> None:
        self.sound.close()
        if self.letters:
            self.letters.close()


class DeletesNoBatch(Broken):
    def advance(
        self, fence: Fence, finished: Sequence[Batch], pending: Sequence[Batch], *more: Any
    ) -> Advanced:
        return self.sound.advance(fence, [], [*finished, *pending], *more)


class DeletesWholeRanges(Broken):
    """Takes a batch for all rows from its first to its last."""

    def advance(
        self, fence: Fence, finished: Sequence[Batch], pending: Sequence[Batch], *more: Any
    ) -> Advanced:
        ranges = [Batch(((batch.runs[0][0], batch.runs[-1][1]),), batch.newest) for batch in finished]
        return self.sound.advance(fence, ranges, pending, *more)


class DeletesYoungerRows(Broken):
    def advance(
        self, fence: Fence, finished: Sequence[Batch], pending: Sequence[Batch], *more: Any
    ) -> Advanced:
        return self.sound.advance(fence, [Batch(batch.runs) for batch in finished], pending, *more)


class DeletesUnderAnOldFence(Broken):
    def advance(self, fence: Fence, *more: Any) -> Advanced:
        return self.sound.advance(self.current(fence), *more)


class TellsTooEarlyATime(Broken):
    """Its batches are never deleted."""

    def advance(self, *arguments: Any) -> Advanced:
        return self.sound.advance(*arguments)._replace(newest="2001-01-01 00:00:00+00")


class DatesSomeRows(Broken):
    def advance(self, *arguments: Any, **_: bool) -> Advanced:
        return self.sound.advance(*arguments)


class SelectsPendingRows(Broken):
    def advance(
        self, fence: Fence, finished: Sequence[Batch], pending: Sequence[Batch], *more: Any
    ) -> Advanced:
        return self.sound.advance(fence, finished, [], *more)


class SelectsFinishedRows(Broken):
    """Deletes once it has selected."""

    def advance(self, fence: Fence, finished: Sequence[Batch], *more: Any) -> Advanced:
        selected = self.sound.advance(fence, [], *more)
        deleted = self.sound.advance(fence, finished, [], 0)
        return selected._replace(purged=deleted.purged, locked=deleted.locked)


class SelectsBehindItsLatestBatch(Broken):
    """Neither late commits nor abandoned batches are seen."""

    def advance(self, *arguments: Any) -> Advanced:
        advanced = self.sound.advance(*arguments)
        records = [record for record in advanced.records if record.id > self.latest]
        self.latest = records[-1].id if records else self.latest
        return advanced._replace(records=records)


class SelectsNoMarkedRows(Broken):
    def mark(self, fence: Fence, leader_id: UUID, limit: int, *more: Any) -> list[MarkedRecord]:
        marked = self.sound.mark(fence, leader_id, limit, *more)
        self.marked.update(record.id for record in marked)
        return marked

    def advance(self, *arguments: Any) -> Advanced:
        advanced = self.sound.advance(*arguments)
        records = [record for record in advanced.records if record.id not in self.marked]
        return advanced._replace(records=records)


class MarksWhatItSelects(Broken):
    def advance(self, fence: Fence, *more: Any) -> Advanced:
        advanced = self.sound.advance(fence, *more)
        self.sound.mark(fence, uuid4(), len(advanced.records))
        return advanced


class ReadsWholeRanges(Broken):
    """Takes a batch for all rows from its first to its last."""

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        ends = ((batch.runs[0][0], batch.runs[-1][1]),) if batch.runs else ()
        return self.sound.rows(Batch(ends, batch.newest))


class ReadsYoungerRows(Broken):
    def rows(self, batch: Batch) -> list[MarkedRecord]:
        return self.sound.rows(Batch(batch.runs))


class ReadsOutOfOrder(Broken):
    def rows(self, batch: Batch) -> list[MarkedRecord]:
        return self.sound.rows(batch)[::-1]


class ReadsNoHeaders(Broken):
    def rows(self, batch: Batch) -> list[MarkedRecord]:
        return [record._replace(headers=()) for record in self.sound.rows(batch)]


class ReadsNoParkedRows(Broken):
    def park(self, fence: Fence, leader_id: UUID | None, poisons: Sequence[Poison], *more: Any) -> Changed:
        self.marked.update(poison.id for poison in poisons)
        return self.sound.park(fence, leader_id, poisons, *more)

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        return [record for record in self.sound.rows(batch) if record.id not in self.marked]


class TellsOfNoLockedRows(Broken):
    def advance(self, *arguments: Any) -> Advanced:
        return self.sound.advance(*arguments)._replace(locked=())


class WaitsForLockedRows(Broken):
    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        changed = self.sound.purge(fence, leader_id, ids)
        if changed.locked:
            raise DriverError("somebody has locked it", retryable=True)
        return changed


class TakesLockedRowsForDeleted(Broken):
    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        return self.sound.purge(fence, leader_id, ids)._replace(locked=())


class PurgesBehindLockedRows(Broken):
    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        changed = self.sound.purge(fence, leader_id, ids)
        alone = [self.sound.purge(fence, leader_id, [number]) for number in changed.locked]
        rows = changed.rows + sum(each.rows for each in alone)
        return Changed(rows, [number for each in alone for number in each.locked])


class ParksOnlyMarkedRows(Broken):
    def park(self, fence: Fence, leader_id: UUID | None, *more: Any) -> Changed:
        return self.sound.park(fence, leader_id or uuid4(), *more)


class MarksHoweverManyBytes(Broken):
    def mark(
        self, fence: Fence, leader_id: UUID, limit: int, max_bytes: int, keys: Collection[str], *more: Any
    ) -> list[MarkedRecord]:
        return self.sound.mark(fence, leader_id, limit, UNBOUNDED, keys, *more)

    def advance(self, *arguments: Any) -> Advanced:
        fence, finished, pending, limit, _, *more = arguments
        return self.sound.advance(fence, finished, pending, limit, UNBOUNDED, *more)


class TakesASingleRowForItsNeighbours(Broken):
    """Counts the bytes of a row that exceeds the bound alone."""

    def mark(
        self, fence: Fence, leader_id: UUID, limit: int, max_bytes: int, keys: Collection[str], *more: Any
    ) -> list[MarkedRecord]:
        marked = self.sound.mark(fence, leader_id, limit, max_bytes, keys, *more)
        until = next((n for n, record in enumerate(marked) if record.fault), len(marked))
        self.sound.reset(fence, leader_id, [record.id for record in marked[until + 1 :]])
        return marked[: until + 1]


class ExcludesNothing(Broken):
    def mark(
        self, fence: Fence, leader_id: UUID, limit: int, max_bytes: int, keys: Collection[str], *more: Any
    ) -> list[MarkedRecord]:
        return self.sound.mark(fence, leader_id, limit, max_bytes, (), *more)


class SelectsWhatIsExcluded(Broken):
    def advance(self, *arguments: Any) -> Advanced:
        return self.sound.advance(*arguments[:6])


class ExcludesForEver(Broken):
    def mark(
        self, fence: Fence, leader_id: UUID, limit: int, max_bytes: int, keys: Collection[str], *more: Any
    ) -> list[MarkedRecord]:
        self.keys = {*keys, *self.__dict__.get("keys", ())}
        return self.sound.mark(fence, leader_id, limit, max_bytes, self.keys, *more)


class ParksOnlyTheHead(Broken):
    def park(
        self, fence: Fence, leader_id: UUID | None, poisons: Sequence[Poison], ids: Sequence[int] = ()
    ) -> Changed:
        return self.sound.park(fence, leader_id, poisons, [poison.id for poison in poisons])


class ForgetsNotes(Broken):
    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        for lane_status in self.sound.lane_statuses():
            fence = lane_status.fence
            self.sound.set_transactional(self.sound.enter(fence.lane, fence.lanes, fence.token), None)
        return self.sound.bump(lanes, holder, expected)


class TakesTheFirstSourceOnly(Broken):
    def mark(self, fence: Fence, leader_id: UUID, limit: int, *_: Any) -> list[MarkedRecord]:
        return self.sound.mark(fence, leader_id, limit)

    def advance(self, *arguments: Any) -> Advanced:
        fence, finished, pending, limit, max_bytes, *_ = arguments
        return self.sound.advance(fence, finished, pending, limit, max_bytes, 0)


class EndsTakeoversWithTheLeader(Broken):
    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        for takeover in self.sound.takeovers():
            self.sound.end_takeover(takeover.cluster)
        return self.sound.bump(lanes, holder, expected)


class BeginsATakeoverAnew(Broken):
    def begin_takeover(self, cluster: int, reason: str) -> bool:
        self.sound.end_takeover(cluster)
        return self.sound.begin_takeover(cluster, reason)


class TellsOfKnownClustersOnly(Broken):
    sound: Any

    def origins(self) -> list[OriginBacklog]:
        return [each for each in self.sound.origins() if each.cluster <= 3]


MARK, ADVANCE = MODES
CLUSTER_CASES: list[tuple[type[Broken], str, dict[str, object]]] = [
    (TakesTheFirstSourceOnly, "test_each_source_has_its_own_rows", {"mode": MARK}),
    (TakesTheFirstSourceOnly, "test_each_source_has_its_own_rows", {"mode": ADVANCE}),
    (EndsTakeoversWithTheLeader, "test_takeovers_outlive_leaders_and_are_no_lanes", {}),
    (BeginsATakeoverAnew, "test_takeovers_begin_and_end_once", {}),
    (TellsOfKnownClustersOnly, "test_the_backlog_of_each_cluster_is_counted", {}),
]
SIMULATION: tuple[str, dict[str, object]] = ("test_the_table_is_what_the_model_says", {"seed": 1})
CASES: list[tuple[type[Broken], str, dict[str, object]]] = [
    (MarksUnderAnOldFence, "test_who_holds_an_old_one_touches_nothing", {"how": "epoch"}),
    (MarksUnderAnOldFence, *SIMULATION),
    (EntersWithoutEndingOtherAttempts, "test_tokens_rise_and_attempts_rise_under_a_token", {}),
    (EntersWithoutEndingOtherAttempts, *SIMULATION),
    (PurgesWhateverIsNamed, "test_purges_only_what_carries_the_leader_id", {}),
    (PurgesWhateverIsNamed, *SIMULATION),
    (CountsWhatItWasAskedFor, "test_a_row_is_changed_once", {"verb": "purge"}),
    (CountsWhatItWasAskedFor, *SIMULATION),
    (ResetsWhateverIsNamed, "test_resets_only_what_carries_the_leader_id", {}),
    (ResetsWhateverIsNamed, *SIMULATION),
    (MarksOutOfOrder, "test_marks_the_earliest_rows_in_order", {}),
    (MarksOutOfOrder, *SIMULATION),
    (DatesSomeRows, "test_all_selected_rows_tell_when_they_were_created_if_they_are_asked", {}),
    (MarksBehindWhatItMarkedLast, "test_late_commits_are_found_at_the_head_and_rollbacks_never", {}),
    (MarksBehindWhatItMarkedLast, *SIMULATION),
    (ReadsTheWholeTable, "test_a_mark_and_a_purge_cost_no_more_where_more_waits", {}),
    (DeletesNoBatch, "test_deletes_the_finished_batch_and_selects_the_next", {}),
    (DeletesNoBatch, *SIMULATION),
    (DeletesWholeRanges, "test_a_batch_with_gaps_is_its_rows_and_no_others", {"step": 40, "limit": 0}),
    (DeletesWholeRanges, "test_batches_of_several_lanes_share_ranges_and_not_rows", {}),
    (DeletesWholeRanges, "test_a_late_commit_is_found_behind_and_between_batches", {}),
    (DeletesWholeRanges, *SIMULATION),
    (DeletesYoungerRows, "test_an_id_that_is_given_out_anew_is_no_row_of_the_old_batch", {}),
    (DeletesUnderAnOldFence, "test_who_holds_an_old_one_touches_nothing", {"how": "token"}),
    (DeletesUnderAnOldFence, "test_a_former_leader_may_select_and_deletes_nothing", {}),
    (DeletesUnderAnOldFence, *SIMULATION),
    (TellsTooEarlyATime, "test_deletes_the_finished_batch_and_selects_the_next", {}),
    (TellsTooEarlyATime, *SIMULATION),
    (SelectsPendingRows, "test_pending_batches_are_left_out", {}),
    (SelectsPendingRows, *SIMULATION),
    (SelectsFinishedRows, "test_deletes_the_finished_batch_and_selects_the_next", {}),
    (SelectsFinishedRows, *SIMULATION),
    (SelectsBehindItsLatestBatch, "test_an_abandoned_batch_is_selected_again_in_its_place", {}),
    (SelectsBehindItsLatestBatch, "test_a_late_commit_is_found_behind_and_between_batches", {}),
    (SelectsBehindItsLatestBatch, *SIMULATION),
    (SelectsNoMarkedRows, "test_a_selection_changes_nothing_in_the_rows", {}),
    (MarksWhatItSelects, "test_a_selection_changes_nothing_in_the_rows", {}),
    (ReadsWholeRanges, "test_the_rows_of_a_batch_are_read_if_they_are_there_and_no_others", {"step": 2}),
    (ReadsYoungerRows, "test_an_id_that_is_given_out_anew_is_no_row_of_the_old_batch", {}),
    (ReadsOutOfOrder, "test_the_rows_of_a_batch_are_read_as_they_were_selected", {}),
    (ReadsNoHeaders, "test_the_rows_of_a_batch_are_read_as_they_were_selected", {}),
    (ReadsNoParkedRows, "test_rows_of_parked_keys_are_read_by_whomever_and_nothing_is_changed", {}),
    (ParksOnlyMarkedRows, "test_a_key_is_parked_without_a_leader_id_whatever_its_rows_carry", {}),
    (ParksOnlyMarkedRows, *SIMULATION),
    (MarksHoweverManyBytes, "test_a_mark_claims_no_more_bytes_than_it_may", {}),
    (MarksHoweverManyBytes, "test_a_batch_is_bounded_too", {}),
    (
        TakesASingleRowForItsNeighbours,
        "test_a_record_that_exceeds_the_bound_alone_is_claimed_without_its_value",
        {},
    ),
    (ExcludesNothing, "test_no_row_of_an_excluded_key_is_claimed_and_every_other_flows", {}),
    (SelectsWhatIsExcluded, "test_selections_leave_out_keys_and_topics_and_marks_do_too", {}),
    (ExcludesForEver, "test_a_key_that_is_excluded_no_longer_comes_from_its_earliest_row_on", {}),
    (ParksOnlyTheHead, "test_the_head_is_copied_with_what_was_wrong_with_it", {}),
    (ParksOnlyTheHead, *SIMULATION),
    (ForgetsNotes, "test_a_note_outlives_bumps_and_attempts", {}),
]


@pytest.fixture(scope="module")
def database(postgres_server: Postgres) -> Iterator[str]:
    name = f"broken_{uuid4().hex}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def box(database: str) -> Iterator[Box]:
    schema = f"s{uuid4().hex}"
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    with ExitStack() as stack:
        options = {"data_source": database, "table": f"{schema}.outbox"}
        box = Box(OutboxUnderTest("postgres", options), stack)
        box.dialect.create()
        yield box


def break_it(box: Box, monkeypatch: pytest.MonkeyPatch, broken: type[Broken]) -> None:
    kind = type(box.dialect)
    connect, watch = kind.connect, kind.watch
    monkeypatch.setattr(kind, "connect", lambda dialect, *rest: broken(connect(dialect, *rest), dialect))
    monkeypatch.setattr(kind, "watch", lambda dialect: broken(watch(dialect), dialect))


@pytest.mark.parametrize(("broken", "test", "arguments"), CASES)
def test_a_broken_dialect_fails(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    broken: type[Broken],
    test: str,
    arguments: dict[str, object],
) -> None:
    break_it(box, monkeypatch, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(DialectConformance(), test)(box, **arguments)


@pytest.mark.parametrize(("broken", "test", "arguments"), CLUSTER_CASES)
def test_a_dialect_fails_that_is_broken_for_clusters(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    broken: type[Broken],
    test: str,
    arguments: dict[str, object],
) -> None:
    with ExitStack() as stack:
        clusters = created(box, stack, origin())
        break_it(clusters, monkeypatch, broken)
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            getattr(DialectConformance(), test)(clusters, **arguments)


def test_a_dialect_fails_that_looks_at_the_fence_too_early(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(box, monkeypatch, LooksAtTheFenceTooEarly)
    with ThreadPoolExecutor(2) as pool, pytest.raises(AssertionError, match="the old one's id"):
        DialectConformance().test_no_mark_of_an_old_leader_lands_behind_its_successors(box, pool)


def test_a_dialect_fails_that_compares_the_fence_before_it_deletes(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(box, monkeypatch, ComparesTheFenceTooEarly)
    with ThreadPoolExecutor(2) as pool, pytest.raises(AssertionError, match="the new leader had seen"):
        DialectConformance().test_an_old_leader_deletes_no_batch_once_its_successor_has_started(box, pool)


def test_a_dialect_fails_that_tells_of_no_locked_rows(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(box, monkeypatch, TellsOfNoLockedRows)
    with pytest.raises(AssertionError):
        DialectConformance().test_rows_that_others_have_locked_are_deleted_once_they_are_free(box, 0)


@pytest.mark.parametrize("broken", [WaitsForLockedRows, TakesLockedRowsForDeleted])
def test_a_dialect_fails_that_does_not_purge_around_locked_rows(
    box: Box, monkeypatch: pytest.MonkeyPatch, broken: type[Broken]
) -> None:
    break_it(box, monkeypatch, broken)
    with pytest.raises((AssertionError, DriverError)):
        DialectConformance().test_rows_that_are_locked_after_they_were_marked_are_left_alone(box, "purge")


def test_a_dialect_fails_that_purges_behind_locked_rows(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(box, monkeypatch, PurgesBehindLockedRows)
    with pytest.raises(AssertionError):
        DialectConformance().test_a_row_behind_a_locked_one_of_its_key_is_left_with_it(box, "purge")
