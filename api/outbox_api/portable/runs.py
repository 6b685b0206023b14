"""Changes of an outbox's rows by runs of consecutive ids.

A run is one look into the index, while a list of thousands of ids is as many. No row of another transaction
lies within a run.
"""

from __future__ import annotations

from collections.abc import Sequence

from outbox_api.base.record import Batch
from outbox_api.portable.by_ids import ChangeByIds, bounds, within_runs
from outbox_api.portable.session import Session

LISTED_RUNS = (1, 2, 4, 8, 16)
"""How many runs one statement names: few sizes make few statements to prepare."""

_SHORT_RUN = 8
"""Rows whose runs have fewer than this on average are named one by one."""


def change_rows(session: Session, change: ChangeByIds, rows: Batch, **values: object) -> int:
    """Executes a change of rows, by their runs where these are long; returns how many rows it touched."""
    idiom, runs = session.idiom, rows.runs
    if rows.rows < _SHORT_RUN * len(runs) or not idiom.change_runs(change, 1):
        return session.execute_by_ids(change, rows.ids(), **values)
    most, touched = LISTED_RUNS[-1], 0
    for start in range(0, len(runs), most):
        some = padded(runs[start : start + most])
        given = {**bounds(some), **values}
        if change.copy:
            session.execute(change.copied(within_runs(len(some))), **given)
        touched += session.execute(idiom.change_runs(change, len(some)), **given)
    return touched


def padded(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Repeats the last run up to one of ``LISTED_RUNS``; there is one at least."""
    size = next(size for size in LISTED_RUNS if size >= len(runs))
    return [*runs, *[runs[-1]] * (size - len(runs))]
