"""Kept records: what was delivered and is still in the table beside the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from outbox_api.base.record import MarkedRecord


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record that was delivered.

    Attributes:
        position: Its place among the kept records: rises in the order of deliveries within a key.
        delivered_at: When its row was purged (database clock).
        token: The fence token of the leader that purged it.
        record: The record as it was; with its ``created``.
        has_value: Whether the value was kept.
        has_headers: Whether the headers were kept.
    """

    position: int
    delivered_at: datetime
    token: int
    record: MarkedRecord
    has_value: bool = True
    has_headers: bool = True


class Tended(NamedTuple):
    """The result of :meth:`OutboxTable.tend_kept`.

    Attributes:
        deleted: How many records were deleted; those of a partition that was dropped do not count.
        more: Whether there is more to do, so that another call should come soon.
        faults: What could not be done, and is not done by a later call unless somebody helps: in words that
            stay the same from call to call.
    """

    deleted: int = 0
    more: bool = False
    faults: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which kept records are meant; all conditions hold together.

    Attributes:
        key: The key, whole; ``None`` for any.
        topics: Patterns of topics with ``*`` and ``?``, of which one matches; none for any topic.
        since: Delivered then or later; with a time zone.
        until: Delivered before then; with a time zone.
    """

    key: str | None = None
    topics: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
