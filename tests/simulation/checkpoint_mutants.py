"""Deliberate bugs in the text of a checkpoint: what is written, or read, is not what was meant.

They replace the functions of ``outbox_core.delivery.checkpoint`` where others call them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outbox_api import Batch
from outbox_core.delivery.checkpoint import Checkpoint, decode, encode

from .mutant import Mutant, breaks_batches, under

Change = Callable[[Batch], Batch]


def span(batch: Batch) -> Batch:
    """Returns all ids from the first to the last of a batch."""
    return Batch.of(range(batch.runs[0][0], batch.runs[-1][1] + 1), batch.newest)


def first_run(batch: Batch) -> Batch:
    return batch._replace(runs=batch.runs[:1])


def one_more(batch: Batch) -> Batch:
    *runs, (first, last) = batch.runs
    return batch._replace(runs=(*runs, (first, last + 1)))


def undated(batch: Batch) -> Batch:
    return batch._replace(newest="")


def writes(change: Change) -> dict[str, object]:
    """Returns what writes batches that are changed."""

    def broken(published: Sequence[Batch], attempted: Batch | None = None) -> str:
        return encode([change(batch) for batch in published], attempted and change(attempted))

    return {"outbox_core.delivery.exactly_once.encode": broken}


def reads(change: Change) -> dict[str, object]:
    """Returns what reads batches that are changed."""

    def broken(text: str) -> Checkpoint:
        published, attempted = decode(text)
        return Checkpoint([change(batch) for batch in published], attempted and change(attempted))

    return {"outbox_core.delivery.recovery.decode": broken}


def last_batch_only(text: str) -> Checkpoint:
    checkpoint = decode(text)
    return checkpoint._replace(published=checkpoint.published[-1:])


CHECKPOINT_MUTANTS: Sequence[Mutant] = (
    under("crashes", lanes=(2, 2), each=breaks_batches(
        "written-span", "A checkpoint has the first and the last id of a batch, and all between.",
        "I1 checkpoint", patches=writes(span))),
    under("crashes", lanes=(2, 2), each=breaks_batches(
        "written-first-run", "A checkpoint has the first run of a batch only.", "I6 checkpoint",
        patches=writes(first_run))),
    under("crashes", breaks_batches(
        "written-one-more", "A checkpoint has one id too many.", "I1 checkpoint", patches=writes(one_more))),
    under("crashes", ids_anew=True, each=breaks_batches(
        "written-undated", "A checkpoint does not say how old its rows are.", "I1 checkpoint",
        patches=writes(undated))),
    under("crashes", lanes=(2, 2), each=breaks_batches(
        "read-span", "A recovery deletes all from the first to the last id of a batch.", "I1 I8",
        patches=reads(span))),
    under("crashes", lanes=(2, 2), each=breaks_batches(
        "read-first-run", "A recovery deletes the first run of a batch only.", "I6 checkpoint",
        patches=reads(first_run))),
    under("crashes", breaks_batches(
        "read-one-more", "A recovery deletes one row too many.", "I1 I8", patches=reads(one_more))),
    under("crashes", ids_anew=True, each=breaks_batches(
        "read-undated", "A recovery takes no account of how old rows are.", "I1", patches=reads(undated))),
    under("crashes, slow database", touched=0.5, transactions_per_second=100.0, each=breaks_batches(
        "read-last-batch", "Of batches known to be in the log a recovery deletes the last only.",
        "I6 checkpoint",
        patches={"outbox_core.delivery.recovery.decode": last_batch_only})),
)  # fmt: skip
