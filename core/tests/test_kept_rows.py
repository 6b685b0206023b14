"""Rows that were deleted and come back with a selection."""

from __future__ import annotations

from outbox_api import Advanced, Batch, MarkedRecord
from outbox_core.lanes.kept_rows import KeptRows


def record(number: int) -> MarkedRecord:
    return MarkedRecord(number, "topic", "key", "value")


class Table:
    """A table with some rows that nobody can delete."""

    def __init__(self, *kept: int) -> None:
        self.kept = kept

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        return [record(number) for number in batch.ids() if number in self.kept]


def faults(rows: KeptRows, table: Table, finished: list[Batch], *ids: int) -> list[int]:
    advanced = Advanced(0, [record(number) for number in ids])
    return [each.id for each in rows.checked(table, finished, advanced).records if each.fault]


def test_a_row_that_comes_back_is_faulty_until_its_key_is_parked() -> None:
    rows, table = KeptRows(), Table(2)
    assert faults(rows, table, [Batch.of([1, 2, 3])], 4, 5) == []
    assert faults(rows, table, [], 2, 6) == [2]
    assert faults(rows, table, [], 2, 6) == [2], "an abandoned batch is selected again"
    rows.parked([2], 1)
    assert faults(rows, table, [], 2) == [], "an operator has it tried again"
    assert faults(rows, table, [Batch.of([2])], 2) == [2]


def test_a_younger_row_with_the_id_of_a_deleted_one_is_sound() -> None:
    assert faults(KeptRows([Batch.of([1, 2])]), Table(), [], 1, 2) == []


def test_rows_that_were_locked_and_are_deleted_apart_hide_none_that_were_deleted_with_them() -> None:
    for apart in ([1], [2], [3], [1, 2], [2, 3]):
        rows = KeptRows([Batch.of([1, 2, 3]), Batch.of(apart)])
        assert faults(rows, Table(1, 2, 3), [], 1, 2, 3, 4) == [1, 2, 3]


def test_what_a_recovery_has_deleted_is_known() -> None:
    assert faults(KeptRows([Batch.of([1, 2])]), Table(1), [], 1, 2) == [1]


def test_rows_that_were_not_deleted_are_not_counted() -> None:
    result = KeptRows().checked(Table(1), [Batch.of([1, 2])], Advanced(2, [record(1)]))
    assert result.purged == 1
