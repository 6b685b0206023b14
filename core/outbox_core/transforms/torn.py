"""Remembers rows of which a torn transaction has committed a part, until the rest is published."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator

from outbox_api import MAX_CHECKPOINT, Batch

log = logging.getLogger("outbox.transforms")

_MARK = " torn "
"""Between a checkpoint and what is remembered."""


class TornRows:
    """The rows, with the traces by which the log tells what of them is there.

    What is remembered follows the checkpoint of each transaction, as a crash may come before the rest is
    published.
    """

    def __init__(self) -> None:
        self._attempts: list[tuple[str, set[int]]] = []

    def read(self, checkpoint: str) -> str:
        """Remembers what follows a checkpoint, and nothing else; returns the checkpoint alone."""
        text, _, remembered = checkpoint.partition(_MARK)
        attempts = json.loads(remembered) if remembered else ()
        self._attempts = [(trace, {*Batch(tuple(map(tuple, runs))).ids()}) for trace, runs in attempts]
        return text

    def written(self, checkpoint: str) -> str:
        """Returns a checkpoint, followed by what is remembered if there is room."""
        if not self._attempts:
            return checkpoint
        attempts = [(trace, Batch.of(sorted(rows)).runs) for trace, rows in self._attempts]
        text = f"{checkpoint}{_MARK}{json.dumps(attempts, separators=(',', ':'))}"
        if len(text) > MAX_CHECKPOINT:
            log.warning(
                "a checkpoint has no room for %d torn rows: after a crash they are repeated", len(self)
            )
            return checkpoint
        return text

    def add(self, trace: str, rows: Collection[int]) -> None:
        """Remembers rows of a transaction."""
        if rows:
            self._attempts.append((trace, set(rows)))

    def forget(self, rows: Iterable[int]) -> None:
        """Forgets rows, which are published or were never torn."""
        if self._attempts:
            gone = set(rows)
            left = [(trace, torn - gone) for trace, torn in self._attempts]
            self._attempts = [(trace, torn) for trace, torn in left if torn]

    def among(self, rows: Iterable[int]) -> Iterator[tuple[str, set[int]]]:
        """Yields each trace with those of some rows of which a part carries it."""
        for trace, torn in self._attempts:
            if found := torn.intersection(rows):
                yield trace, found

    def __len__(self) -> int:
        return len(set().union(*(torn for _, torn in self._attempts)))
