"""What happened to an outbox in the last hour, found by comparing successive polls: no I/O, no clock."""

from outbox_core.history.events import HistoryEvent, HistoryEventCode
from outbox_core.history.history import History, Point

__all__ = ["History", "HistoryEvent", "HistoryEventCode", "Point"]
